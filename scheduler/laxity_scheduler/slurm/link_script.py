"""The batch script of one link: the user's directives, the chain's lock, then the user's script."""

import fcntl
import re
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from laxity import names
from laxity.durable_files import replace_file
from laxity_scheduler.following.chain_state import ChainState, LinkRecord
from laxity_scheduler.following.link_wrapper import link_body
from laxity_scheduler.slurm.script_shape import DIRECTIVE, split_directive

NO_ARRAY: Final = "a link of a chain is one job, no array"
NO_WAIT: Final = "sbatch would wait until the job has ended; laxity chain waits itself"
REFUSED_OPTIONS: Final = (  # as sbatch abbreviates
    (re.compile(r"hetjob$|packjob$"), "a link of a chain is one job, not a heterogeneous one"),
    (re.compile(r"-[HIkOQsvW]*a|--ar(?:r|ra|ray)?(?:=|$)"), NO_ARRAY),
    (re.compile(r"-[HIkOQsv]*W|--wait$"), NO_WAIT),
    (re.compile(r"--te(?:s|st|st-|st-o|st-on|st-onl|st-only)?$"), "sbatch would submit nothing"),
)
REFUSED_VARIABLES: Final = {"SBATCH_ARRAY_INX": NO_ARRAY, "SBATCH_WAIT": NO_WAIT}

_SETUP: Final = """
folder={folder}
link={link}
job=$SLURM_JOB_ID
requeued={requeued}
index=0
export LAXITY_CHAIN_ID={chain_id}
"""
_ENDS_AT: Final = f"""
ends_at=$(unset ${{!SQUEUE_@}}; SLURM_TIME_FORMAT=%s squeue -h -j "$SLURM_JOB_ID" -o %e 2>/dev/null)
case $ends_at in '' | *[!0-9]*) ;; *) export {names.ENV_ENDS_AT}="$ends_at" ;; esac
"""


def read_directives(script: str) -> list[str]:
    """The `#SBATCH` lines that sbatch would read: those before the first command.

    ValueError for a script that sbatch would refuse, and for options that make no single job.
    """
    lines = script.split("\n")
    if script.startswith("\ufeff"):
        raise ValueError("it begins with a byte order mark; save it as UTF-8 without one")
    if lines[0].endswith("\r") or "\r\n" in script:
        raise ValueError("its lines end with CRLF, as on Windows; run: sed -i 's/\\r$//' on it")
    if not lines[0].startswith("#!"):
        raise ValueError("the first line must name an interpreter, such as #!/bin/bash")
    directives = []
    for line in lines:
        if line.strip() and not line.startswith("#"):
            break
        if line.startswith(DIRECTIVE):
            directives.append(line)
    for line in directives:
        _check_options(line)
    return directives


def _check_options(directive: str) -> None:
    """ValueError for an option by which sbatch would not submit one job and leave."""
    for word in split_directive(directive):
        for option, reason in REFUSED_OPTIONS:
            if option.match(word):
                raise ValueError(f"{directive!r}: {reason}: take it out")


def refuse_variables(environ: Mapping[str, str]) -> None:
    """ValueError for a variable that does to every job what a script's options may not."""
    for name, reason in REFUSED_VARIABLES.items():
        if environ.get(name):
            raise ValueError(f"{name}={environ[name]}: {reason}: unset it")


def write_link_script(
    state: ChainState, link: LinkRecord, folder: Path, requeued: Iterable[int] = ()
) -> Path:
    """The script to submit for this link. The user's own is `script` in the same folder.

    After an exit code of `requeued` Slurm queues the job again.
    """
    user_script = (folder / "script").read_text(encoding="utf-8")
    setup = _SETUP.format(
        folder=shlex.quote(str(folder)),
        link=link.seq,
        chain_id=shlex.quote(state.chain_id),
        requeued=shlex.quote(" ".join(map(str, requeued))),
    )
    body = link_body(setup=setup, ends_at=_ENDS_AT, command='"$folder/script"')
    path = folder / "links" / f"{link.seq}.sh"
    replace_file(path, "\n".join(["#!/bin/bash", *read_directives(user_script), body]))
    return path


def read_started_job(folder: Path, link: LinkRecord) -> str:
    """The job that has run this link, by its own note; empty if none has."""
    return _note(folder, f"{link.seq}.started")


def read_exit_code(folder: Path, link: LinkRecord) -> int | None:
    """The exit code that the link's own job wrote down when the user's script ended."""
    code, _, job_id = _note(folder, f"{link.seq}.exit").partition(" ")
    return int(code) if job_id == link.job_id and code.isdigit() else None


def holds_lock(folder: Path, link: LinkRecord) -> bool:
    """Whether this link's own job runs the user's script now, whatever Slurm knows of it."""
    if read_started_job(folder, link) != link.job_id or _note(folder, f"{link.seq + 1}.started"):
        return False
    with (folder / "lock").open("rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _note(folder: Path, name: str) -> str:
    try:
        return (folder / "links" / name).read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return ""
