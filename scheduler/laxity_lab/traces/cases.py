"""Whose jobs are simulated: a file's, a closed batch of them, or made ones.

A case is a small value, so that it travels to another process; `load` gives its jobs.
"""

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Final, Protocol

from laxity.human_time import count_noun
from laxity_lab.traces.generate import Mix, draw_closed_batch, generate
from laxity_lab.traces.throughput_tables import Tables, load_tables
from laxity_lab.traces.trace_lookup import tables_beside
from laxity_lab.traces.traces import Format, Trace, TraceError, load

_YEAR_2000: Final = 946_684_800.0
_YEAR_3000: Final = 32_503_680_000.0


class Case(Protocol):
    """Anything that gives jobs."""

    def load(self) -> Trace: ...


@dataclass(frozen=True, slots=True)
class Source:
    """A trace in a file, or those of its jobs that were submitted from one instant to another.

    `throughputs`: a folder of tables; those that lie beside the trace if none is named.
    """

    path: Path
    format: Format
    throughputs: Path | None = None
    from_at: float = -math.inf
    until_at: float = math.inf

    def load(self) -> Trace:
        """The jobs that are asked for. TraceError if there are none: they would make empty figures."""
        return _read(self)


@lru_cache(maxsize=2)
def _read(source: Source) -> Trace:
    """A trace, read once per process."""
    path, kind = source.path, source.format
    folder = source.throughputs or tables_beside(path, kind)
    tables: Tables = {} if folder is None else load_tables(folder)
    trace = load(path, kind, tables=tables, from_at=source.from_at, until_at=source.until_at)
    if not trace.jobs:
        raise TraceError(_why_none(source, load(path, kind, tables=tables)))
    return trace


def _why_none(source: Source, whole: Trace) -> str:
    name = source.path.name
    if whole.jobs:
        first, last = whole.jobs[0].submitted_at, whole.jobs[-1].submitted_at
        return (
            f"none of the {len(whole.jobs):,} jobs of {name} was submitted between "
            f"{instant_text(source.from_at)} and {instant_text(source.until_at)}: the first was at "
            f"{instant_text(first)}, the last at {instant_text(last)}"
        )
    if whole.bad_lines:
        return (
            f"{name} has no job that can be used: {count_noun(len(whole.bad_lines), 'line')} "
            f"set aside; the first, {whole.bad_lines[0]}"
        )
    return f"{name} has no jobs: nothing stands below its heading"


def instant_text(at: float) -> str:
    """An instant as --from and --until take it: a date where the trace has dates, else seconds."""
    if not math.isfinite(at):
        return "the beginning" if at < 0 else "the end"
    dated = _YEAR_2000 <= at < _YEAR_3000
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%S}" if dated else f"{at:.15g} s"


@dataclass(frozen=True, slots=True)
class Batch:
    """So many jobs drawn from a trace and submitted within an hour."""

    source: Source
    jobs: int
    seed: int

    def load(self) -> Trace:
        return draw_closed_batch(self.source.load(), jobs=self.jobs, seed=self.seed)


@dataclass(frozen=True, slots=True)
class Made:
    """Jobs drawn from stated distributions."""

    mix: Mix
    seed: int

    def load(self) -> Trace:
        return generate(self.mix, seed=self.seed)
