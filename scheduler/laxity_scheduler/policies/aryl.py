"""Aryl / Lyra (EuroSys 2023): base demand shortest first, flexible demand by a knapsack.

Phase 1: every running job keeps its least width; waiting jobs get theirs, the shortest first (mean
run time), while capacity lasts. Phase 2: what is left is packed, a job's wider width being worth

    T(least width) - T(width) - time to re-form        seconds, from the measured curve

so that the sum is the cut in completion times. Present widths stay unless the new ones are worth 5 %
more; then only idle GPUs are dealt out (our own, as are measured curves: the paper is linear).
Loans and reclaims are decided around every policy: see `loans`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from laxity_profiler.estimate import Predictor
from laxity_scheduler.allocation.purse import Purse
from laxity_scheduler.allocation.surplus import WidthRule, resizable_jobs
from laxity_scheduler.allocation.transition import WorkerLedger, plan_transition
from laxity_scheduler.capacity.ledger import count_free_gpus
from laxity_scheduler.capacity.pools import PoolLedger
from laxity_scheduler.frame.remaining import Forecasts
from laxity_scheduler.loans.knapsack import NOTHING, Item, solve_knapsack
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.job import Job
from laxity_scheduler.plan import Plan

WORTH_CHANGING: Final = 1.05  # so much more must other widths be worth


def decide(state: ClusterState, predictor: Predictor) -> Plan:
    return decide_by(state, predictor, widths_by_knapsack, PoolLedger)


def decide_by(
    state: ClusterState,
    predictor: Predictor,
    choose_widths: WidthRule,
    open_ledger: Callable[[ClusterState], WorkerLedger],
) -> Plan:
    """The policy with another rule for widths, which gets the jobs in order, or for places."""
    forecasts = Forecasts(state, predictor)
    jobs, purse = _share_out(state, forecasts)
    if not jobs:
        return Plan()
    jobs = sorted(jobs, key=lambda job: _phase_one_rank(job, forecasts))
    width = choose_widths(jobs, purse, forecasts)
    jobs.sort(key=lambda job: job.workers > 0)  # base demand before growth
    return plan_transition(state, jobs, width, policy="aryl", ledger=open_ledger(state))


def widths_by_knapsack(jobs: Sequence[Job], purse: Purse, forecasts: Forecasts) -> dict[str, int]:
    """Least widths as long as there is room, in this order; what is left by the knapsack."""
    base = [job for job in jobs if purse.take(job, 0, job.widths[0])]
    return {job.id: job.widths[0] for job in base} | _widen(base, purse, forecasts)


def _share_out(state: ClusterState, forecasts: Forecasts) -> tuple[list[Job], Purse]:
    """The jobs whose width is open, and the GPUs that they share.

    A running job of one width keeps what it holds, whoever the others are, and so do those on their
    widest one where all others can have their widest as well. They are left out, which spares most of
    the work; but not where more is held than there is.
    """
    free = count_free_gpus(state)
    jobs = resizable_jobs(state, open_only=True)
    curves = forecasts.curves(jobs)
    widest = {job.id: max(curve.widths) for job, curve in zip(jobs, curves, strict=True)}
    small = [job for job in jobs if job.workers != widest[job.id]]
    purse = Purse(state, small, free + sum(job.gpus for job in small))
    if purse.is_overdrawn:
        jobs = resizable_jobs(state)
    elif purse.covers(small, widest):
        return small, purse
    return jobs, Purse(state, jobs, free + sum(job.gpus for job in jobs))


def _phase_one_rank(job: Job, forecasts: Forecasts) -> tuple[bool, float, float, str]:
    """Running jobs first: their base demand is never taken. Then the shortest."""
    rest_s = forecasts.curve(job).total_s(job.widths[0], "mean")
    return not job.workers, rest_s, job.submitted_at, job.id


def _widen(jobs: Sequence[Job], purse: Purse, forecasts: Forecasts) -> dict[str, int]:
    """Widths above the least, by job id."""
    elastic = [job for job in jobs if len(forecasts.curve(job).widths) > 1]
    items = [_items_by_width(job, forecasts) for job in elastic]
    chosen = _pack_widths(items, [job.workers for job in elastic], purse.whole)
    widths = {}
    for job, width in sorted(zip(elastic, chosen, strict=True), key=lambda pair: -pair[1]):
        for level in reversed(job.widths[1:]):  # a region may have less than the whole cluster
            if level <= width and purse.take(job, job.widths[0], level):
                widths[job.id] = level
                break
    return widths


def _items_by_width(job: Job, forecasts: Forecasts) -> dict[int, Item]:
    """What each width above the least is worth, in seconds, and weighs, in GPUs."""
    curve, least = forecasts.curve(job), job.widths[0]

    def rest_s(width: int) -> float:
        changes = job.workers not in (0, width)
        return curve.total_s(width, "mean") + (curve.reform_s(width, "mean") if changes else 0.0)

    return {
        width: Item((width - least) * job.gpus_per_worker, rest_s(least) - rest_s(width))
        for width in curve.widths
        if width > least
    }


def _pack_widths(
    items: Sequence[Mapping[int, Item]], present: Sequence[int], capacity: int
) -> list[int]:
    """A width per job, 0 for its least one; with hysteresis."""
    held = [group.get(width, Item(0, 0.0)) for group, width in zip(items, present, strict=True)]
    weight, value = sum(item.weight for item in held), sum(item.value for item in held)
    best = solve_knapsack([list(group.values()) for group in items], capacity)
    if weight > capacity or best.value > WORTH_CHANGING * value:
        return [
            0 if place == NOTHING else list(group)[place]
            for group, place in zip(items, best.choice, strict=True)
        ]
    wider = [
        {
            width: Item(item.weight - own.weight, item.value - own.value)
            for width, item in group.items()
            if item.weight > own.weight
        }
        for group, own in zip(items, held, strict=True)
    ]
    more = solve_knapsack([list(group.values()) for group in wider], capacity - weight)
    return [
        (width if width in group else 0) if place == NOTHING else list(new)[place]
        for group, width, new, place in zip(items, present, wider, more.choice, strict=True)
    ]
