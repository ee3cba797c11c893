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

SQUEUE_FORMAT: Final = "%i|%T|%V|%S|%e|%l|%D|%N|%j"
SACCT_FIELDS: Final = (
    "JobIDRaw,State,Submit,Start,End,TimelimitRaw,NNodes,NodeList,ExitCode,JobName"
)
COLUMNS: Final = 9
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


def parse_squeue(text: str) -> list[QueueRow]:
    """Rows of `squeue -h -o SQUEUE_FORMAT`. ValueError for a line of another form."""
    return [_row(line.split("|", COLUMNS - 1)) for line in text.splitlines() if line.strip()]


def parse_sacct(text: str) -> list[QueueRow]:
    """Rows of `sacct -n -P -X --format SACCT_FIELDS`. ValueError for a line of another form."""
    rows = []
    for line in text.splitlines():
        cells = line.split("|", COLUMNS)
        if len(cells) != COLUMNS + 1:
            raise ValueError(f"sacct printed {line!r}: not the {COLUMNS + 1} columns asked for")
        exit_code = parse_exit_code(cells.pop(8))
        rows.append(replace(_row(cells), exit_code=exit_code))
    return rows


def _row(cells: list[str]) -> QueueRow:
    if len(cells) != COLUMNS:
        raise ValueError(f"squeue printed {'|'.join(cells)!r}: not the {COLUMNS} columns asked for")
    job_id, state, submit, start, end, limit, nodes, where, name = cells
    state = state.split(" ")[0]  # CANCELLED by 1000
    placed = where not in NOWHERE
    return QueueRow(
        job_id=job_id,
        state=state,
        name=name,
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


def is_away(text: str) -> bool:
    """Whether an error message says that the controller does not answer, not that it refuses."""
    return bool(_AWAY.search(text))


def is_unconfigured(text: str) -> bool:
    """Whether an error message says that the command knows of no cluster."""
    return bool(_UNCONFIGURED.search(text))


def slurm_words(text: str) -> str:
    """An error message on one line, without the program's name before each sentence."""
    lines = (re.sub(r"^\w+: (?:error|fatal): ", "", line.strip()) for line in text.splitlines())
    return "; ".join(line for line in lines if line)
