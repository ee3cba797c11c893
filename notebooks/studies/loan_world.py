"""The world of loans: queueing training jobs beside an inference service (Aryl, 4.8).

Jobs are Philly's busiest 30 days, compressed to 15; a sample of them keeps the load, since the
nodes are as many as give the load that is asked for. Inference has 520 nodes to 443 of training, and
the shipped load. As in the paper 5 % of the jobs are elastic and have 36 % of the GPU time, and 21 %
may use lent nodes. Our own: an elastic job doubles its workers at most, its curve is one of the
measured tables, it may use lent nodes, and the GPUs of all nodes are alike.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final

import numpy as np

from laxity_lab.simulate.run import Setting, nodes_of, run_cycles
from laxity_lab.traces.throughput_tables import ThroughputTable, load_tables
from laxity_lab.traces.trace_lookup import SAMPLES
from laxity_lab.traces.traces import Trace
from laxity_lab.world.outcome import Run
from laxity_lab.world.trace_truths import ground_truths
from laxity_scheduler.inflight import with_follow_ups
from laxity_scheduler.model.cluster import NodeSet
from laxity_scheduler.model.job import DAY_S
from laxity_scheduler.plan import Policy
from laxity_scheduler.policies.aryl import decide
from laxity_scheduler.simulated.ground_truth import GroundTruth

WINDOW_S, COMPRESSION = 30 * DAY_S, 2.0
GPUS_PER_NODE: Final = 8
SMALL_LOAD: Final = 12.0  # the sample is of one day, and its longest jobs last a week
INFERENCE_PER_TRAINING: Final = 520 / 443
ELASTIC_JOBS, ELASTIC_GPU_TIME, FUNGIBLE_JOBS = 0.05, 0.36, 0.21
EPOCH_S: Final = 120.0  # widths change, and jobs stop, at the end of an epoch
RESTART_S: Final = 63.0  # what the paper's preemptions cost
TRAINING: Final = "training nodes"  # the set of nodes of jobs that may not use lent ones
LOAD: Final = SAMPLES / "servegen" / "rates.csv"
MOVES: Final = {  # what is lent, and what scales
    "neither": (False, False),
    "loans": (True, False),
    "scaling": (False, True),
    "both": (True, True),
}


@dataclass(frozen=True, slots=True)
class LoanSize:
    """What is simulated: so many of the trace's jobs (0: all) at this load of the training nodes."""

    jobs: int
    load: float
    seed: int = 0


@dataclass(frozen=True, slots=True)
class LoanWorld:
    """Jobs, and how many nodes they and inference have."""

    jobs: Sequence[GroundTruth]
    training_nodes: int
    inference_nodes: int


def busiest_jobs(trace: Trace, count: int, seed: int) -> Trace:
    """The busiest 30 days, compressed to 15; a sample of so many jobs, 0: all of them."""
    submitted_at = np.array([job.submitted_at for job in trace.jobs])
    ends = np.searchsorted(submitted_at, submitted_at + WINDOW_S)
    first = int(np.argmax(ends - np.arange(len(submitted_at))))
    jobs = list(trace.jobs[first : int(ends[first])])
    if 0 < count < len(jobs):
        chosen = sorted(Random(seed).sample(range(len(jobs)), count))  # noqa: S311 - no secret
        jobs = [jobs[place] for place in chosen]
    begin = jobs[0].submitted_at
    return replace(
        trace,
        jobs=tuple(
            replace(job, submitted_at=(job.submitted_at - begin) / COMPRESSION) for job in jobs
        ),
    )


def make_world(trace: Trace, size: LoanSize) -> LoanWorld:
    """Jobs of the paper's kinds, and the nodes that give the load asked for."""
    jobs = busiest_jobs(trace, size.jobs, size.seed)
    work = sum(job.gpus * job.duration_s for job in jobs.jobs)
    span_s = jobs.jobs[-1].submitted_at - jobs.jobs[0].submitted_at
    widest = max(-(-job.gpus // GPUS_PER_NODE) for job in jobs.jobs)
    nodes = max(widest, round(work / (size.load * span_s * GPUS_PER_NODE)))
    truths = ground_truths(jobs, elastic=False, gpus_per_node=GPUS_PER_NODE, pooled=False)
    return LoanWorld(
        _with_kinds([_with_short_epochs(job) for job in truths], size.seed),
        nodes,
        max(1, round(nodes * INFERENCE_PER_TRAINING)),
    )


def _with_short_epochs(job: GroundTruth) -> GroundTruth:
    """The job with epochs of `EPOCH_S`, however long it is."""
    epochs, width = max(1, round(job.ideal_s / EPOCH_S)), job.widths[0]
    return replace(
        job,
        epochs=epochs,
        epoch_s={width: job.ideal_s / epochs},
        workload=replace(job.workload, epochs=epochs),
    )


def _with_kinds(jobs: Sequence[GroundTruth], seed: int) -> list[GroundTruth]:
    """Some elastic, some fungible, all others on training nodes only."""
    draw = Random(f"kinds of {seed}")  # noqa: S311 - no secret
    tables = list(load_tables(SAMPLES / "elasticflow" / "throughputs_A100").values())
    curves = {
        gpus: [table for table in tables if gpus in table.levels and 2 * gpus in table.levels]
        for gpus in {job.asked_gpus for job in jobs}
    }
    elastic = _choose_elastic(jobs, {gpus for gpus, some in curves.items() if some}, draw)
    made = []
    for job in jobs:
        fungible = draw.random() < (FUNGIBLE_JOBS - ELASTIC_JOBS) / (1.0 - ELASTIC_JOBS)
        if job.id in elastic:
            made.append(_make_elastic(job, draw.choice(curves[job.asked_gpus])))
        else:
            made.append(job if fungible else replace(job, eligible=TRAINING))
    return made


def _choose_elastic(jobs: Sequence[GroundTruth], gpus: set[int], draw: Random) -> set[str]:
    """Jobs of these GPUs: random ones while their GPU time is too small, then the smallest."""
    some = [job for job in jobs if job.asked_gpus in gpus]
    draw.shuffle(some)
    by_size = sorted(some, key=lambda job: (job.asked_gpus * job.ideal_s, job.id))
    count = min(len(some), round(ELASTIC_JOBS * len(jobs)))
    left = ELASTIC_GPU_TIME * sum(job.asked_gpus * job.ideal_s for job in jobs)
    chosen: set[str] = set()
    large = {job.id for job in by_size[len(some) - count :]}
    for job in [job for job in some if job.id in large]:
        if len(chosen) < count and job.asked_gpus * job.ideal_s <= left:
            chosen.add(job.id)
            left -= job.asked_gpus * job.ideal_s
    small = [job.id for job in by_size if job.id not in chosen]
    return chosen | set(small[: count - len(chosen)])


def _make_elastic(job: GroundTruth, table: ThroughputTable) -> GroundTruth:
    """The job with twice its workers as another width."""
    least = job.widths[0]
    one_s = job.epoch_s[least]
    faster = table.speed(2 * job.asked_gpus) / table.speed(job.asked_gpus)
    return replace(
        job, widths=(least, 2 * least), epoch_s={least: one_s, 2 * least: one_s / faster}
    )


def run_world(
    world: LoanWorld,
    *,
    lends: bool,
    scales: bool,
    policy: Policy = decide,
    finish: Callable[[Policy], Policy] = with_follow_ups,
) -> Run:
    """By the very `decide` that runs live, if by no other."""
    jobs = world.jobs if scales else [replace(job, widths=job.widths[:1]) for job in world.jobs]
    setting = Setting(
        "aryl",
        world.training_nodes,
        GPUS_PER_NODE,
        restart_s=RESTART_S,
        inference=str(LOAD),
        inference_nodes=world.inference_nodes,
        lends=lends,
    )
    training = nodes_of(world.training_nodes, GPUS_PER_NODE, pooled=False)
    sets = {TRAINING: NodeSet(frozenset(name for name, _ in training), "its GPUs are too small")}
    return run_cycles("philly", setting, jobs, policy=policy, sets=sets, finish=finish)


def mean_usage(run: Run) -> float:
    """Share of all GPUs that training holds or inference uses, as long as jobs are submitted."""
    submitted_at = run.column("submitted_at")
    begin, end = float(submitted_at[0]), float(submitted_at[-1])
    changed_at = np.array([instant for instant, _ in run.busy])
    gpus = np.array([held for _, held in run.busy])
    steps_s = np.diff(np.clip(np.append(changed_at, end), begin, end))
    loans = run.loans
    if loans is None or end <= begin:
        return float("nan")
    used = float((steps_s * gpus).sum()) / (end - begin) + loans.inference_gpu_s / max(
        1e-9, loans.span_s
    )
    return used / (run.gpus + loans.fleet_gpus)
