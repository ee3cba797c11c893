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
from laxity_scheduler.learned.promise_floors import GuardedPurse, sort_floors_first
from laxity_scheduler.learned.scoring_net import ScoringNet
from laxity_scheduler.learned.weights_file import SHIPPED, load_policy
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.plan import Plan
from laxity_scheduler.shares.admission import admission_rule
from laxity_scheduler.shares.promised_widths import PromiseFloors
from laxity_scheduler.shares.rule import planner_for_promises

LOG: Final = logging.getLogger(__name__)
PROMISES: Final = admission_rule("greedy")  # whoever gave them, they are planned by this rule


def decide(state: ClusterState, predictor: Predictor) -> Plan:
    """By the weights that ship with the package."""
    return from_file(SHIPPED)(state, predictor)


def find_late_promises(state: ClusterState, predictor: Predictor) -> Mapping[str, float]:
    """When promised jobs end that cannot be in time, whatever a net does; by id."""
    return planner_for_promises(PROMISES)(state, predictor).late


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
    plan_promises = planner_for_promises(PROMISES)

    def decide(state: ClusterState, predictor: Predictor) -> Plan:
        forecasts = Forecasts(state, predictor)
        if net is not None:
            return _deal_out(net, state, forecasts, plan_promises(state, predictor))
        jobs = resizable_jobs(state)
        width = widen_by_time_saved(jobs, budget_of_jobs(state, jobs), forecasts)
        return plan_transition(state, jobs, width, policy="learned")

    return decide


def _deal_out(
    net: ScoringNet, state: ClusterState, forecasts: Forecasts, promised: PromiseFloors
) -> Plan:
    """By the net's scores, above the floors of promised jobs and beside their plans."""
    jobs = sort_floors_first(resizable_jobs(state), promised.floors)
    budget = budget_of_jobs(state, jobs)
    free_gpus, purse = budget.whole, GuardedPurse(budget, promised)
    numbers = purse.give_floors(jobs, read_jobs(jobs, forecasts))
    workers = allocate(
        net,
        numbers,
        lambda number, before, after: purse.take(jobs[number], before, after),
        free_gpus=free_gpus,
        cluster_gpus=state.total_gpus,
    )
    width = {job.id: count for job, count in zip(jobs, workers, strict=True) if count}
    plan = plan_transition(state, jobs, width, policy="learned")
    return replace(plan, wake_at=promised.wake_at)
