"""Jobs of real clusters as rows: five file formats, validated line by line, one unit per field.

Instants are seconds: as the file counts them, or POSIX (UTC) where it has dates. Durations are
seconds at the width that the user asked for. A line that cannot be used is set aside with its
number, the field and its value; the others load. A file may be gzipped (.gz), begin with a byte
order mark, end its lines in any way, have blank lines, more columns and its jobs in any order.
"""

import csv
import gzip
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, Literal, TextIO, TypeVar

from laxity_lab.traces.throughput_tables import Tables, ThroughputTable
from laxity_lab.traces.trace_fields import (
    read_accounting,
    read_group,
    read_instant,
    read_number,
    read_positive,
    read_text,
    read_whole,
)

Format = Literal["itp", "elasticflow", "philly", "chronus", "mirage"]
FORMATS: tuple[Format, ...] = ("itp", "elasticflow", "philly", "chronus", "mirage")
MOST_SAMPLES: Final = 10**9


class TraceError(ValueError):
    """A trace cannot be read at all: no such file, an unknown format, a missing column."""


@dataclass(frozen=True, slots=True)
class TraceJob:
    """One job of a trace. `table` gives iterations/s by GPU count; None: rigid, `duration_s` rules.

    `value_steps` of a soft job: up to which instant its end is worth how much; later it is worth 0.
    A job of a `group` is, or is one of, its `step`, and starts when the steps `after` have finished.
    """

    id: str
    submitted_at: float
    duration_s: float
    gpus: int
    deadline_at: float = math.inf
    service_class: Literal["hard", "soft", "best_effort"] = "best_effort"
    model: str = ""
    batch_size: int | None = None
    iterations: float = 0.0
    table: ThroughputTable | None = None
    namespace: str = "default"
    value_steps: tuple[tuple[float, float], ...] = ()
    group: str = ""
    step: str = ""
    after: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that was set aside: its number in the file, counted from 1, and what is wrong."""

    number: int
    problem: str

    def __str__(self) -> str:
        return f"line {self.number}: {self.problem}"


@dataclass(frozen=True, slots=True)
class Trace:
    """Jobs in order of submission, and the lines that could not be used."""

    name: str
    jobs: tuple[TraceJob, ...]
    bad_lines: tuple[BadLine, ...] = field(default=())


def load(
    path: Path,
    format_: Format,
    *,
    tables: Tables | None = None,
    from_at: float = -math.inf,
    until_at: float = math.inf,
) -> Trace:
    """Read a trace; keep jobs submitted in [from_at, until_at], both ends included.

    `tables` are needed for formats itp and elasticflow; a job whose model and batch size have no
    table is set aside. TraceError when the file as a whole cannot be used.
    """
    if not path.is_file():
        raise TraceError(f"no trace at {path}")
    read = _READERS.get(format_)
    if read is None:
        raise TraceError(f"unknown trace format {format_!r}: one of {', '.join(FORMATS)}")
    all_jobs, bad = read_rows(path, lambda lines: read(lines, tables or {}))
    jobs = [job for job in all_jobs if from_at <= job.submitted_at <= until_at]
    jobs.sort(key=lambda job: job.submitted_at)  # stable: equal instants keep the file's order
    return Trace(path.name.removesuffix(".gz").rpartition(".")[0], tuple(jobs), tuple(bad))


def open_text(path: Path) -> TextIO:
    """Open the file, packed or not; bytes that are no UTF-8 spoil their own field only."""
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", errors="replace", newline="")
    return path.open(encoding="utf-8-sig", errors="replace", newline="")


T = TypeVar("T")
RowsOf = Iterator[tuple[int, Callable[[], T]]]  # a line's number, and what parses it
Rows = RowsOf[TraceJob]


def read_rows(
    path: Path, rows_of: Callable[[Iterator[str]], RowsOf[T]]
) -> tuple[list[T], list[BadLine]]:
    """The rows of a file, and the lines that cannot be used. TraceError if that is all of it."""
    rows: list[T] = []
    bad: list[BadLine] = []
    try:
        with open_text(path) as lines:
            for number, parse in rows_of(lines):
                try:
                    rows.append(parse())
                except ValueError as error:
                    bad.append(BadLine(number, str(error)))
    except (OSError, EOFError, csv.Error) as error:
        raise TraceError(f"{path.name} cannot be read: {error}") from error
    except TraceError as error:
        raise TraceError(f"{path.name}: {error}") from error
    return rows, bad


def csv_rows(
    lines: Iterator[str], need: tuple[str, ...], build: Callable[[Mapping[str, str]], T]
) -> RowsOf[T]:
    """Each line below the heading, which has these columns and perhaps more."""
    reader = csv.reader(lines)
    names = [name.strip() for name in next((row for row in reader if any(row)), [])]
    missing = [column for column in need if column not in names]
    if missing:
        message = f"columns {', '.join(missing)} are missing; found {', '.join(names) or 'none'}"
        raise TraceError(message)
    for cells in reader:
        if not "".join(cells).strip():
            continue
        row = dict(zip(names, cells, strict=False))
        yield reader.line_num, lambda row=row: build(row)  # type: ignore[misc]


def _deadline_rows(lines: Iterator[str], tables: Tables, columns: tuple[str, str, str]) -> Rows:
    submit, iterations, deadline = columns

    def build(row: Mapping[str, str]) -> TraceJob:
        model, batch = (
            read_text(row, "model_name"),
            read_whole(row, "batch_size", most=MOST_SAMPLES),
        )
        table = tables.get((model, batch))
        if table is None:
            raise ValueError(f"no throughput table for model {model!r} with batch size {batch}")
        return TraceJob(
            id=read_text(row, "job_id"),
            submitted_at=read_number(row, submit),
            duration_s=read_positive(row, "duration"),
            gpus=read_whole(row, "num_gpu"),
            deadline_at=read_number(row, deadline),
            service_class="hard",
            model=model,
            batch_size=batch,
            iterations=read_positive(row, iterations),
            table=table,
            **read_group(row),
        )

    need = ("job_id", submit, iterations, "model_name", deadline, "batch_size", "num_gpu")
    yield from csv_rows(lines, (*need, "duration"), build)


def _philly(lines: Iterator[str], _tables: Tables) -> Rows:
    number = 0

    def build(row: Mapping[str, str]) -> TraceJob:
        nonlocal number
        number += 1
        return TraceJob(
            id=f"philly-{number}",
            submitted_at=read_instant("timestamp", read_text(row, "timestamp")),
            duration_s=read_positive(row, "duration"),
            gpus=read_whole(row, "num_gpus"),
            namespace=read_text(row, "cluster"),
            **read_group(row),
        )

    yield from csv_rows(lines, ("timestamp", "duration", "num_gpus", "cluster"), build)


def _chronus(lines: Iterator[str], _tables: Tables) -> Rows:
    minute = 60.0

    def build(row: Mapping[str, str]) -> TraceJob:
        submitted_at = read_number(row, "submit_time") * minute
        steps = _value_steps(row, submitted_at, minute)
        free = read_number(row, "best_effort") != 0
        soft = len(steps) > 1 and not free
        return TraceJob(
            id=read_text(row, "job_id"),
            submitted_at=submitted_at,
            duration_s=read_positive(row, "duration") * minute,
            gpus=read_whole(row, "num_gpu"),
            deadline_at=math.inf if free else steps[0][0],
            service_class="best_effort" if free else "soft" if soft else "hard",
            model=read_text(row, "model_name"),
            namespace=read_text(row, "user"),
            value_steps=steps if soft else (),
            **read_group(row),
        )

    need = ("job_id", "num_gpu", "submit_time", "duration", "expect_time_list", "best_effort")
    yield from csv_rows(lines, (*need, "model_name", "user"), build)


def _value_steps(
    row: Mapping[str, str], submitted_at: float, unit_s: float
) -> tuple[tuple[float, float], ...]:
    """Until when a job's end is worth how much; a strict job has one step, a soft one several."""
    waits = read_text(row, "expect_time_list").split("-")
    values = (row.get("expect_value_list") or "1").split("-")
    if len(values) > 1 and len(values) != len(waits):
        message = f"expect_value_list has {len(values)} values for {len(waits)} expect_time_list"
        raise ValueError(message)
    return tuple(
        [
            (
                submitted_at
                + unit_s * read_positive({"expect_time_list": wait}, "expect_time_list"),
                read_number({"expect_value_list": value}, "expect_value_list"),
            )
            for wait, value in zip(waits, values, strict=False)
        ]
    )


def _mirage(lines: Iterator[str], _tables: Tables) -> Rows:
    """Slurm accounting: a row count, a header and a rule first; job names may hold spaces."""

    def build(line: str) -> TraceJob:
        row = read_accounting(line)
        start, end = read_instant("Start", row["Start"]), read_instant("End", row["End"])
        if end < start:
            raise ValueError(
                f"End is {row['End']!r}, {start - end:.0f} s before its Start {row['Start']!r}"
            )
        return TraceJob(
            id=row["JobID"],
            submitted_at=read_instant("Submit", row["Submit"]),
            duration_s=max(end - start, 1.0),  # whole seconds: 0 is less than one
            gpus=read_whole(row, "NNodes"),
            namespace=row["UID"],
        )

    for number, line in enumerate(lines, start=1):
        if line.strip() and line.lstrip()[0].isdigit() and len(line.split()) > 1:
            yield number, lambda line=line: build(line)  # type: ignore[misc]


_READERS: Mapping[str, Callable[[Iterator[str], Tables], Rows]] = {
    "itp": partial(_deadline_rows, columns=("submission_time", "num_iteration", "deadline")),
    "elasticflow": partial(_deadline_rows, columns=("submit_time", "iteration", "ddl")),
    "philly": _philly,
    "chronus": _chronus,
    "mirage": _mirage,
}
