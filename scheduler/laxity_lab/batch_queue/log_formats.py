"""Readers of queue logs: Slurm's accounting in columns (mirage), SWF, and `sacct -P`.

A line that cannot be used is set aside with its number and the reason; the others load. Instants
without a zone are read as UTC; `sacct` writes local ones, of which an hour is there twice when summer
ends, unless it is asked for seconds. Steps of a job, which it lists below it, are no jobs.
"""

import csv
import math
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from laxity.durations import quote_text
from laxity_lab.batch_queue.queue_log import BatchJob, QueueLog
from laxity_lab.traces.trace_fields import (
    read_accounting,
    read_instant,
    read_number,
    read_positive,
    read_text,
    read_whole,
)
from laxity_lab.traces.traces import TraceError, open_text, read_rows
from laxity_scheduler.chains.choices import LogFormat
from laxity_scheduler.chains.time_limits import parse_time_limit_s
from laxity_scheduler.model.job import DAY_S, MINUTE_S

UNLIMITED_S: Final = 365 * DAY_S
SWF_FIELDS: Final = 18
UNKNOWN: Final = -1.0  # in any field of SWF
ASSUMED_LIMITS: Final = "jobs without a time limit"  # in what is known of the file
ASSUMED_ZONE: Final = "times without a zone"
MOST_NODES: Final = 1_000_000
LATEST_S: Final = 1e11  # instants beyond the year 5000 are mistakes
ZONE: Final = re.compile(r"(Z|[+-]\d\d:?\d\d)$", re.IGNORECASE)
SACCT_COLUMNS: Final = ("Submit", "Start", "End", "NNodes")

NumberedJobs = Iterator[tuple[int, Callable[[], BatchJob]]]
Header = dict[str, float]  # what the file says of its cluster; readers fill it


def load_queue_log(path: Path, log_format: LogFormat) -> QueueLog:
    """All jobs of a log. TraceError when the file as a whole cannot be used."""
    header: Header = {}

    def read_in_order(lines: Iterator[str]) -> NumberedJobs:
        for number, parse in READERS[log_format](lines, header):
            yield number, lambda parse=parse: in_order(parse())  # type: ignore[misc]

    jobs, bad = read_rows(path, read_in_order)
    if not jobs:
        first = f"; {bad[0]}" if bad else ""
        message = f"{path.name} holds no job in format {log_format}{first}"
        raise TraceError(message)
    jobs.sort(key=lambda job: job.submitted_at)  # stable: equal instants keep the file's order
    stated_nodes = int(header.get("MaxNodes", 0))
    assumed_limits = int(header.get(ASSUMED_LIMITS, 0))
    assumed_zone = bool(header.get(ASSUMED_ZONE))
    return QueueLog(
        path.name, tuple(jobs), tuple(bad), stated_nodes, assumed_limits, assumed_zone=assumed_zone
    )


def guess_log_format(path: Path) -> LogFormat:
    """By the name or the first line; mirage if neither tells."""
    if ".swf" in path.suffixes:
        return "swf"
    try:
        with open_text(path) as lines:
            head = next(lines, "")
    except (OSError, EOFError):
        return "mirage"
    return "sacct" if "|" in head else "swf" if head.startswith(";") else "mirage"


def read_mirage(lines: Iterator[str], _header: Header) -> NumberedJobs:
    """The released Lonestar6 log: perhaps a count of rows, then a header and a rule, then jobs."""

    def build(line: str) -> BatchJob:
        row = read_accounting(line)
        return BatchJob(
            id=row["JobID"],
            submitted_at=read_instant("Submit", row["Submit"]),
            started_at=read_instant("Start", row["Start"]),
            ended_at=read_instant("End", row["End"]),
            time_limit_s=MINUTE_S * read_positive(row, "TimelimitR"),
            nodes=read_whole(row, "NNodes", most=MOST_NODES),
        )

    for number, line in enumerate(lines, start=1):
        fields = line.split()
        is_head = fields[:1] == ["JobID"] or not line.strip("- \t\r\n")
        is_count = number == 1 and len(fields) == 1 and fields[0].isdigit()
        if not is_head and not is_count:
            yield number, lambda line=line: build(line)  # type: ignore[misc]


def read_swf(lines: Iterator[str], header: Header) -> NumberedJobs:
    """Standard Workload Format, version 2: processors become nodes by the header's two sizes.

    Where no time was requested, the run time counts as the limit.
    """

    def build(line: str) -> BatchJob:
        fields = line.split()
        if len(fields) < SWF_FIELDS:
            message = f"{len(fields)} fields, {SWF_FIELDS} expected"
            raise ValueError(message)
        row = dict(zip(("job", "submit", "wait", "run time"), fields, strict=False))
        row |= {"processors": fields[7] if float_of(fields[7]) > 0 else fields[4]}
        row |= {"requested time": fields[8]}
        if float_of(fields[8]) == UNKNOWN:
            header[ASSUMED_LIMITS] = header.get(ASSUMED_LIMITS, 0) + 1
            row |= {"requested time": str(max(MINUTE_S, read_not_negative(row, "run time")))}
        per_node = max(1.0, header.get("MaxProcs", 0) / header.get("MaxNodes", math.inf))
        submitted_at = header.get("UnixStartTime", 0.0) + read_number(row, "submit")
        started_at = submitted_at + read_not_negative(row, "wait")
        processors = read_whole(row, "processors", most=MOST_NODES * 1000)
        return BatchJob(
            id=read_text(row, "job"),
            submitted_at=submitted_at,
            started_at=started_at,
            ended_at=started_at + read_not_negative(row, "run time"),
            time_limit_s=read_positive(row, "requested time"),
            nodes=math.ceil(processors / per_node),
        )

    for number, line in enumerate(lines, start=1):
        if line.startswith(";"):
            name, _, value = line[1:].partition(":")
            if 0 < (size := float_of(value)) <= LATEST_S:
                header[name.strip()] = size
        elif line.strip():
            yield number, lambda line=line: build(line)  # type: ignore[misc]


def read_sacct(lines: Iterator[str], header: Header) -> NumberedJobs:
    """`sacct -P` with at least JobID, Submit, Start, End, NNodes, and Timelimit or TimelimitRaw."""
    reader = csv.reader(lines, delimiter="|", quoting=csv.QUOTE_NONE)
    names = [name.strip() for name in next((row for row in reader if any(row)), [])]
    job = next((name for name in ("JobIDRaw", "JobID") if name in names), "JobID")
    limit = next((name for name in ("TimelimitRaw", "Timelimit") if name in names), "Timelimit")
    missing = [name for name in (job, *SACCT_COLUMNS, limit) if name not in names]
    if missing:
        there = quote_text(", ".join(names)) if names else "none"
        message = f"columns {', '.join(missing)} are missing; found {there}"
        raise TraceError(message)

    def read_time(row: Mapping[str, str], column: str) -> float:
        text = read_text(row, column)
        if text.isdecimal():
            return float(text)
        header[ASSUMED_ZONE] = header.get(ASSUMED_ZONE) or not ZONE.search(text)
        return read_instant(column, text)

    def build(row: Mapping[str, str]) -> BatchJob:
        return BatchJob(
            id=read_text(row, job),
            submitted_at=read_time(row, "Submit"),
            started_at=read_time(row, "Start"),
            ended_at=read_time(row, "End"),
            time_limit_s=read_time_limit(read_text(row, limit)),
            nodes=read_whole(row, "NNodes", most=MOST_NODES),
        )

    for cells in reader:
        row = dict(zip(names, cells, strict=False))
        if "".join(cells).strip() and "." not in row.get(job, ""):
            yield reader.line_num, lambda row=row: build(row)  # type: ignore[misc]


def read_time_limit(text: str) -> float:
    """Seconds; ValueError for what is none, or zero."""
    limit_s = parse_time_limit_s(text)
    if not limit_s:
        raise ValueError(f"the time limit is {text!r}: zero")
    return UNLIMITED_S if limit_s == math.inf else limit_s


def in_order(job: BatchJob) -> BatchJob:
    """The job, or ValueError if its instants are not in order."""
    if job.started_at < job.submitted_at:
        message = f"Start is {job.submitted_at - job.started_at:.0f} s before Submit"
        raise ValueError(message)
    if job.ended_at < job.started_at:
        message = f"End is {job.started_at - job.ended_at:.0f} s before Start"
        raise ValueError(message)
    if not -LATEST_S <= job.submitted_at <= job.ended_at <= LATEST_S:
        message = f"Submit {job.submitted_at:g} or End {job.ended_at:g} is thousands of years away"
        raise ValueError(message)
    if job.time_limit_s > LATEST_S:
        message = f"the time limit is {job.time_limit_s:g} s: thousands of years"
        raise ValueError(message)
    return job


def read_not_negative(row: Mapping[str, str], column: str) -> float:
    value = read_number(row, column)
    if value < 0:
        message = f"{column} is {row[column]!r}: not known"
        raise ValueError(message)
    return value


def float_of(text: str) -> float:
    """The number, or NaN."""
    try:
        return float(text)
    except ValueError:
        return math.nan


READERS: Final[Mapping[LogFormat, Callable[[Iterator[str], Header], NumberedJobs]]] = {
    "mirage": read_mirage,
    "swf": read_swf,
    "sacct": read_sacct,
}
