"""How fast simulations and decisions are, in CPU time of one core, without loading.

The rigid baseline is a plain event loop of a few lines (a heap of ends, a sorted queue), run in the
same process. Traces are those under LAXITY_TRACES, else generated ones of the same size. A cold
decision finds nothing promised and nothing read; a warm one finds 2 % of the jobs changed.
"""

import gc
import os
import resource
import time
from bisect import insort
from collections.abc import Callable, Sequence
from dataclasses import replace
from heapq import heappop, heappush
from pathlib import Path
from typing import Final, TypedDict

import numpy as np

from laxity_profiler.estimate import Workload
from laxity_scheduler.engine import Policy
from laxity_scheduler.simulate.catalogue import decide_of
from laxity_scheduler.simulate.costs import costs
from laxity_scheduler.simulate.generate import Mix, generate
from laxity_scheduler.simulate.run import Setting, simulate
from laxity_scheduler.simulate.tables import load_tables
from laxity_scheduler.simulate.traces import Trace, load
from laxity_scheduler.simulate.truth import Belief, Truth
from laxity_scheduler.state import ClusterState, Job, Node

KINDS: Final = ("simulator", "decision")
WARM_DECISIONS: Final = 40


class Figure(TypedDict):
    """One measured figure; `ratio` is to the baseline, None without one."""

    value: float
    unit: str
    baseline: float | None
    ratio: float | None


def measure(kinds: Sequence[str], *, quick: bool = False) -> dict[str, Figure]:
    """All figures of these kinds."""
    found: dict[str, Figure] = {}
    if "simulator" in kinds:
        found |= _simulator(quick=quick)
    if "decision" in kinds:
        found |= _decision(quick=quick)
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0
    return found | {"peak_memory_mb": _figure(peak_mb, "MB")}


def _figure(value: float, unit: str, baseline: float | None = None) -> Figure:
    ratio = value / baseline if baseline else None
    return {"value": value, "unit": unit, "baseline": baseline, "ratio": ratio}


def _simulator(*, quick: bool) -> dict[str, Figure]:
    rigid, elastic = _rigid_trace(quick=quick), _elastic_trace()
    plain = best(lambda: plain_loop(rigid, 512))
    figures = {}
    for name, pooled in (("rigid_pooled_jobs_per_s", True), ("rigid_jobs_per_s", False)):
        setting = Setting("sjf", 64, 8, pooled=pooled)
        run_s = min(simulate(rigid, setting).cpu_s for _ in range(3))
        figures[name] = _figure(len(rigid.jobs) / run_s, "jobs/s", plain)
    setting = Setting("elasticflow", 64, 8, pooled=True, cost_model="elasticflow")
    simulate(replace(elastic, jobs=elastic.jobs[:20]), setting)  # compiles
    run_s = min(simulate(elastic, setting).cpu_s for _ in range(3))
    plain = best(lambda: plain_loop(elastic, 512))
    figures["elastic_jobs_per_s"] = _figure(len(elastic.jobs) / run_s, "jobs/s", plain)
    some = replace(rigid, jobs=rigid.jobs[: 500 if quick else 3_000])
    run = simulate(some, Setting("sjf", 64, 8, literal_cycle=True))
    figures["literal_jobs_per_s"] = _figure(len(some.jobs) / run.cpu_s, "jobs/s")
    return figures


def best(rate: Callable[[], float], times: int = 3) -> float:
    return max(rate() for _ in range(times))


def plain_loop(trace: Trace, gpus: int) -> float:
    """Jobs per CPU second of shortest job first with a sorted list: the baseline, not the product."""
    began = time.process_time()
    free, arrived = gpus, 0
    ends: list[tuple[float, int]] = []
    queue: list[tuple[float, int]] = []
    jobs = trace.jobs
    forever = float("inf")
    while True:
        due_at = jobs[arrived].submitted_at if arrived < len(jobs) else forever
        now = min(due_at, ends[0][0] if ends else forever)
        if now == forever:
            break
        while ends and ends[0][0] <= now:
            free += heappop(ends)[1]
        while arrived < len(jobs) and jobs[arrived].submitted_at <= now:
            if jobs[arrived].gpus <= gpus:
                insort(queue, (jobs[arrived].duration_s, arrived))
            arrived += 1
        place = 0
        while place < len(queue) and free:
            length_s, number = queue[place]
            if jobs[number].gpus <= free:
                free -= jobs[number].gpus
                heappush(ends, (now + length_s, jobs[number].gpus))
                del queue[place]
            else:
                place += 1
    return len(jobs) / (time.process_time() - began)


def _folder() -> Path | None:
    named = os.environ.get("LAXITY_TRACES")
    return Path(named) if named and Path(named).is_dir() else None


def _rigid_trace(*, quick: bool) -> Trace:
    folder = _folder()
    if folder is not None and (folder / "philly" / "philly.csv").is_file():
        trace = load(folder / "philly" / "philly.csv", "philly")
    else:
        mix = Mix(jobs=82_247, jobs_per_hour=31.4, median_s=900.0, sigma=2.3, levels=(1, 2, 4, 8))
        trace = generate(mix, seed=0)
    return replace(trace, jobs=trace.jobs[: len(trace.jobs) // 10]) if quick else trace


def _elastic_trace() -> Trace:
    folder = _folder()
    if folder is not None and (folder / "itp" / "cluster01.csv").is_file():
        tables = load_tables(folder / "elasticflow" / "throughputs_A100")
        return load(folder / "itp" / "cluster01.csv", "itp", tables=tables)
    return generate(Mix(jobs=1_595, jobs_per_hour=2.3, tightest=0.5, loosest=1.5), seed=0)


def _decision(*, quick: bool) -> dict[str, Figure]:
    sizes = ((1_000, 500),) if quick else ((1_000, 500), (10_000, 5_000))
    figures: dict[str, Figure] = {}
    for name in ("elasticflow", "qos"):
        for jobs, nodes in sizes:
            cold_ms, warm_ms = decisions(name, jobs=jobs, nodes=nodes)
            prefix = "decision" if name == "elasticflow" else f"decision_{name}"
            suffix = "" if jobs == sizes[-1][0] else f"_{jobs}_jobs"
            p99 = float(np.quantile(warm_ms, 0.99))
            figures[f"{prefix}_cold{suffix}_ms"] = _figure(cold_ms, "ms")
            figures[f"{prefix}_warm_p99{suffix}_ms"] = _figure(p99, "ms")
            figures[f"{prefix}_warm_p50{suffix}_ms"] = _figure(float(np.median(warm_ms)), "ms")
    if not quick:
        cold_ms, _ = decisions("elasticflow", jobs=100_000, nodes=50_000, warm=0)
        figures["decision_100000_jobs_ms"] = _figure(cold_ms, "ms")
    return figures


def decisions(
    name: str, *, jobs: int, nodes: int, warm: int = WARM_DECISIONS
) -> tuple[float, list[float]]:
    """Milliseconds of a cold decision (decide and check), and of warm ones."""
    truths, state = crowd(jobs=jobs, nodes=nodes, seed=0)
    model = costs("live", cluster_gpus=state.total_gpus)
    predictor = Belief(truths, model)
    decide = decide_of(name)
    small_truths, small = crowd(jobs=40, nodes=10, seed=1)
    _timed(decide, small, Belief(small_truths, model))  # compiles
    gc.collect()
    gc.freeze()
    plan_s, state = _timed(decide, state, predictor)
    took = []
    draw = np.random.default_rng(2)
    for _ in range(warm):
        state = _later(state, draw)
        gc.collect()
        once_s, _ = _timed(decide, state, predictor)
        took.append(1e3 * once_s)
    gc.unfreeze()
    return 1e3 * plan_s, took


def _timed(decide: Policy, state: ClusterState, predictor: Belief) -> tuple[float, ClusterState]:
    gc.disable()
    began = time.process_time()
    plan = decide(state, predictor)
    plan.check(state)
    took_s = time.process_time() - began
    gc.enable()
    return took_s, plan.apply(state)


def _later(state: ClusterState, draw: np.random.Generator) -> ClusterState:
    """Some seconds on: 2 % of the jobs have done an epoch."""
    chosen = set(draw.choice(len(state.jobs), size=max(1, len(state.jobs) // 50)).tolist())
    rows = tuple(
        [
            _epoch_on(job, state.now) if row in chosen and job.workers else job
            for row, job in enumerate(state.jobs)
        ]
    )
    return replace(state, now=state.now + 5.0, jobs=rows)


def _epoch_on(job: Job, now: float) -> Job:
    done = min(job.workload.epochs - 1, job.progress.epochs_done + 1)
    progress = replace(job.progress, epochs_done=done)
    return replace(job, progress=progress, epoch_started_at=now, formed=job.workers, since=now)


def crowd(*, jobs: int, nodes: int, seed: int) -> tuple[list[Truth], ClusterState]:
    """A snapshot with so many queued jobs of 40 models, on nodes of 8 GPUs; half have deadlines."""
    draw = np.random.default_rng(seed)
    widths = (1, 2, 4, 8)
    kinds = [
        Truth(
            id=f"model-{number}",
            number=number,
            submitted_at=0.0,
            epochs=20,
            widths=widths,
            epoch_s={width: 600.0 / width**0.9 for width in widths},
            workload=Workload(f"model-{number}", 20),
        )
        for number in range(40)
    ]
    due = draw.uniform(2_000.0, 40_000.0, size=jobs)
    hard = draw.random(jobs) < 0.5
    rows = tuple(
        [
            Job(
                id=f"default/job-{number:06d}",
                workload=kinds[number % 40].workload,
                submitted_at=0.0,
                deadline_at=float(due[number]) if hard[number] else float("inf"),
                service_class="hard" if hard[number] else "best_effort",
                widths=widths,
            )
            for number in range(jobs)
        ]
    )
    machines = tuple([Node(f"node-{number:05d}", 8, 8) for number in range(nodes)])
    return kinds, ClusterState(now=0.0, nodes=machines, jobs=rows)
