"""A policy that was learned (DL2, algorithms.md 6): a net scores whose next width is worth most.

Everybody gets its least width in order of arrival, as with the teachers; then the net deals out what
is left, or leaves it idle. The net ships with the package or comes from a file that `laxity train
policy` wrote (`learned:FILE`). Where that file is refused Optimus decides, and the log says why.
"""

import logging
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
from laxity_scheduler.learned.scoring_net import ScoringNet
from laxity_scheduler.learned.weights_file import SHIPPED, load_policy
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.plan import Plan

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

    def decide(state: ClusterState, predictor: Predictor) -> Plan:
        forecasts = Forecasts(state, predictor)
        jobs = resizable_jobs(state)
        purse = budget_of_jobs(state, jobs)
        if net is None:
            width = widen_by_time_saved(jobs, purse, forecasts)
        else:
            workers = allocate(
                net,
                read_jobs(jobs, forecasts),
                lambda number, before, after: purse.take(jobs[number], before, after),
                free_gpus=purse.whole,
                cluster_gpus=state.total_gpus,
            )
            width = {job.id: count for job, count in zip(jobs, workers, strict=True) if count}
        return plan_transition(state, jobs, width, policy="learned")

    return decide
