"""What Slurm's commands print, read into values. Instants are POSIX seconds.

The client asks for them as such (`SLURM_TIME_FORMAT=%s`). Slurm's own form is local time without a
zone: whose zone is not said, and one hour of a year is there twice.
"""

import math
import re
from dataclasses import replace
from typing import Final

from laxity_scheduler.chains.time_limits import parse_time_limit_s
from laxity_scheduler.following.link_queue import ENDED, QueueRow
from laxity_scheduler.slurm.slurm_reasons import describe_wait

# Names and reasons are free text, so they are asked for of the user's own jobs only.
SQUEUE_FORMAT: Final = "%i|%T|%V|%S|%e|%l|%D|%N"
OWN_FORMAT: Final = f"{SQUEUE_FORMAT}|%j|%r"
SACCT_FIELDS: Final = "JobIDRaw,State,Submit,Start,End,TimelimitRaw,NNodes,NodeList,ExitCode"
COLUMNS: Final = 8
WAITS: Final = ("PENDING", "SPECIAL_EXIT")  # the second one is held after it was queued again
NOWHERE: Final = ("", "(null)", "None assigned", "None", "N/A")
_TEST_ONLY: Final = re.compile(r"Job \S+ to start at (\S+)")
_AWAY: Final = re.compile(
    "unable to contact slurm|socket timed out|zero bytes|connection refused|connection failure"
    "|connect failure|standby mode|unable to connect|transport endpoint|unexpected message",
    re.IGNORECASE,
)
_UNCONFIGURED: Final = re.compile(
    "establish a configuration source|failed to fetch config|could not read slurm.conf"
    "|slurm.conf.*no such file|unable to process configuration",
    re.IGNORECASE,
)
_REQUEUES: Final = re.compile(r"^RequeueExit(?:Hold)?\s*=(.*)$", re.MULTILINE)
_FULL: Final = re.compile("(?:Assoc|QOS)(?:Max|Grp)SubmitJob")


def parse_squeue(text: str) -> list[QueueRow]:
    """Rows of `squeue -h -o SQUEUE_FORMAT`, of anybody's jobs. A line of another form is left out.

    ValueError if no line has the form.
    """
    rows, errors = [], []
    for line in _lines(text):
        try:
            rows.append(_row("squeue", line.split("|")))
        except ValueError as error:
            errors.append(error)
    if errors and not rows:
        raise errors[0]
    return rows


def parse_own_jobs(text: str) -> list[QueueRow]:
    """Rows of `squeue -h -o OWN_FORMAT`. ValueError for a line of another form."""
    rows = []
    for line in _lines(text):
        cells = line.split("|", COLUMNS + 1)
        row = _row("squeue", cells[:COLUMNS])
        name, reason = (*cells[COLUMNS:], "", "")[:2]
        words = describe_wait(reason, row.job_id) if row.state in WAITS else ""
        rows.append(replace(row, name=name, waits_for=words))
    return rows


def parse_sacct(text: str) -> list[QueueRow]:
    """Rows of `sacct -n -P -X --format SACCT_FIELDS`. ValueError for a line of another form."""
    rows = []
    for line in _lines(text):
        cells = line.split("|")
        row = _row("sacct", cells[:COLUMNS])
        rows.append(replace(row, exit_code=parse_exit_code("".join(cells[COLUMNS:]))))
    return rows


def _lines(text: str) -> list[str]:
    """Slurm ends lines with a newline; other separators of Unicode are part of a text."""
    return [line for line in text.split("\n") if line.strip()]


def _row(program: str, cells: list[str]) -> QueueRow:
    if len(cells) != COLUMNS:
        raise ValueError(f"{program} printed {'|'.join(cells)!r}: not the columns asked for")
    job_id, state, submit, start, end, limit, nodes, where = cells
    state = state.split(" ")[0]  # CANCELLED by 1000
    placed = where not in NOWHERE
    return QueueRow(
        job_id=job_id,
        state=state,
        name="",
        submitted_at=parse_time(submit),
        started_at=parse_time(start) if placed else None,
        ended_at=parse_time(end) if placed or state in ENDED else None,
        time_limit_s=parse_limit_s(limit),
        nodes=int(nodes.split("-")[0]) if nodes[:1].isdigit() else 1,
    )


def parse_time(text: str) -> float | None:
    """POSIX seconds; None where Slurm knows none (N/A, Unknown). ValueError for a time of day."""
    if text.isdecimal():
        return float(text)
    if re.search(r"\d", text):
        raise ValueError(f"{text!r} is no time in seconds: something here sets SLURM_TIME_FORMAT")
    return None


def parse_limit_s(text: str) -> float:
    """Seconds; infinite where Slurm knows no limit (INVALID, NOT_SET, Partition_Limit)."""
    try:
        return parse_time_limit_s(text)
    except ValueError:
        return math.inf


def parse_exit_code(text: str) -> int | None:
    """`7:0` is 7, `0:9` (a signal) is 137; None for anything else."""
    match = re.fullmatch(r"(\d+):(\d+)", text)
    if match is None:
        return None
    code, signal = int(match[1]), int(match[2])
    return 128 + signal if signal else code


def parse_job_exit_code(text: str) -> int | None:
    """The exit code in a line of `scontrol show job -o`; None without one."""
    match = re.search(r"(?:^|\s)ExitCode=(\S+)", text)
    return parse_exit_code(match[1]) if match else None


def parse_output_path(text: str) -> str:
    """Where a job's output goes, of `scontrol show job`; empty without one."""
    match = re.search(r"^\s+StdOut=(.+)$", text, re.MULTILINE)
    return match[1] if match else ""


def parse_job_id(text: str) -> str:
    """What `sbatch --parsable` prints: an id, and on federations `;cluster`. ValueError otherwise."""
    match = re.search(r"^(\d+)(?:;\S+)?$", text, re.MULTILINE)
    if match is None:
        raise ValueError(f"sbatch printed no job id but {text.strip()!r}")
    return match[1]


def parse_planned_start(text: str) -> float | None:
    """When `sbatch --test-only` says that the job would start; None if it does not say."""
    match = _TEST_ONLY.search(text)
    return parse_time(match[1]) if match else None


def parse_controller_time(text: str) -> float:
    """The controller's clock, from the first line of `scontrol show config`. ValueError without."""
    match = re.search(r"Configuration data as of (\S+)", text)
    now_at = parse_time(match[1]) if match else None
    if now_at is None:
        raise ValueError("scontrol show config does not say what time it is")
    return now_at


def parse_requeue_exits(text: str) -> list[int]:
    """The exit codes after which `scontrol show config` says that a job is queued again."""
    codes: list[int] = []
    for first, last in re.findall(r"(\d+)(?:-(\d+))?", " ".join(_REQUEUES.findall(text))):
        codes += range(int(first), int(last or first) + 1)
    return codes


def is_away(text: str) -> bool:
    """Whether an error message says that the controller does not answer, not that it refuses."""
    return bool(_AWAY.search(text))


def is_full(text: str) -> bool:
    """Whether an error message names a limit of jobs that are there at once."""
    return bool(_FULL.search(text))


def is_closed(text: str) -> bool:
    """Whether an error message says that the partition takes no jobs for now."""
    return "partition not available" in text


def is_unconfigured(text: str) -> bool:
    """Whether an error message says that the command knows of no cluster."""
    return bool(_UNCONFIGURED.search(text))


def slurm_words(text: str) -> str:
    """An error message on one line, without the program's name before each sentence."""
    lines = (re.sub(r"^\w+: (?:error|fatal): ", "", line.strip()) for line in text.splitlines())
    return "; ".join(line for line in lines if line)
