"""How many workers running jobs should have: more to be in time, fewer when others wait.

Autoscaling (algorithms.md 3.5). A job that would miss its deadline grows to the least width that meets
it, from free GPUs, else from donors; where its nodes are full it is stopped to start wider
elsewhere. GPUs that nobody waits for go where they save most time per GPU. Against swings: two
epochs between changes, a re-forming must cost less than a tenth of what it saves, and a job that
ends sooner than a restart takes is left alone. A promise in danger knows none of these.
"""

from dataclasses import replace

import numpy as np

from laxity_scheduler.allocation.victims import Need, Victim, gpus_freed_by, victim_by_shrinking
from laxity_scheduler.frame.fields import (
    BEST_EFFORT,
    LEFT,
    PROMISED_DUE_AT,
    RESUMED_AT,
    SERVICE,
    STARTING,
    WORKERS,
)
from laxity_scheduler.frame.kernels import TINY_S
from laxity_scheduler.model.decision import Preempt, Resize
from laxity_scheduler.model.job import FOREVER, Job
from laxity_scheduler.model.reasons import reason
from laxity_scheduler.promising.queueing import slack
from laxity_scheduler.qos.bargain import Bargain
from laxity_scheduler.qos.donors import carry_out, choose, needed_width
from laxity_scheduler.qos.idle_growth import pays
from laxity_scheduler.qos.planned_sizes import defended
from laxity_scheduler.qos.spreading import more_nodes

WORTHWHILE = 0.95  # a late job changes its width only if that ends it so much sooner


def defend(bargain: Bargain) -> None:
    """Running promised jobs that would miss their deadline get more workers."""
    known = defended(bargain)
    if known is None:
        for job in _in_turn(bargain):
            _defend(bargain, job)
        return
    for job, as_planned, wake_at in zip(*known, strict=True):
        if not as_planned:
            _defend(bargain, job)
        elif job.id not in bargain.acted:
            bargain.wake(wake_at)


def _in_turn(bargain: Bargain) -> list[Job]:
    """Running promised jobs of which something may have to be decided, most urgent first."""
    in_time = _plainly_in_time(bargain) if bargain.reservations.roomy else frozenset()
    jobs = [
        claim.job
        for claim in bargain.reservations.claims
        if claim.job.workers and claim.job.id not in in_time and bargain.formed(claim.job)
    ]
    jobs.sort(key=lambda job: (slack(job, bargain.forecasts)[0], job.id))
    return sorted(jobs, key=lambda job: not _due_now(bargain, job))


def _defend(bargain: Bargain, job: Job) -> None:
    if job.id in bargain.acted:
        return  # it has just given way to one before it
    planned = _planned_width(bargain, job)
    if planned > job.workers:
        _grow(bargain, job, planned)
    elif not planned and _late_s(bargain, job) > TINY_S:
        _grow(bargain, job, _better_width(bargain, job))
    else:
        _wake_when_late(bargain, job)


def _plainly_in_time(bargain: Bargain) -> frozenset[str]:
    """Promised jobs that have their width and end in time with it: nothing is to be done.

    `_wake_when_late` for all of them at once.
    """
    frame, now = bargain.forecasts.frame, bargain.now
    due_at, left = frame.column(PROMISED_DUE_AT), frame.column(LEFT)
    with np.errstate(invalid="ignore"):
        quiet = frame.plain & frame.promised & ~(frame.column(RESUMED_AT) >= now)
        quiet &= frame.remaining_s - (due_at - now) <= TINY_S
    skipped = bargain.newly.keys() | bargain.acted
    if skipped:
        quiet &= np.array([job.id not in skipped for job in frame.jobs], dtype=np.bool_)
    rows = np.flatnonzero(quiet & (frame.column(STARTING) == 0.0))
    after_s = (left[rows] - 0.99) * frame.epoch_s[rows]
    bargain.wake_first(due_at[rows] - after_s + 1e-3)
    return frozenset([job.id for job in frame.where(quiet)])


def _planned_width(bargain: Bargain, job: Job) -> int:
    """The width it should have now, as all claims are planned together; 0 if there is no plan.

    It may be in time though it grows only later; then others make room first. Growth that comes so
    soon that others must be stopped for it is due now.
    """
    reservations = bargain.reservations
    share = reservations.shares.get(job.id)
    if share is None or reservations.roomy or job.id in reservations.late:
        return 0
    return reservations.due_width(share) or job.workers


def _due_now(bargain: Bargain, job: Job) -> bool:
    """Whether it is planned to be wider now: before those whose growth is only soon due."""
    share = bargain.reservations.shares.get(job.id)
    return share is not None and share.workers_now > job.workers


def hasten(bargain: Bargain) -> None:
    """Running soft jobs that would be late grow into GPUs that are free."""
    frame = bargain.forecasts.frame
    unpromised = (frame.column(WORKERS) > 0.0) & ~frame.promised
    for job in frame.where(unpromised & (frame.column(SERVICE) != BEST_EFFORT)):
        if (
            job.service_class != "best_effort"
            and bargain.deadline_at(job) < FOREVER
            and not bargain.claims(job)
            and bargain.formed(job)
            and bargain.cooled_at(job) <= bargain.now
            and _late_s(bargain, job) > TINY_S
        ):
            width = _better_width(bargain, job)
            if width and pays(bargain, job, width):
                _grow_into_free(bargain, job, width)


def narrow(bargain: Bargain) -> None:
    """Jobs wider than they need give workers back while others wait that these would help."""
    if not bargain.blocked:
        return
    donors = [
        victim_by_shrinking(job, keeps, bargain.forecasts)
        for job in bargain.state.running
        if job.preemptible
        and bargain.formed(job)
        and bargain.cooled_at(job) <= bargain.now
        and (keeps := needed_width(bargain, job)) < job.workers
        and _well_ahead(bargain, job, keeps)
        and bargain.forecasts.rest_s(job, job.workers) > bargain.forecasts.boundary_s(job) + TINY_S
    ]
    for one in bargain.blocked[: bargain.rules.most_displacing]:
        if not donors:
            return
        if one.job.id in bargain.waits_for:
            continue
        gpus, may = one.job.gpus_per_worker, bargain.state.eligible_nodes(one.job) or frozenset()
        need = bargain.need(one.job, one.workers, may, dict(bargain.coming.shared))
        if need.workers_fitting >= one.workers:
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
        carry_out(bargain, tuple(chosen), one.job, one.workers * gpus, one.rank)
        return  # one at a time: the next cycle sees what came of it


def _late_s(bargain: Bargain, job: Job) -> float:
    return bargain.forecasts.rest_s(job, job.workers) - bargain.left_s(job)


def _wake_when_late(bargain: Bargain, job: Job) -> None:
    """An epoch that takes longer than predicted moves the finish, second by second."""
    if job.epoch_started_at is None:
        return
    curve = bargain.forecasts.curve(job)
    after_s = (curve.epochs_left - 0.99) * curve.epoch_s(job.formed or job.workers, "p90")
    bargain.wake(bargain.deadline_at(job) - after_s + 1e-3)


def _better_width(bargain: Bargain, job: Job) -> int:
    """The least wider width that is in time; else the fastest, if it is much faster; else 0."""
    forecasts, left_s = bargain.forecasts, bargain.left_s(job)
    wider = [width for width in forecasts.curve(job).widths if width > job.workers]
    rests = {width: forecasts.rest_s(job, width) for width in wider}
    in_time = [width for width in wider if rests[width] <= left_s + TINY_S]
    if in_time:
        return in_time[0]
    best = min(wider, key=lambda width: rests[width], default=0)
    now_s = forecasts.rest_s(job, job.workers)
    return best if best and rests[best] < WORTHWHILE * now_s else 0


def _grow(bargain: Bargain, job: Job, width: int) -> None:
    """Defend a promise: free GPUs, then donors, then a restart where there is room."""
    if not width or _grow_into_free(bargain, job, width):
        return
    if bargain.forecasts.rest_s(job, width) > bargain.left_s(job) + TINY_S:
        return  # nobody is stopped for a promise that is broken all the same
    may = bargain.state.eligible_nodes(job)
    own = frozenset(job.nodes) if may is None else may.intersection(job.nodes)
    nodes = (may or frozenset()) if bargain.grows else own
    if not nodes and not (bargain.grows and may is None):
        return
    mine, gpus = bargain.coming.own(job), job.gpus_per_worker
    coming = mine + bargain.coming.shared
    need = bargain.need(job, width - job.workers, nodes, coming)
    bargain.coming.use(replace(need, coming=mine))
    if need.workers_fitting >= need.workers:
        _keep_free(bargain, job, need, ())
        return  # on its way
    chosen = choose(bargain, job, need, max(0.0, -_late_s(bargain, job)), tiers=3)
    if chosen:
        carry_out(bargain, chosen, job, need.workers * gpus, "promised")
        _keep_free(bargain, job, need, chosen)
    elif not bargain.grows:
        _restart_wider(bargain, job)


def _keep_free(bargain: Bargain, job: Job, need: Need, chosen: tuple[Victim, ...]) -> None:
    """What is free is kept for it while the rest of what it needs is on its way."""
    for placed in range(need.workers):
        if more_nodes(bargain, job, 1) is None:
            bargain.keep_parts(need, gpus_freed_by(chosen), need.workers - placed)
            return


def _grow_into_free(bargain: Bargain, job: Job, width: int) -> bool:
    """The width itself, or the widest below it that fits and helps."""
    forecasts = bargain.forecasts
    late_s = _late_s(bargain, job)
    bargain.ledger.open_holds(job.id)
    for wider in reversed(forecasts.curve(job).widths):
        if not job.workers < wider <= width:
            continue
        if forecasts.rest_s(job, wider) >= forecasts.rest_s(job, job.workers):
            continue
        more = more_nodes(bargain, job, wider - job.workers)
        if more is not None:
            why = reason(
                "grow_to_meet_deadline", late_s=late_s, from_workers=job.workers, workers=wider
            )
            bargain.change(Resize(job.id, wider, job.nodes + more, "now", why))
            return True
    bargain.ledger.close_holds(job.id)
    return False


def _restart_wider(bargain: Bargain, job: Job) -> None:
    """Its nodes are full: stop at the epoch's end and start wider elsewhere, if that is in time."""
    forecasts, curve = bargain.forecasts, bargain.forecasts.curve(job)
    if not job.preemptible:
        return
    freed_s = forecasts.freed_s(job)
    for width in curve.widths:
        if width <= job.workers:
            continue
        after_s = (curve.epochs_left - 1) * curve.epoch_s(width, "p90")
        in_time = freed_s + curve.start_s(width, "p90") + after_s <= bargain.left_s(job)
        may = bargain.state.eligible_nodes(job)
        slots = bargain.ledger.slots(job.gpus_per_worker, may)
        more_gpus = (width - job.workers) * job.gpus_per_worker
        fits = more_gpus <= bargain.sites.quota_left(job)
        if in_time and fits and slots + job.workers >= width:
            why = reason("restart_wider", workers=width, late_s=_late_s(bargain, job))
            bargain.change(Preempt(job.id, "epoch", job.id, why))
            for _ in range(width - job.workers):
                bargain.ledger.place(1, job.gpus_per_worker, may)
            return


def _well_ahead(bargain: Bargain, job: Job, keeps: int) -> bool:
    """A job with a deadline gives workers back only if it is ahead by a share of its window."""
    deadline_at = bargain.deadline_at(job)
    if deadline_at == FOREVER or job.service_class == "best_effort":
        return True
    ahead_s = bargain.left_s(job) - bargain.forecasts.rest_s(job, job.workers)
    return ahead_s > bargain.rules.theta * (deadline_at - job.submitted_at)
