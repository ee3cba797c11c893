"""A policy that was learned (DL2, algorithms.md 6): a net scores whose next width is worth most.

Jobs that hold a promise get what their plans need now; everybody else gets its least width in order
of arrival, as with the teachers. Then the net deals out what is left, or leaves it idle. The net
ships with the package or comes from a file that `laxity train policy` wrote (`learned:FILE`). Where
that file is refused Optimus decides, and the log says why.
"""

import logging
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final

from laxity_profiler.estimate import Predictor
from laxity_scheduler.allocation.surplus import (
    budget_of_jobs,
    resizable_jobs,
    widen_by_time_saved,
)
from laxity_scheduler.allocation.transition import plan_transition
from laxity_scheduler.engine import Policy
from laxity_scheduler.frame.remaining import Forecasts
from laxity_scheduler.learned.allocation_loop import allocate
from laxity_scheduler.learned.job_features import read_jobs
from laxity_scheduler.learned.promise_floors import raise_least_widths, sort_floors_first
from laxity_scheduler.learned.scoring_net import ScoringNet
from laxity_scheduler.learned.weights_file import SHIPPED, load_policy
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.plan import Plan
from laxity_scheduler.shares.admission import admission_rule
from laxity_scheduler.shares.rule import width_planner_for_promises

LOG: Final = logging.getLogger(__name__)


def decide(state: ClusterState, predictor: Predictor) -> Plan:
    """By the weights that ship with the package."""
    return from_file(SHIPPED)(state, predictor)


@cache
def from_file(path: Path) -> Policy:
    """A policy by the weights of this file; it is read once, and refused once."""
    try:
        net = load_policy(path).net
    except ValueError as error:
        LOG.warning("%s; optimus decides in place of learned", error)
        return decide_by(None)
    return decide_by(net)


def decide_by(net: ScoringNet | None) -> Policy:
    """The policy of a net; of none, its teacher's rule."""
    plan_promised_widths = width_planner_for_promises(admission_rule("greedy"))

    def decide(state: ClusterState, predictor: Predictor) -> Plan:
        forecasts = Forecasts(state, predictor)
        if net is not None:
            floors, wake_at = plan_promised_widths(state, predictor)
            plan = _deal_out(net, state, forecasts, floors)
            return replace(plan, wake_at=wake_at)
        jobs = resizable_jobs(state)
        width = widen_by_time_saved(jobs, budget_of_jobs(state, jobs), forecasts)
        return plan_transition(state, jobs, width, policy="learned")

    return decide


def _deal_out(
    net: ScoringNet, state: ClusterState, forecasts: Forecasts, floors: Mapping[str, int]
) -> Plan:
    """By the net's scores, above the floors of promised jobs."""
    jobs = sort_floors_first(resizable_jobs(state), floors)
    purse = budget_of_jobs(state, jobs)
    numbers, short_gpus = raise_least_widths(jobs, read_jobs(jobs, forecasts), floors, purse.whole)

    def take(number: int, before: int, after: int) -> bool:
        job = jobs[number]
        if before or job.id not in floors:  # what floors lack is nobody else's
            needed = (after - before) * job.gpus_per_worker
            if short_gpus and needed > purse.whole - short_gpus:
                return False
        return purse.take(job, before, after)

    workers = allocate(
        net,
        numbers,
        take,
        free_gpus=max(0, purse.whole - short_gpus),
        cluster_gpus=state.total_gpus,
    )
    width = {job.id: count for job, count in zip(jobs, workers, strict=True) if count}
    return plan_transition(state, jobs, width, policy="learned")
