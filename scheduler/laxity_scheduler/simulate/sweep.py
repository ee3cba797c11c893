"""Many simulations on all cores: every policy with every cluster size, error and seed."""

import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

from laxity.human_time import count_noun
from laxity_scheduler.simulate.bound import compute_bound
from laxity_scheduler.simulate.process_pool import process_pool
from laxity_scheduler.simulate.progress import ProgressCounter
from laxity_scheduler.simulate.refusals import false_refusals
from laxity_scheduler.simulate.report import Figures, report, soft_value_ratio
from laxity_scheduler.simulate.run import Setting, simulate
from laxity_scheduler.simulate.throughput_tables import Tables, load_tables
from laxity_scheduler.simulate.traces import Format, Trace, TraceError, load

LOOK_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class Source:
    """Where a trace comes from, and which part of it."""

    path: Path
    format: Format
    throughputs: Path | None = None
    from_at: float = -float("inf")
    until_at: float = float("inf")
    most_jobs: int = 0  # a sample of so many, by seed, submitted within an hour; 0: the trace

    def load(self) -> Trace:
        """The jobs that are asked for. TraceError if there are none: they would make empty figures."""
        tables: Tables = {} if self.throughputs is None else load_tables(self.throughputs)
        trace = load(
            self.path, self.format, tables=tables, from_at=self.from_at, until_at=self.until_at
        )
        if not trace.jobs:
            raise TraceError(self._why_none(load(self.path, self.format, tables=tables)))
        return trace

    def _why_none(self, whole: Trace) -> str:
        if whole.jobs:
            first, last = whole.jobs[0].submitted_at, whole.jobs[-1].submitted_at
            return (
                f"none of the {len(whole.jobs):,} jobs of {self.path.name} was submitted between "
                f"{instant_text(self.from_at)} and {instant_text(self.until_at)}: the first was at "
                f"{instant_text(first)}, the last at {instant_text(last)}"
            )
        if whole.bad_lines:
            return (
                f"{self.path.name} has no job that can be used: {count_noun(len(whole.bad_lines), 'line')} "
                f"set aside; the first, {whole.bad_lines[0]}"
            )
        return f"{self.path.name} has no jobs: nothing stands below its heading"


def settings(
    first: Setting,
    *,
    policies: Sequence[str],
    nodes: Sequence[int],
    errors: Sequence[float],
    seeds: Iterable[int],
) -> list[Setting]:
    """All combinations, in a fixed order."""
    return [
        replace(first, policy=policy, nodes=size, error=error, seed=seed)
        for policy, size, error, seed in product(policies, nodes, errors, seeds)
    ]


def instant_text(at: float) -> str:
    """An instant as --from and --until take it: a date where the trace has dates, else seconds."""
    if not math.isfinite(at):
        return "the beginning" if at < 0 else "the end"
    dated = _YEAR_2000 <= at < _YEAR_3000
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%S}" if dated else f"{at:.15g} s"


_YEAR_2000: Final = 946_684_800.0
_YEAR_3000: Final = 32_503_680_000.0


@lru_cache(maxsize=2)
def load_whole(source: Source) -> Trace:
    """A trace, read once per process."""
    return source.load()


def simulate_case(
    source: Source, setting: Setting, *, bound: bool, tally: ProgressCounter
) -> Figures:
    trace = load_whole(source)
    if source.most_jobs:
        from laxity_scheduler.simulate.generate import draw_closed_batch

        trace = draw_closed_batch(trace, jobs=source.most_jobs, seed=setting.seed)
    run = simulate(trace, setting, ended=tally.run(len(trace.jobs)))
    figures = report(run)
    figures["false_refusals"] = false_refusals(run, trace, setting)
    figures["soft_value_ratio"] = soft_value_ratio(run, trace.jobs)
    figures["bad_lines"] = len(trace.bad_lines)
    figures["first_bad_line"] = str(trace.bad_lines[0]) if trace.bad_lines else None
    share, used = (compute_bound(trace, gpus=setting.gpus) if bound else None) or (None, None)
    figures["deadline_bound"], figures["deadline_bound_by"] = share, used
    return figures


_TALLY: list[ProgressCounter] = []  # of this worker process, on the counts that all share


def _begin(counts: Any) -> None:
    """In a worker process."""
    _TALLY[:] = [ProgressCounter(counts, counts.get_lock())]


def _work(source: Source, setting: Setting, bound: bool) -> Figures:  # noqa: FBT001 - a pool calls it
    return simulate_case(source, setting, bound=bound, tally=_TALLY[0])


def sweep(
    source: Source,
    many: Sequence[Setting],
    *,
    bound: bool = False,
    processes: int | None = None,
    done: Callable[[Figures], None] = lambda _figures: None,
    ended: Callable[[int, int], None] = lambda _ended, _jobs: None,
) -> list[Figures]:
    """A report for each setting, in their order; `done` is told each one as it comes.

    `ended` is told how many jobs have ended in all runs so far, and how many one run has.
    """
    workers = min(processes or os.cpu_count() or 1, len(many))
    if workers <= 1:
        tally, reports = ProgressCounter(told=ended), []
        for setting in many:
            reports.append(simulate_case(source, setting, bound=bound, tally=tally))
            done(reports[-1])
        return reports
    counts = get_context("spawn").Array("q", 2)
    calls = [(source, setting, bound) for setting in many]
    with process_pool(workers, _work, calls, begin=_begin, given=(counts,)) as futures:
        pending = set(futures)
        while pending:
            over, pending = wait(pending, timeout=LOOK_S, return_when=FIRST_COMPLETED)
            for future in over:
                done(future.result())
            ended(counts[0], counts[1])
        return [future.result() for future in futures]


def groups(reports: Iterable[Figures]) -> Iterator[tuple[dict[str, object], list[Figures]]]:
    """Reports that differ in their seed alone."""
    keys = ("policy", "trace", "nodes", "error", "admission")
    members_by_key: dict[tuple[object, ...], list[Figures]] = {}
    for one_report in reports:
        members_by_key.setdefault(tuple(one_report.get(key) for key in keys), []).append(one_report)
    for values, members in members_by_key.items():
        yield dict(zip(keys, values, strict=True)), members
