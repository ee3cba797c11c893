"""How fast simulations and decisions are, in CPU time of one core, without loading.

The baseline of a simulation is a plain event loop of a few lines (a heap of ends, a sorted queue),
run in the same process: `ratio` is to that. Traces are those under LAXITY_TRACES, else generated
ones of the same size. Decisions are measured in `bench_decisions`, their growth with the number
of jobs in `bench_scaling`. `peak_memory_mb` is the most that this process has held so far (ru_maxrss), with the
interpreter and all libraries.
"""

import resource
import time
from bisect import insort
from collections.abc import Callable, Sequence
from dataclasses import replace
from heapq import heappop, heappush
from typing import Final

from benchmarks.bench_decisions import decision_figures
from benchmarks.bench_scaling import SIZES, growth_figures
from benchmarks.results import Metric, figure
from laxity_lab.simulate.run import Setting, simulate
from laxity_lab.traces.cases import Source
from laxity_lab.traces.generate import Mix, generate
from laxity_lab.traces.trace_lookup import SAMPLES, traces_folder
from laxity_lab.traces.traces import Trace

KINDS: Final = ("simulator", "decision")


def measure(kinds: Sequence[str], *, quick: bool = False) -> dict[str, Metric]:
    """All figures of these kinds."""
    figures: dict[str, Metric] = {}
    if "simulator" in kinds:
        figures |= _simulator(quick=quick)
    if "decision" in kinds:
        figures |= decision_figures(quick=quick)
        figures |= growth_figures((100, 1_000) if quick else SIZES)
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0
    return figures | {"peak_memory_mb": figure(peak_mb, "MB")}


def _simulator(*, quick: bool) -> dict[str, Metric]:
    rigid, elastic = _rigid_trace(quick=quick), Source(SAMPLES / "itp/195job.csv", "itp").load()
    plain = best(lambda: plain_loop(rigid, 512))
    figures = {}
    for name, pooled in (("rigid_pooled_jobs_per_s", True), ("rigid_jobs_per_s", False)):
        setting = Setting("sjf", 64, 8, pooled=pooled)
        run_s = min(simulate(rigid, setting).cpu_s for _ in range(3))
        figures[name] = figure(len(rigid.jobs) / run_s, "jobs/s", plain)
    setting = Setting("elasticflow", 16, 8, pooled=True)
    simulate(replace(elastic, jobs=elastic.jobs[:20]), setting)  # compiles
    run_s = min(simulate(elastic, setting).cpu_s for _ in range(3))
    plain = best(lambda: plain_loop(elastic, 128))
    figures["elastic_jobs_per_s"] = figure(len(elastic.jobs) / run_s, "jobs/s", plain)
    some = replace(rigid, jobs=rigid.jobs[: 500 if quick else 3_000])
    run = simulate(some, Setting("sjf", 64, 8, literal_cycle=True))
    figures["literal_jobs_per_s"] = figure(len(some.jobs) / run.cpu_s, "jobs/s")
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


def _rigid_trace(*, quick: bool) -> Trace:
    folder = traces_folder()  # what ships is too small
    file = folder / "philly/philly.csv" if folder else None
    if file and file.is_file():
        trace = Source(file, "philly").load()
    else:
        mix = Mix(jobs=82_247, jobs_per_hour=31.4, median_s=900.0, sigma=2.3, levels=(1, 2, 4, 8))
        trace = generate(mix, seed=0)
    return replace(trace, jobs=trace.jobs[: len(trace.jobs) // 10]) if quick else trace
