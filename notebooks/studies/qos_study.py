"""The QoS framework's claims: +26 % deadlines met on a scarce cluster, 100 % on a sufficient one.

Its jobs, cluster and baseline are not public; +26 % may be a ratio or points. Ours, after
algorithms.md 3.6: Poisson arrivals, deadlines submit + U(1.2, 3) x the run time at the width asked for,
1.75 times the work that the cluster can do (scarce) or 0.6 times (sufficient); stops and starts cost
what `live` says, whoever starts, FIFO as well; predictions are off by 10 %. The default Kubernetes scheduler is FIFO at the width
asked for, passing over what does not fit. Beside them the bound, and the framework on exact
predictions, which tells what of a gap is due to the error.

A mean load of 0.6 does not make a cluster sufficient: arrivals come in bursts. Sufficient is one on
which all jobs run at once as they were asked for, whoever schedules: `ample` has the same jobs on the
fewest nodes on which nobody ever waits under FIFO, for each of the seeds. And what is published
refuses nobody: `qos_open_to_all` is the framework that serves also those it cannot promise, asked
where the paper says 100 %.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Final

from laxity_lab.simulate.run import Setting
from laxity_lab.traces.cases import Made
from laxity_lab.traces.generate import Mix, generate
from laxity_lab.traces.traces import Trace
from studies.datasets import Datasets
from studies.study_rows import Trial, linear_program_trial, simulation_trial

OTHERS: Final = ("fifo", "edf", "edf_elastic", "elasticflow")
OURS: Final = {"scarce": ("qos",)} | dict.fromkeys(
    ("sufficient", "ample"), ("qos", "qos_open_to_all")
)
LOADS: Final = {"scarce": 1.75, "sufficient": 0.6, "ample": 0.6}
NODES, GPUS_PER_NODE = 2, 8
AMPLE_NODES: Final = 4  # for seeds 0 to 9; on 3 somebody waits with seven of them
ERROR: Final = 0.1
MEASURED_JOBS: Final = 2_000  # from which a mix's work per job is taken


def trials(datasets: Datasets, seeds: Sequence[int]) -> list[Trial]:
    """Each cluster, each policy, each seed; the framework also on exact predictions."""
    jobs = 10 if datasets.samples else 40
    return [
        trial
        for seed in seeds
        for part, load in LOADS.items()
        for trial in _cluster_trials(part, Made(mix(load, jobs=jobs), seed), seed)
    ]


def _cluster_trials(part: str, case: Made, seed: int) -> Iterator[Trial]:
    nodes = nodes_of(part)
    yield linear_program_trial(
        case, gpus=nodes * GPUS_PER_NODE, part=part, trace="generated", seed=seed
    )
    ours = OURS[part]
    runs = [(policy, ERROR) for policy in (*OTHERS, *ours)] + [(policy, 0.0) for policy in ours]
    for policy, error in runs:
        setting = Setting(
            policy,
            nodes,
            GPUS_PER_NODE,
            cost_model="live",
            paid_starts=True,
            error=error,
            seed=seed,
        )
        yield simulation_trial(case, setting, part=part, trace="generated")


def nodes_of(part: str) -> int:
    """The cluster of a part; load is always counted against the small one."""
    return AMPLE_NODES if part == "ample" else NODES


def mix(load: float, *, jobs: int) -> Mix:
    """Arrivals at the rate that asks for `load` times what the cluster has."""
    gpus = NODES * GPUS_PER_NODE
    base = Mix(jobs=MEASURED_JOBS)
    load_of_base = compute_load(generate(base, seed=0), gpus=gpus)
    return Mix(jobs=jobs, jobs_per_hour=base.jobs_per_hour * load / load_of_base)


def compute_load(trace: Trace, *, gpus: int) -> float:
    """GPU-seconds asked for / (GPUs x time from the first to the last submission)."""
    if len(trace.jobs) < 2:
        return 0.0
    span_s = trace.jobs[-1].submitted_at - trace.jobs[0].submitted_at
    asked_gpu_s = sum(job.duration_s * job.gpus for job in trace.jobs)
    return asked_gpu_s / (gpus * span_s) if span_s > 0 else math.inf
