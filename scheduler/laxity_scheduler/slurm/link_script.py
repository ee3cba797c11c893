"""The batch script of one link: the user's directives, the chain's lock, then the user's script.

Slurm starts predecessor and successor whenever there is room. The lock on the shared file system
lets one of them train. A lock is let go when its process ends, however that happens, so a killed
link never blocks the next.
"""

import fcntl
import re
import shlex
from pathlib import Path
from typing import Final

from laxity import names
from laxity.durable_files import replace_file
from laxity.worker.chain_link import EXIT_UNFINISHED, TRAINED
from laxity_scheduler.slurm.chain_state import ChainState, LinkRecord

GOES_ON: Final = (0, EXIT_UNFINISHED)  # exit codes after which the chain goes on
SIGNALLED: Final = 128  # from here on a shell's exit code is a signal
_ARRAY: Final = re.compile(r"#SBATCH\s+(?:.*\s)?(?:--array\b|-a\b|hetjob\b|packjob\b)")

_BODY: Final = """
# Written by laxity chain. One link of a chain trains at a time: the one that holds the lock.
folder={folder}
link={link}
export LAXITY_CHAIN_ID={chain_id} {link_name}=$link {folder_name}="$folder"
note() {{ printf '%s\\n' "$2" >"$folder/links/.$1" && mv "$folder/links/.$1" "$folder/links/$1"; }}
exec 9>>"$folder/lock" && flock 9 || {{ echo "laxity chain: no lock on $folder/lock" >&2; exit 1; }}
[ ! -e "$folder/done" ] || exit 0
if read -r before _ 2>/dev/null <"$folder/links/$((link - 1)).exit"; then
  case $before in
    {goes_on}) ;;
    *) [ "$before" -gt {signalled} ] || {{ echo "laxity chain: the link before failed" >&2; exit 1; }} ;;
  esac
fi
if read -r ran 2>/dev/null <"$folder/links/$link.started" && [ "$ran" != "$SLURM_JOB_ID" ]; then
  echo "laxity chain: link $link already ran as job $ran" >&2
  exit 0
fi
note "$link.started" "$SLURM_JOB_ID"
ends_at=$(SLURM_TIME_FORMAT=%s squeue -h -j "$SLURM_JOB_ID" -o %e 2>/dev/null)
case $ends_at in '' | *[!0-9]*) ;; *) export {ends_at_name}="$ends_at" ;; esac
"$folder/script" <&0 &
child=$!
for signal in HUP INT QUIT USR1 USR2 TERM; do
  trap "interrupted=1; kill -s $signal $child 2>/dev/null" "$signal"
done
while interrupted=; wait "$child"; code=$?; [ -n "$interrupted" ] && kill -0 "$child" 2>/dev/null; do
  :
done
if [ -n "$interrupted" ]; then
  signalled=$code
  wait "$child"
  code=$?
  case $code in -1 | 127) code=$signalled ;; esac # bash has forgotten it already
fi
[ "$code" -ne 0 ] || [ ! -e "$folder/{trained}" ] || touch "$folder/done"
note "$link.exit" "$code $SLURM_JOB_ID"
exit "$code"
"""


def read_directives(script: str) -> list[str]:
    """The `#SBATCH` lines that sbatch would read: those before the first command.

    ValueError for a script that sbatch would refuse, and for arrays and heterogeneous jobs.
    """
    lines = script.splitlines()
    if not lines or not lines[0].startswith("#!"):
        raise ValueError("the first line must name an interpreter, such as #!/bin/bash")
    directives = []
    for line in lines:
        if line.strip() and not line.startswith("#"):
            break
        if line.startswith("#SBATCH"):
            directives.append(line)
    refused = [line for line in directives if _ARRAY.match(line)]
    if refused:
        raise ValueError(f"{refused[0]!r}: a link of a chain is one job, no array")
    return directives


def write_link_script(state: ChainState, link: LinkRecord, folder: Path) -> Path:
    """The script to submit for this link. The user's own is `script` in the same folder."""
    user_script = (folder / "script").read_text(encoding="utf-8")
    body = _BODY.format(
        folder=shlex.quote(str(folder)),
        link=link.seq,
        chain_id=shlex.quote(state.chain_id),
        goes_on="|".join(str(code) for code in GOES_ON),
        signalled=SIGNALLED,
        trained=TRAINED,
        link_name=names.ENV_CHAIN_LINK,
        folder_name=names.ENV_CHAIN_FOLDER,
        ends_at_name=names.ENV_ENDS_AT,
    )
    path = folder / "links" / f"{link.seq}.sh"
    replace_file(path, "\n".join(["#!/bin/bash", *read_directives(user_script), body.lstrip()]))
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
