"""How many workers running jobs should have: more to be in time, fewer when others wait.

Autoscaling (algorithms.md 3.5). A job that would miss its deadline grows to the least width that meets
it, from free GPUs, else from donors; where its nodes are full it is stopped to start wider
elsewhere. GPUs that nobody waits for go where they save most time per GPU. Against swings: two
epochs between changes, a re-forming must cost less than a tenth of what it saves, and a job that
ends sooner than a restart takes is left alone. A promise in danger knows none of these.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import floor

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.allocation.victims import Need, Victim, gpus_freed_by, victim_by_shrinking
from laxity_scheduler.frame import fields
from laxity_scheduler.frame.arrays import Bools
from laxity_scheduler.frame.curve import late_s_of
from laxity_scheduler.frame.fields import (
    BEST_EFFORT,
    PROMISED_DUE_AT,
    RESUMED_AT,
    SERVICE,
    STARTING,
    WORKERS,
)
from laxity_scheduler.frame.frame import late_instant
from laxity_scheduler.frame.kernels import TINY_S
from laxity_scheduler.frame.remaining import stopping
from laxity_scheduler.model.decision import Preempt, Resize
from laxity_scheduler.model.job import FOREVER, Job
from laxity_scheduler.model.reasons import reason
from laxity_scheduler.promising.queueing import slack
from laxity_scheduler.qos.context import MOST_DISPLACING, THETA, DecisionContext
from laxity_scheduler.qos.idle_growth import pays
from laxity_scheduler.qos.preemption import carry_out, choose, least_width_in_time

WORTHWHILE = 0.95  # a late job changes its width only if that ends it so much sooner


def grow_promised(context: DecisionContext) -> None:
    """Running promised jobs that would miss their deadline get more workers."""
    if context.reservations.roomy:
        for job in _in_turn(context):
            _grow_promised(context, job)
        return
    for job, as_planned, wake_at in _compare_promised(context):
        if not as_planned:
            _grow_promised(context, job)
        elif job.id not in context.acted:
            context.wake(wake_at)


def _compare_promised(context: DecisionContext) -> Iterator[tuple[Job, bool, float]]:
    """Running promised jobs that have formed, most urgent first: whether each is as planned.

    Who is needs only to be woken for, and when.
    """
    reservations, frame = context.reservations, context.forecasts.frame
    runs = frame.column(fields.WORKERS)[reservations.claims.rows] > 0.0
    claims = reservations.claims.at(np.flatnonzero(runs))
    claims = claims.at(np.flatnonzero(_find_formed(context, claims.jobs, frame.table[claims.rows])))
    rows, names = claims.rows, claims.names
    due_at = frame.in_force_at[rows]
    slack_s, _ = frame.slack_s(rows, due_at - context.now)
    late, plans = reservations.late, reservations.shares.rows_of(names)
    workers = frame.table[rows, fields.WORKERS]
    order = np.lexsort((frame.ranks[rows], slack_s, plans.workers_now <= workers))
    quiet = (plans.workers_now >= 0) & (plans.widest_by(reservations.reach_s) <= workers)
    if late or context.newly:
        newly = context.newly
        unaffected = [name not in late and name not in newly for name in names]
        quiet &= np.array(unaffected, dtype=np.bool_)
    wake_at = frame.late_at(rows, due_at) + 1e-3
    begun = ~np.isnan(frame.table[rows, fields.BEGUN_AT])
    wake_at = np.where(begun, wake_at, FOREVER)
    return zip(claims.at(order).jobs, quiet[order].tolist(), wake_at[order].tolist(), strict=True)


def _find_formed(context: DecisionContext, jobs: Sequence[Job], table: Floats) -> Bools:
    """As `DecisionContext.is_formed`, of jobs that have workers."""
    now = context.now
    changed = table[:, fields.CHANGED_AT] >= now
    resumed = ~changed & (table[:, fields.RESUMED_AT] >= now)
    if changed.any() or resumed.any():
        context.wake(now + 1.0)
    formed: Bools = ~changed & ~resumed & (table[:, fields.PINNED] == 0.0)
    formed &= (table[:, fields.STOPPING] == 0.0) & (table[:, fields.RESIZING] == 0.0)
    formed &= table[:, fields.FORMED_AT] == table[:, fields.WORKERS]
    if context.acted:
        formed &= np.array([job.id not in context.acted for job in jobs], dtype=np.bool_)
    return formed


def _in_turn(context: DecisionContext) -> list[Job]:
    """Running promised jobs of which something may have to be decided, most urgent first."""
    in_time = _plainly_in_time(context)
    jobs = [
        job
        for job in context.reservations.claims.jobs
        if job.workers and job.id not in in_time and context.is_formed(job)
    ]
    jobs.sort(key=lambda job: (slack(job, context.forecasts)[0], job.id))
    return sorted(jobs, key=lambda job: not _due_now(context, job))


def _grow_promised(context: DecisionContext, job: Job) -> None:
    if job.id in context.acted:
        return  # it has just given way to one before it
    planned = _due_width(context, job)
    if _may_be_in_time(context, job):
        _wake_when_late(context, job)
    elif planned > job.workers:
        _grow(context, job, planned)
    elif not planned and _late_s(context, job) > TINY_S:
        _grow(context, job, _better_width(context, job))
    else:
        _wake_when_late(context, job)


def _plainly_in_time(context: DecisionContext) -> frozenset[str]:
    """Promised jobs that have their width and end in time with it: nothing is to be done.

    `_wake_when_late` for all of them at once.
    """
    frame, now = context.forecasts.frame, context.now
    due_at = frame.column(PROMISED_DUE_AT)
    with np.errstate(invalid="ignore"):
        quiet = frame.plain & frame.promised & ~(frame.column(RESUMED_AT) >= now)
        quiet &= frame.remaining_s - (due_at - now) <= TINY_S
    skipped = context.newly.keys() | context.acted
    if skipped:
        quiet &= np.array([job.id not in skipped for job in frame.jobs], dtype=np.bool_)
    rows = np.flatnonzero(quiet & (frame.column(STARTING) == 0.0))
    context.wake_first(frame.late_at(rows, due_at[rows]) + 1e-3)
    return frozenset([job.id for job in frame.where(quiet)])


def _due_width(context: DecisionContext, job: Job) -> int:
    """The width it should have now, as all claims are planned together; 0 if there is no plan.

    It may be in time though it grows only later; then others make room first. Growth that comes so
    soon that others must be stopped for it is due now.
    """
    reservations = context.reservations
    share = reservations.shares.get(job.id)
    if share is None or reservations.roomy or job.id in reservations.late:
        return 0
    return reservations.due_width(share) or job.workers


def awaits_growth(context: DecisionContext, job: Job) -> bool:
    """Whether a running job needs what is held for it: it is to be wider, or late, or starts again."""
    planned = _due_width(context, job)
    wider = planned > job.workers if planned else _late_s(context, job) > TINY_S
    return wider or stopping(job)


def _due_now(context: DecisionContext, job: Job) -> bool:
    """Whether it is planned to be wider now: before those whose growth is only soon due."""
    share = context.reservations.shares.get(job.id)
    return share is not None and share.workers_now > job.workers


def grow_late_soft(context: DecisionContext) -> None:
    """Running soft jobs that would be late grow into GPUs that are free."""
    frame = context.forecasts.frame
    unpromised = (frame.column(WORKERS) > 0.0) & ~frame.promised
    for job in frame.where(unpromised & (frame.column(SERVICE) != BEST_EFFORT)):
        if (
            job.service_class != "best_effort"
            and context.deadline_at(job) < FOREVER
            and not context.claims(job)
            and job.id not in context.reservations.shares
            and context.is_formed(job)
            and context.cooldown_end_at(job) <= context.now
            and _late_s(context, job) > TINY_S
        ):
            width = _better_width(context, job)
            if width and pays(context, job, width):
                _grow_into_free(context, job, width)


def shrink_for_waiting(context: DecisionContext) -> None:
    """Jobs wider than they need give workers back while others wait that these would help."""
    if not context.blocked:
        return
    donors = [
        victim_by_shrinking(job, keeps, context.forecasts)
        for job in context.state.running
        if job.preemptible
        and context.is_formed(job)
        and context.cooldown_end_at(job) <= context.now
        and (keeps := least_width_in_time(context, job)) < job.workers
        and _well_ahead(context, job, keeps)
        and context.forecasts.rest_s(job, job.workers) > context.forecasts.boundary_s(job) + TINY_S
    ]
    for entry in context.blocked[:MOST_DISPLACING]:
        if not donors:
            return
        if entry.job.id in context.waits_for:
            continue
        gpus = entry.job.gpus_per_worker
        may = context.state.eligible_nodes(entry.job) or frozenset()
        need = context.need(entry.job, entry.workers, may, dict(context.releases.shared))
        if need.workers_fitting >= entry.workers:
            return  # enough is on its way
        missing = need.workers - need.workers_fitting
        if need.gain_from(donors) < missing:
            continue
        chosen: list[Victim] = []
        for donor in sorted(donors, key=lambda donor: (donor.cost_s, donor.job)):
            if need.gain_from(chosen) < missing and need.gain_from(
                (*chosen, donor)
            ) > need.gain_from(chosen):
                chosen.append(donor)
        carry_out(context, tuple(chosen), entry.job, entry.workers * gpus, entry.rank)
        return  # one at a time: the next cycle sees what came of it


def _late_s(context: DecisionContext, job: Job) -> float:
    return context.forecasts.rest_s(job, job.workers) - context.time_left_s(job)


def _may_be_in_time(context: DecisionContext, job: Job) -> bool:
    """Whether only a single epoch is overdue: for that nobody is stopped and no width changes.

    Not where the job is late at P50 as well.
    """
    begun_at = job.epoch_started_at
    late_s = late_s_of(job, context.forecasts.curve(job))
    if begun_at is None or context.now <= begun_at + late_s:
        return False
    return context.forecasts.rest_s(job, job.workers, "p50") <= context.time_left_s(job)


def _wake_when_late(context: DecisionContext, job: Job) -> None:
    """An epoch that takes longer than predicted moves the finish, second by second."""
    if job.epoch_started_at is None:
        return
    curve = context.forecasts.curve(job)
    width = curve.at(job.formed or job.workers, "p90")
    if width.total_s < FOREVER:
        due_at = context.deadline_at(job) - (width.total_s - width.unit_s)
        late_s = late_s_of(job, curve)
        late_at = late_instant(job.epoch_started_at, late_s, due_at, context.now)
        context.wake(float(late_at) + 1e-3)


def _better_width(context: DecisionContext, job: Job) -> int:
    """The least wider width that is in time; else the fastest, if it is much faster; else 0."""
    forecasts, left_s = context.forecasts, context.time_left_s(job)
    wider = [width for width in forecasts.curve(job).widths if width > job.workers]
    rests = {width: forecasts.rest_s(job, width) for width in wider}
    in_time = [width for width in wider if rests[width] <= left_s + TINY_S]
    if in_time:
        return in_time[0]
    best = min(wider, key=lambda width: rests[width], default=0)
    now_s = forecasts.rest_s(job, job.workers)
    return best if best and rests[best] < WORTHWHILE * now_s else 0


def _grow(context: DecisionContext, job: Job, width: int) -> None:
    """Defend a promise: free GPUs, then donors, then a restart where there is room."""
    if not width or _grow_into_free(context, job, width):
        return
    if context.forecasts.rest_s(job, width) > context.time_left_s(job) + TINY_S:
        return  # nobody is stopped for a promise that is broken all the same
    may = context.state.eligible_nodes(job)
    own = frozenset(job.nodes) if may is None else may.intersection(job.nodes)
    nodes = (may or frozenset()) if context.grows else own
    if not nodes and not (context.grows and may is None):
        return
    tiers = 3 if context.claims(job) else 2
    mine, gpus = context.releases.own(job), job.gpus_per_worker
    coming = mine + context.releases.shared
    need = context.need(job, width - job.workers, nodes, coming)
    context.releases.use(replace(need, coming=mine))
    if need.workers_fitting >= need.workers:
        _keep_free(context, job, need, ())
        return  # on its way
    chosen = choose(context, job, need, max(0.0, -_late_s(context, job)), tiers=tiers)
    if chosen:
        carry_out(context, chosen, job, need.workers * gpus, "promised")
        _keep_free(context, job, need, chosen)
    elif not context.grows:
        _restart_wider(context, job)


def _keep_free(context: DecisionContext, job: Job, need: Need, chosen: tuple[Victim, ...]) -> None:
    """What is free is kept for it while the rest of what it needs is on its way."""
    for placed in range(need.workers):
        if _more_nodes(context, job, 1) is None:
            context.keep_parts(need, gpus_freed_by(chosen), need.workers - placed)
            return


def _more_nodes(context: DecisionContext, job: Job, workers: int) -> tuple[str, ...] | None:
    """Nodes for more workers of a running job, to the end."""
    ledger, placement = context.ledger, context.placement
    rest_s, claimed = context.forecasts.rest_s(job, job.workers), context.claims(job)
    place = placement.place if context.grows else placement.place_on
    return place(ledger, job, workers, rest_s, claimed=claimed)


def _grow_into_free(context: DecisionContext, job: Job, width: int) -> bool:
    """The width itself, or the widest below it that fits and helps."""
    forecasts = context.forecasts
    late_s = _late_s(context, job)
    context.ledger.open_holds(job.id)
    for wider in reversed(forecasts.curve(job).widths):
        if not job.workers < wider <= width:
            continue
        if forecasts.rest_s(job, wider) >= forecasts.rest_s(job, job.workers):
            continue
        more = _more_nodes(context, job, wider - job.workers)
        if more is not None:
            growth_reason = reason(
                "grow_to_meet_deadline", late_s=late_s, from_workers=job.workers, workers=wider
            )
            context.change(Resize(job.id, wider, job.nodes + more, "now", growth_reason))
            return True
    context.ledger.close_holds(job.id)
    return False


def _restart_wider(context: DecisionContext, job: Job) -> None:
    """Its nodes are full: stop at the epoch's end and start wider elsewhere, if that is in time.

    Where there is no room for that either, others are stopped for it first.
    """
    if not job.preemptible:
        return
    ledger, size = context.ledger, job.gpus_per_worker
    spares_s = [
        (width, _spare_s(context, job, width)) for width in context.forecasts.curve(job).widths
    ]
    left, may = context.placement.quota_left(job), context.state.eligible_nodes(job)
    tries = [
        (width, spare_s)
        for width, spare_s in spares_s
        if width > job.workers and spare_s >= 0.0 and (width - job.workers) * size <= left
    ]
    free = ledger.slots(size, may, needs=job.needs)
    ledger.open_holds(job.id)
    slots = ledger.slots(size, may, needs=job.needs)
    ledger.close_holds(job.id)  # nobody else may have what is held until it has started
    for width, _ in tries:
        if slots + job.workers >= width:
            preempt_reason = reason("restart_wider", workers=width, late_s=_late_s(context, job))
            context.change(Preempt(job.id, "epoch", job.id, preempt_reason))
            for _ in range(width - job.workers - (slots - free)):
                ledger.place(1, size, may, needs=job.needs)
            return
    for width, spare_s in tries[:1]:
        _make_room(context, job, width, spare_s)


def _spare_s(context: DecisionContext, job: Job, width: int) -> float:
    """How long before its deadline it ends if it starts on another width after this epoch."""
    forecasts, curve = context.forecasts, context.forecasts.curve(job)
    rest_s = (curve.epochs_left - 1) * curve.epoch_s(width, "p90")
    again_s = forecasts.time_to_free_s(job) + curve.start_s(width, "p90")
    return context.time_left_s(job) - again_s - rest_s


def _make_room(context: DecisionContext, job: Job, width: int, spare_s: float) -> None:
    """Stop others on any nodes, so that it can start on this width once they and its epoch are done."""
    may = context.state.eligible_nodes(job) or frozenset()
    coming = context.releases.own(job) + context.releases.shared
    need = context.need(job, width - job.workers, may, coming)
    patience_s = _patience_s(context, job, width, spare_s)
    if need.workers_fitting < need.workers and patience_s > 0.0:
        chosen = choose(context, job, need, patience_s, tiers=3)
        if all(victim.delay_s <= patience_s for victim in chosen):
            carry_out(context, chosen, job, need.workers * job.gpus_per_worker, "promised")


def _patience_s(context: DecisionContext, job: Job, width: int, spare_s: float) -> float:
    """How long it can wait to start on another width: each epoch until then is as much slower."""
    curve = context.forecasts.curve(job)
    epoch_s = curve.epoch_s(job.workers, "p90")
    slower_s = epoch_s - curve.epoch_s(width, "p90")
    if not 0.0 < slower_s < FOREVER:
        return 0.0
    epochs = floor(min(spare_s / slower_s, curve.epochs_left - 1))
    return context.forecasts.time_to_free_s(job) + epochs * epoch_s


def _well_ahead(context: DecisionContext, job: Job, keeps: int) -> bool:
    """A job with a deadline gives workers back only if it is ahead by a share of its window."""
    deadline_at = context.deadline_at(job)
    if deadline_at == FOREVER or job.service_class == "best_effort":
        return True
    ahead_s = context.time_left_s(job) - context.forecasts.rest_s(job, job.workers)
    return ahead_s > THETA * (deadline_at - job.submitted_at)
