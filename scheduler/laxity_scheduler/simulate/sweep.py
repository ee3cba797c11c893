"""Many simulations on all cores: every policy with every cluster size, error and seed."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from itertools import product
from multiprocessing import get_context
from pathlib import Path

from laxity_scheduler.simulate.bound import bound_of
from laxity_scheduler.simulate.refusals import false_refusals
from laxity_scheduler.simulate.report import Figures, report
from laxity_scheduler.simulate.run import Setting, simulate
from laxity_scheduler.simulate.tables import Tables, load_tables
from laxity_scheduler.simulate.traces import Format, Trace, load


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
        tables: Tables = {} if self.throughputs is None else load_tables(self.throughputs)
        return load(
            self.path, self.format, tables=tables, from_at=self.from_at, until_at=self.until_at
        )


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


def one(source: Source, setting: Setting, *, bound: bool = False) -> Figures:
    """Load, simulate, report."""
    return _reported(source.load(), source, setting, bound=bound)


def _reported(trace: Trace, source: Source, setting: Setting, *, bound: bool) -> Figures:
    if source.most_jobs:
        from laxity_scheduler.simulate.generate import closed_batch

        trace = closed_batch(trace, jobs=source.most_jobs, seed=setting.seed)
    run = simulate(trace, setting)
    figures = report(run)
    figures["false_refusals"] = false_refusals(run, trace, setting)
    figures["bad_lines"] = len(trace.bad_lines)
    figures["first_bad_line"] = str(trace.bad_lines[0]) if trace.bad_lines else None
    share, used = (bound_of(trace, gpus=setting.gpus) if bound else None) or (None, None)
    figures["deadline_bound"], figures["deadline_bound_by"] = share, used
    return figures


_LOADED: dict[Source, Trace] = {}  # per worker process


def _work(source: Source, setting: Setting, bound: bool) -> Figures:  # noqa: FBT001 - a pool calls it
    if source not in _LOADED:
        _LOADED.clear()
        _LOADED[source] = source.load()
    return _reported(_LOADED[source], source, setting, bound=bound)


def sweep(
    source: Source,
    many: Sequence[Setting],
    *,
    bound: bool = False,
    processes: int | None = None,
    done: Callable[[Figures], None] = lambda _figures: None,
) -> list[Figures]:
    """A report for each setting, in their order; `done` is told each one as it comes."""
    workers = min(processes or os.cpu_count() or 1, len(many))
    if workers <= 1:
        return [_told(_work(source, setting, bound), done) for setting in many]
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        futures = [pool.submit(_work, source, setting, bound) for setting in many]
        for future in as_completed(futures):
            done(future.result())
        return [future.result() for future in futures]


def _told(figures: Figures, done: Callable[[Figures], None]) -> Figures:
    done(figures)
    return figures


def groups(reports: Iterable[Figures]) -> Iterator[tuple[dict[str, object], list[Figures]]]:
    """Reports that differ in their seed alone."""
    keys = ("policy", "trace", "nodes", "error", "admission")
    found: dict[tuple[object, ...], list[Figures]] = {}
    for one_report in reports:
        found.setdefault(tuple(one_report.get(key) for key in keys), []).append(one_report)
    for values, members in found.items():
        yield dict(zip(keys, values, strict=True)), members
