"""The literal way: one cycle per event, with the very code that runs live."""

import time
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from laxity_lab.simulate.progress import Ended, nobody
from laxity_lab.world.outcome import RESULTS, Run, empty_results
from laxity_lab.world.world import SimWorld
from laxity_profiler.estimate import Floats, Predictor
from laxity_scheduler.engine import record_dropped, run_cycle
from laxity_scheduler.inflight import with_follow_ups
from laxity_scheduler.job_faults import JobFaults
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.job import FOREVER
from laxity_scheduler.plan import Plan, Policy
from laxity_scheduler.simulated.ground_truth import GroundTruth
from laxity_scheduler.simulated.simulated_job import SimJob

MOST_CYCLES_AT_ONCE: Final = 1_000
MOST_IDLE_WAKES: Final = 1_000


class UnsettledError(RuntimeError):
    """A policy goes on deciding at one instant, or waking for nothing."""


def replay(
    world: SimWorld,
    policy: Policy,
    predictor: Predictor,
    *,
    ended: Ended = nobody,
    finish: Callable[[Policy], Policy] = with_follow_ups,
) -> tuple[list[float], int]:
    """Run to the end; seconds of each decision, and how many were dropped as they did not fit.

    `finish`: what is added to every policy.
    """
    took: list[float] = []
    dropped, faults = 0, JobFaults()

    def decide(state: ClusterState, beliefs: Predictor) -> Plan:
        began = time.perf_counter()
        plan = finish(policy)(state, beliefs)
        took.append(time.perf_counter() - began)
        return plan

    last_at, again, idle = -FOREVER, 0, 0
    while not world.done and world.advance():
        plan = run_cycle(world, decide, predictor)
        dropped += len(plan.dropped)
        record_dropped(plan, faults)
        ended(len(world.finished) + len(world.left))
        again = again + 1 if world.now == last_at else 0
        idle = 0 if plan.decisions or world.busy[-1][1] else idle + 1
        last_at = world.now
        if again > MOST_CYCLES_AT_ONCE:
            message = f"{again} cycles at {last_at:.3f} s, and the policy still decides otherwise"
            raise UnsettledError(message)
        if idle > MOST_IDLE_WAKES and world.all_arrived:
            break  # what is left will never be started
    return took, dropped


def columns_of(world: SimWorld) -> tuple[dict[str, Floats], dict[int, str]]:
    """Columns of a Run, and who was refused why."""
    jobs = world.jobs
    ends_by_name: dict[str, tuple[SimJob, float]] = dict(world.finished)
    ends_by_name |= {name: (live, FOREVER) for name, live in world.left.items()}
    table = empty_results(len(jobs))
    for row, job in zip(table, jobs, strict=True):
        if job.id in ends_by_name:
            row[:-1] = _results_of(*ends_by_name[job.id])
        row[-1] = world.promised_at.get(job.id, FOREVER)
    refused = {job.number: world.refusals[job.id] for job in jobs if job.id in world.refusals}
    return join_columns(jobs, table), refused


def join_columns(jobs: Sequence[GroundTruth], results: Floats) -> dict[str, Floats]:
    """Columns of a Run: what users asked for, and what became of it, (n, len(RESULTS))."""
    return request_columns(jobs) | {
        name: results[:, place].copy() for place, name in enumerate(RESULTS)
    }


def request_columns(jobs: Sequence[GroundTruth]) -> dict[str, Floats]:
    """What users asked for."""
    return {
        "submitted_at": np.array([job.submitted_at for job in jobs], dtype=np.float64),
        "gpus": np.array([job.asked_gpus for job in jobs], dtype=np.float64),
        "deadline_at": np.array([job.deadline_at for job in jobs], dtype=np.float64),
        "ideal_s": np.array([job.ideal_s for job in jobs], dtype=np.float64),
    }


def _results_of(live: SimJob, finished_at: float) -> tuple[float, ...]:
    """In the order of RESULTS, but for the promise."""
    return (
        live.first_start_at,
        finished_at,
        live.running_s,
        live.gpu_s,
        live.lost_gpu_s,
        float(live.row.preemptions),
        float(live.resizes),
    )


def literal(
    name: str,
    trace: str,
    *,
    world: SimWorld,
    policy: Policy,
    predictor: Predictor,
    ended: Ended = nobody,
    finish: Callable[[Policy], Policy] = with_follow_ups,
) -> Run:
    """A Run by the literal cycle."""
    began = time.process_time()
    took, dropped = replay(world, policy, predictor, ended=ended, finish=finish)
    cpu_s = time.process_time() - began
    columns, refused = columns_of(world)
    return Run(
        policy=name,
        trace=trace,
        gpus=world.own_gpus,
        ids=[job.id for job in world.jobs],
        columns=columns,
        refused=refused,
        cpu_s=cpu_s,
        events=world.events,
        decisions_s=took,
        dropped=dropped,
        busy=world.busy,
        loans=None if world.inference is None else world.inference.totals(world.now),
    )
