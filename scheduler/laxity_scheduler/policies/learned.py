"""A policy that was learned (DL2, algorithms.md 6): a net scores whose next width is worth most.

Jobs that hold a promise get what their plans need now; everybody else gets its least width in order
of arrival, as with the teachers. Then the net deals out what is left, or leaves it idle. The net
ships with the package or comes from a file that `laxity train policy` wrote (`learned:FILE`). Where
that file is refused Optimus's rule deals out, and the log says why.

Here are also those who decide in place of a learned policy that is refused or falls back in a service:
its teachers' rules behind the same floors, so that no promise is lost by it.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Final

from laxity_profiler.estimate import Predictor
from laxity_scheduler.allocation.transition import plan_transition
from laxity_scheduler.frame.remaining import Forecasts
from laxity_scheduler.learned.allocation_loop import allocate
from laxity_scheduler.learned.job_features import cut_widths, read_jobs
from laxity_scheduler.learned.promise_floors import PromisePlans, deal_as_teacher, open_surplus
from laxity_scheduler.learned.scoring_net import ScoringNet
from laxity_scheduler.learned.weights_file import SHIPPED, load_policy
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.job import Job
from laxity_scheduler.plan import Plan, Policy
from laxity_scheduler.shares.floors_on_own_nodes import plan_floors

LOG: Final = logging.getLogger(__name__)
Deal = Callable[
    [ClusterState, Forecasts, PromisePlans], tuple[Sequence[Job], Mapping[str, int]]
]  # jobs in order, and workers by id


def decide(state: ClusterState, predictor: Predictor) -> Plan:
    """By the weights that ship with the package."""
    return from_file(SHIPPED)(state, predictor)


def find_late_promises(state: ClusterState, predictor: Predictor) -> Mapping[str, float]:
    """When promised jobs end that cannot be in time, whatever a net does; by id."""
    return plan_floors(state, predictor).late


@cache
def from_file(path: Path) -> Policy:
    """A policy by the weights of this file; it is read once, and refused once."""
    try:
        net = load_policy(path).net
    except ValueError as error:
        LOG.warning("%s; optimus decides in place of learned", error)
        return _decide_above_floors("learned", partial(deal_as_teacher, "optimus"))
    return decide_by(net)


def decide_by(net: ScoringNet) -> Policy:
    """The policy of a net."""
    return _decide_above_floors("learned", partial(_deal_by_net, net))


def _decide_above_floors(name: str, deal: Deal) -> Policy:
    """The floors of promised jobs first, and what `deal` makes of the rest."""

    def decide(state: ClusterState, predictor: Predictor) -> Plan:
        promised = plan_floors(state, predictor)
        jobs, width = deal(state, Forecasts(state, predictor), promised)
        plan = plan_transition(state, jobs, width, policy=name)
        return replace(plan, wake_at=promised.wake_at)

    return decide


def _deal_by_net(
    net: ScoringNet, state: ClusterState, forecasts: Forecasts, plans: PromisePlans
) -> tuple[Sequence[Job], Mapping[str, int]]:
    surplus = open_surplus(state, forecasts, plans)
    jobs, floors = surplus.jobs, surplus.floors
    numbers = [
        cut_widths(each, floors[job.id]) if job.id in floors else each
        for job, each in zip(jobs, read_jobs(jobs, forecasts), strict=True)
    ]
    workers = allocate(
        net,
        numbers,
        lambda number, before, after: surplus.purse.take(jobs[number], before, after),
        free_gpus=surplus.gpus,
        cluster_gpus=state.total_gpus,
    )
    return jobs, {job.id: count for job, count in zip(jobs, workers, strict=True) if count}


optimus_with_promises: Final = _decide_above_floors(
    "optimus_with_promises", partial(deal_as_teacher, "optimus")
)
drf_with_promises: Final = _decide_above_floors(
    "drf_with_promises", partial(deal_as_teacher, "drf")
)
