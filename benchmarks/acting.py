"""How fast decisions become running pods on a cluster, beside a bare patch loop in the same run.

Each round has two lanes on equal, fresh, waiting one-GPU Jobs; which lane goes first changes from
round to round. Figures are medians over the rounds; `admissions_ratio_low` and `_high` are the 95 %
interval of the ratio, by rounds drawn again with replacement (seeded). An admission is counted when
the API server has answered the patch that lets the Job run; laxity's clock starts before the cycle
that decides it. `laps_begun_alike` are those that the API server began without garbage; all, where
it can be asked.
"""

from collections.abc import Sequence
from random import Random
from statistics import median, quantiles

from benchmarks.bench_cluster import BenchCluster, BenchError, Listen
from benchmarks.lanes import Lap, bare_lap, laxity_lap
from benchmarks.results import Metric, figure

DRAWS = 4_000
WARM_UP_JOBS = 500  # what runs on many rows only is compiled by then

__all__ = ["BenchCluster", "BenchError", "measure_acting"]


def measure_acting(
    bench_cluster: BenchCluster, *, jobs: int, rounds: int, say: Listen
) -> dict[str, Metric]:
    """All figures. BenchError if the cluster has no room for the Jobs."""
    bench_cluster.remove_leftovers(say)
    free = bench_cluster.free_gpus()
    if free < jobs:
        raise BenchError(f"{jobs} one-GPU Jobs need {jobs} free GPUs; this cluster has {free}")
    bare: list[Lap] = []
    ours: list[Lap] = []
    for lane in (bare_lap, laxity_lap):
        lane(bench_cluster, min(WARM_UP_JOBS, jobs))  # what is imported or compiled once
    for number in range(rounds):
        lanes = [(bare_lap, bare), (laxity_lap, ours)]
        for lane, laps in lanes if number % 2 == 0 else reversed(lanes):
            lap = lane(bench_cluster, jobs)
            laps.append(lap)
            name = "bare" if laps is bare else "laxity"
            say(
                f"round {number + 1}: {name} admitted {jobs} in {lap.admitted_s:.2f} s, "
                f"all running after {lap.all_running_s:.1f} s, {lap.cpu_s:.2f} s of CPU here"
            )
    return build_metrics(bare, ours, jobs=jobs)


def build_metrics(bare: list[Lap], ours: list[Lap], *, jobs: int) -> dict[str, Metric]:
    def rate_of(laps: list[Lap]) -> float:
        return jobs / median(lap.admitted_s for lap in laps)

    def running_s(laps: list[Lap]) -> float:
        return median(lap.all_running_s for lap in laps)

    def cpu_ms(laps: list[Lap]) -> float:
        return 1e3 * median(lap.cpu_s for lap in laps) / jobs

    low, high = ratio_interval([lap.admitted_s for lap in bare], [lap.admitted_s for lap in ours])
    return {
        "admissions_per_s": figure(rate_of(ours), "Jobs/s", rate_of(bare)),
        "admissions_ratio_to_bare": figure(rate_of(ours) / rate_of(bare), "1"),
        "admissions_ratio_low": figure(low, "1"),
        "admissions_ratio_high": figure(high, "1"),
        "all_running_s": figure(running_s(ours), "s", running_s(bare)),
        "client_cpu_per_job_ms": figure(cpu_ms(ours), "ms", cpu_ms(bare)),
        "bare_admissions_per_s": figure(rate_of(bare), "Jobs/s"),
        "bare_all_running_s": figure(running_s(bare), "s"),
        "laps_begun_alike": figure(sum(lap.alike for lap in (*bare, *ours)), "laps"),
        "jobs": figure(jobs, "Jobs"),
        "rounds": figure(len(ours), "rounds"),
    }


def ratio_interval(bare_s: Sequence[float], ours_s: Sequence[float]) -> tuple[float, float]:
    """Of the ratio of median rates: between which values 95 % lie if rounds are drawn again.

    Both hold seconds by round. Of few rounds it tells little, and of one nothing.
    """
    rng = Random(1)  # noqa: S311 - rounds, not secrets
    rounds = list(zip(bare_s, ours_s, strict=True))
    ratios = []
    for _ in range(DRAWS):
        bare, ours = zip(*rng.choices(rounds, k=len(rounds)), strict=True)
        ratios.append(median(bare) / median(ours))
    cuts = quantiles(ratios, n=40)
    return cuts[0], cuts[-1]
