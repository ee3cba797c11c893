"""Many simulations on all cores: every policy with every cluster size, error and seed."""

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import product
from multiprocessing import get_context
from typing import Any

from laxity_lab.simulate.bound import compute_bound
from laxity_lab.simulate.process_pool import run_calls
from laxity_lab.simulate.progress import count_into
from laxity_lab.simulate.refusals import false_refusals
from laxity_lab.simulate.report import Figures, report, soft_value_ratio
from laxity_lab.simulate.run import Setting, simulate
from laxity_lab.traces.cases import Batch, Case, Source


def combine(
    source: Source,
    first: Setting,
    *,
    batch: int,
    policies: Sequence[str],
    nodes: Sequence[int],
    errors: Sequence[float],
    seeds: Iterable[int],
) -> list[tuple[Case, Setting]]:
    """All combinations, in a fixed order; `batch`: so many jobs, drawn by the seed, 0: all."""
    return [
        (
            Batch(source, batch, seed) if batch else source,
            replace(first, policy=policy, nodes=size, error=error, seed=seed),
        )
        for policy, size, error, seed in product(policies, nodes, errors, seeds)
    ]


_COUNTS: list[Any] = []  # of this process: what all count into, and who looks at it


def _begin(counts: Any, look: Callable[[], None] = lambda: None) -> None:
    _COUNTS[:] = [counts, look]


def _simulate_case(case: Case, setting: Setting, bound: bool) -> Figures:  # noqa: FBT001 - a pool calls it
    trace = case.load()
    counts, look = _COUNTS
    run = simulate(trace, setting, ended=count_into(counts, len(trace.jobs), look))
    figures = report(run)
    figures["false_refusals"] = false_refusals(run, trace, setting)
    figures["soft_value_ratio"] = soft_value_ratio(run, trace.jobs)
    figures["bad_lines"] = len(trace.bad_lines)
    figures["first_bad_line"] = str(trace.bad_lines[0]) if trace.bad_lines else None
    share, used = (compute_bound(trace, gpus=setting.gpus) if bound else None) or (None, None)
    figures["deadline_bound"], figures["deadline_bound_by"] = share, used
    return figures


def sweep(
    runs: Sequence[tuple[Case, Setting]],
    *,
    bound: bool = False,
    processes: int | None = None,
    done: Callable[[Figures], None] = lambda _figures: None,
    ended: Callable[[int, int], None] = lambda _ended, _jobs: None,
) -> list[Figures]:
    """A report for each run, in their order; `done` is told each one as it comes.

    `ended` is told how many jobs have ended in all runs so far, and how many one run has.
    """
    counts, reports = get_context("spawn").Array("q", 2), dict[int, Figures]()
    with closing(
        run_calls(
            _simulate_case,
            [(case, setting, bound) for case, setting in runs],
            processes or os.cpu_count() or 1,
            begin=_begin,
            given=(counts,),
            look=lambda: ended(counts[0], counts[1]),
        )
    ) as results:
        for place, figures in results:
            reports[place] = figures
            done(figures)
    return [reports[place] for place in range(len(runs))]
