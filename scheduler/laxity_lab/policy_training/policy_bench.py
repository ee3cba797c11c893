"""The learned policy against its teachers and SRTF: mean completion times on the same jobs.

Each ratio is of mean JCTs over seeds: below 1 the learned policy is faster. Its interval is a
bootstrap over seeds, as pairs (2,000 draws, 95 %).
"""

import time
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from laxity_lab.bench_results import IntervalMetric, interval_figure
from laxity_lab.bootstrap import bootstrap_interval, draw_blocks
from laxity_lab.policy_training.made_jobs import ArrivalMix, make_trace
from laxity_lab.simulate.run import Setting, open_world, simulate, truths_of
from laxity_lab.traces.throughput_tables import Tables
from laxity_lab.traces.traces import Trace
from laxity_lab.world.noisy_predictor import NoisyPredictor
from laxity_profiler.estimate import Floats
from laxity_scheduler.frame.arrays import Ints
from laxity_scheduler.policies.registry import find

RIVALS: Final = ("drf", "srtf", "optimus")
GPUS_PER_NODE: Final = 8
MANY_JOBS: Final = 1_000  # in the decision that is timed
TIMES: Final = 15


def make_traces(tables: Tables, mix: ArrivalMix, seeds: Sequence[int]) -> list[Trace]:
    return [make_trace(tables, mix, seed=seed) for seed in seeds]


def compare_policies(
    traces: Sequence[Trace],
    nodes: int,
    learned: str,
    *,
    tell: Callable[[int], None] = lambda _: None,
) -> dict[str, IntervalMetric]:
    """jct_vs_RIVAL: mean JCT of `learned` / the rival's; `baseline` is the rival's, in seconds."""
    jct_s = {}
    for name in (learned, *RIVALS):
        runs = []
        for trace in traces:
            runs.append(mean_jct_s(trace, name, nodes))
            tell(1)
        jct_s[name] = np.array(runs)
    return {f"jct_vs_{rival}": _ratio(jct_s[learned], jct_s[rival]) for rival in RIVALS}


def mean_jct_s(trace: Trace, policy: str, nodes: int) -> float:
    """Over all jobs. ValueError if one never ended."""
    run = simulate(trace, Setting(policy, nodes, GPUS_PER_NODE, cost_model="live"))
    mean_s = float((run.column("finished_at") - run.column("submitted_at")).mean())
    if not np.isfinite(mean_s):
        message = (
            f"{trace.name}: under {policy} some jobs never end on {run.gpus} GPUs, as where the least "
            "width of a table is wider: give more --nodes"
        )
        raise ValueError(message)
    return mean_s


def _ratio(ours_s: Floats, theirs_s: Floats) -> IntervalMetric:
    def ratios(rows: Ints) -> Floats:
        ratio: Floats = ours_s[rows].mean(1) / theirs_s[rows].mean(1)
        return ratio

    count = len(ours_s)
    between = bootstrap_interval(ratios, draw_blocks(count)) if count > 1 else None
    value, baseline = float(ours_s.mean() / theirs_s.mean()), float(theirs_s.mean())
    return interval_figure(value, "x", baseline, between=between)


def time_decision(tables: Tables, learned: str) -> IntervalMetric:
    """Median CPU milliseconds of a decision about 1,000 waiting jobs; `baseline`: Optimus's."""
    ours, theirs = (_decision_ms(tables, name) for name in (learned, "optimus"))
    return interval_figure(ours, "ms", theirs)


def _decision_ms(tables: Tables, policy: str) -> float:
    gpus = 2 * MANY_JOBS
    trace = make_trace(tables, ArrivalMix(MANY_JOBS, gpus, 1e9), seed=0)  # all at once
    setting = Setting(policy, gpus // GPUS_PER_NODE, GPUS_PER_NODE, cost_model="live")
    jobs = truths_of(trace, setting)
    world = open_world(setting, jobs)
    while not world.all_arrived:
        world.advance()
    state, predictor = world.observe(), NoisyPredictor(jobs, world.costs)
    decide = find(policy).policy()
    decide(state, predictor)
    took_ms = []
    for _ in range(TIMES):
        began = time.process_time()
        decide(state, predictor)
        took_ms.append(1e3 * (time.process_time() - began))
    return float(np.median(took_ms))
