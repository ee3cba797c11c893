"""What policies that promise leave on lent nodes: waiting jobs start there, others widen onto them.

Whoever promises plans on its own nodes. Of what is lent, jobs without a promise that wait take their
least width (base demand before growth, Aryl's phase 1), then running jobs get flexible workers by the
knapsack (phase 2): a width is worth the seconds that it saves until the forecast's horizon, less the
way back. A promise must hold if the loan ended at once: growing and shrinking again still ends in
time, on the job's own nodes alone.
"""

from collections.abc import Callable, Collection, Sequence
from math import isfinite
from typing import Final

from laxity_scheduler.capacity.ledger import Ledger
from laxity_scheduler.frame.curve import Curve, Quantile
from laxity_scheduler.frame.remaining import Forecasts, stopping
from laxity_scheduler.loans.knapsack import NOTHING, Item, solve_knapsack
from laxity_scheduler.model.cluster import LENT_POOLS, ClusterState
from laxity_scheduler.model.decision import Admit, Continue, Decision, Preempt, Refuse, Resize
from laxity_scheduler.model.job import FOREVER, Job, Promise
from laxity_scheduler.model.reasons import reason

ACTS: Final = (Admit, Continue, Preempt, Refuse, Resize)
ChangeCost = Callable[[Curve, int, Quantile], float]  # seconds that a change to this width costs


def use_lent_nodes(
    state: ClusterState,
    decisions: Sequence[Decision],
    forecasts: Forecasts,
    change_s: ChangeCost = Curve.reform_s,
) -> tuple[Admit | Resize, ...]:
    """Starts and growth on what the decisions leave free on lent nodes.

    `change_s` is what the policy itself counts for a change of width.
    """
    if not any(node.pool in LENT_POOLS and node.free_gpus > 0 for node in state.nodes):
        return ()
    acted = {decision.job for decision in decisions if isinstance(decision, ACTS)}
    ledger = Ledger.of(state, pools=LENT_POOLS)
    starts = _start_waiting(state, acted, ledger)
    return (*starts, *_widen_running(state, acted, ledger, forecasts, change_s))


def _start_waiting(
    state: ClusterState, acted: Collection[str], ledger: Ledger
) -> tuple[Admit, ...]:
    """Waiting jobs that nothing was promised, on their least width, who came first first.

    Jobs of a quota wait for the policy, which counts it.
    """
    waiting = [
        job
        for job in state.queued
        if job.service_class != "hard"
        and job.preemptible
        and not (job.quota or job.promise or job.id in acted)
        and (job.service_class == "best_effort" or not job.asked)
    ]
    starts: list[Admit] = []
    for job in sorted(waiting, key=lambda job: (job.submitted_at, job.id)):
        ledger.open_holds(job.id)
        nodes = ledger.place(
            job.widths[0], job.gpus_per_worker, state.eligible_nodes(job), needs=job.needs
        )
        if nodes is None:
            ledger.close_holds(job.id)
            continue
        starts.append(Admit(job.id, job.widths[0], nodes, reason("start_on_lent")))
    return tuple(starts)


def _widen_running(
    state: ClusterState,
    acted: Collection[str],
    ledger: Ledger,
    forecasts: Forecasts,
    change_s: ChangeCost,
) -> tuple[Resize, ...]:
    """Flexible workers on lent nodes, for those that save most seconds by them."""
    demand = state.inference
    if demand is None or not ledger.total_free:
        return ()
    until_s = demand.horizon_at - state.now
    jobs = [job for job in state.running if job.id not in acted and _may_widen(job, state.now)]
    jobs = [job for job in jobs if _is_safe(job, state, forecasts, change_s)]
    items = [_items_by_width(job, until_s, forecasts, change_s) for job in jobs]
    choice = solve_knapsack([list(group.values()) for group in items], ledger.total_free).choice
    picked = [
        (job, list(group)[place])
        for job, group, place in zip(jobs, items, choice, strict=True)
        if place != NOTHING
    ]
    grown = []
    for job, width in sorted(picked, key=lambda pair: (-pair[1], pair[0].id)):
        resize = _place_growth(job, width, state, ledger)
        if resize is not None:
            grown.append(resize)
    return tuple(grown)


def _may_widen(job: Job, now: float) -> bool:
    """Whether its width is open: all its workers train together, and nothing was asked of it."""
    return (
        len(job.widths) > 1
        and job.preemptible
        and job.formed == job.workers
        and not (job.pinned or job.quota or job.resize_to or job.terminating_workers)
        and not stopping(job)
        and not job.changed_now(now)
    )


def _is_safe(job: Job, state: ClusterState, forecasts: Forecasts, change_s: ChangeCost) -> bool:
    """Whether its deadline stands although it changes twice: to grow, and to give back.

    Where it is late on its own nodes anyway, there is nothing to lose.
    """
    due_at = job.verdict.deadline_at if isinstance(job.verdict, Promise) else job.deadline_at
    own = job.width_without(state.node_pools.lent)
    if due_at == FOREVER or not own:
        return True
    end_at = state.now + forecasts.rest_s(job, own, "p90")
    changes_s = 2.0 * change_s(forecasts.curve(job), own, "p90")
    return not end_at <= due_at < end_at + changes_s


def _items_by_width(
    job: Job, until_s: float, forecasts: Forecasts, change_s: ChangeCost
) -> dict[int, Item]:
    """What each wider width is worth until then, in seconds, and weighs, in GPUs more.

    The remaining time counts that it re-forms; what else a change costs is taken off here.
    """
    now_s = forecasts.rest_s(job, job.workers, "mean")
    lasting_s = until_s - forecasts.boundary_s(job, "mean")  # new workers join at an epoch's end
    curve = forecasts.curve(job)
    items = {}
    for width in curve.widths:
        rest_s = forecasts.rest_s(job, width, "mean")
        if width > job.workers and isfinite(now_s) and lasting_s > 0.0 < rest_s:
            saved_s = (now_s - rest_s) * min(1.0, lasting_s / rest_s)
            cost_s = change_s(curve, width, "mean") - curve.reform_s(width, "mean")
            cost_s += change_s(curve, job.workers, "mean") if rest_s > lasting_s else 0.0
            weight = (width - job.workers) * job.gpus_per_worker
            items[width] = Item(weight, saved_s - cost_s)
    return items


def _place_growth(job: Job, width: int, state: ClusterState, ledger: Ledger) -> Resize | None:
    """The widest of its widths up to this one that fits."""
    among = state.eligible_nodes(job)
    for level in reversed(job.widths):
        if not job.workers < level <= width:
            continue
        more = ledger.place(level - job.workers, job.gpus_per_worker, among, needs=job.needs)
        if more is not None:
            cause = reason("grow_on_lent", from_workers=job.workers, workers=level)
            return Resize(job.id, level, job.nodes + more, "now", cause)
    return None
