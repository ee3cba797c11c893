"""Whose GPUs go to whom: some workers of a job, or all, for one that cannot wait.

Jobs that are wider than they need come first, then best effort, then soft ones, then promised ones
with enough slack; of the first tier that does, the cheapest set.
"""

from collections import Counter
from dataclasses import replace
from typing import Final

from laxity_scheduler.allocation.victims import (
    Need,
    Victim,
    cheapest_victims,
    gpus_of,
    victim_by_shrinking,
    victim_by_stopping,
)
from laxity_scheduler.model.decision import Preempt, Resize
from laxity_scheduler.model.job import FOREVER, Job
from laxity_scheduler.model.reasons import reason
from laxity_scheduler.model.worker_shape import NodeRoom, spend, workers_that_fit
from laxity_scheduler.promising.claims import was_stopped_often
from laxity_scheduler.promising.queueing import slack
from laxity_scheduler.qos.context import MARGIN, DecisionContext

PROMISED: Final = 3  # the last tier


def choose(
    context: DecisionContext, job: Job, need: Need, patience_s: float, *, tiers: int
) -> tuple[Victim, ...]:
    """The cheapest jobs to narrow or stop, from the lowest tier that does; () if none does.

    Tiers: wider than they need; best effort; soft; promised jobs with enough slack.
    """
    for tier in range(tiers):
        giving = [
            (other, victim)
            for other in _candidates(context)
            if other.id != job.id and _may_give(context, other)
            if _makes_room(context, other, job)
            for victim in _victims(context, other, job, tier, patience_s)
        ]
        if tier == PROMISED:
            lasting = [
                victim for other, victim in giving if _makes_lasting_way(context, other, job)
            ]
            chosen = cheapest_victims(lasting, need)
            if chosen and all(victim.delay_s <= patience_s for victim in chosen):
                return chosen
        chosen = cheapest_victims([victim for _, victim in giving], need)
        if chosen is not None:
            return chosen
    return ()


def _makes_room(context: DecisionContext, other: Job, job: Job) -> bool:
    """Whether a job that stops leaves a node room for a worker of this one, not GPUs alone."""
    for name, workers in Counter(other.nodes).items() if job.needs else ():
        node = context.nodes_by_id.get(name)
        room = None if node is None else node.free_room
        freed = NodeRoom(job.gpus_per_worker, room and spend(room, other.needs, -workers))
        if workers_that_fit(freed, job.shape):
            return True
    return not job.needs


def _makes_lasting_way(context: DecisionContext, other: Job, job: Job) -> bool:
    """Whether it is planned to start again no sooner than this job can be done on its GPUs.

    To stop one that is back before, on the GPUs of another that makes way, is to stop two for one.
    """
    share = context.reservations.shares.get(other.id) if context.claims(other) else None
    if share is None or share.workers_now:
        return True
    forecasts = context.forecasts
    return share.starts_s >= forecasts.time_to_free_s(other) + forecasts.trajectory_s(job)


def _candidates(context: DecisionContext) -> list[Job]:
    """Running jobs of which anything may be taken, as long as nothing is decided on them."""
    if context.candidates is None:
        context.candidates = [
            job for job in context.state.running if job.preemptible and context.is_settled(job)
        ]
    return context.candidates


def _may_give(context: DecisionContext, other: Job) -> bool:
    """Nothing is decided on it but, perhaps, that it gives some workers; nobody awaits its end."""
    if other.id in context.ends:
        return False
    return other.id not in context.acted or other.id in context.shrunk


def carry_out(
    context: DecisionContext, chosen: tuple[Victim, ...], job: Job, gpus: int, rank: str
) -> None:
    """Ask the victims to stop or to narrow, in this job's favour."""
    for victim in chosen:
        other = context.state.by_id[victim.job]
        if victim.keeps:
            freed = (other.workers - victim.keeps) * other.gpus_per_worker
            shrink = reason("shrink_donor", gpus=freed, beneficiary=job.id)
            nodes = other.nodes[: victim.keeps]
            context.change(Resize(other.id, victim.keeps, nodes, "epoch", shrink))
            continue
        code = "preempt_for_aged" if rank == "aged" else "preempt_for"
        preempt_reason = reason(code, beneficiary=job.id, gpus=gpus)
        context.change(Preempt(other.id, victim.moment, job.id, preempt_reason))


def _victims(
    context: DecisionContext, other: Job, job: Job, tier: int, patience_s: float
) -> tuple[Victim, ...]:
    """What this job could give at this tier: nothing, some of its workers, or all."""
    if tier and _tier(context, other) <= tier and _may_be_stopped(context, other, job, patience_s):
        stopped = context.stopped.get(other.id)
        if stopped is None:
            stopped = context.stopped[other.id] = victim_by_stopping(
                other, context.forecasts, FOREVER
            )
        if stopped.delay_s > patience_s:
            stopped = victim_by_stopping(other, context.forecasts, patience_s)
        return (_of_the_rest(context, other, stopped),)
    if other.id in context.shrunk:
        return ()
    spare = context.narrowed.get(other.id)
    if spare is None:
        keeps = least_width_in_time(context, other)
        may = context.is_formed(other) and keeps < other.workers
        spare = (victim_by_shrinking(other, keeps, context.forecasts),) if may else ()
        context.narrowed[other.id] = spare
    return spare


def _of_the_rest(context: DecisionContext, other: Job, stopped: Victim) -> Victim:
    """Of a job that shrinks: the workers that leave are counted already."""
    keeps = context.shrunk.get(other.id) or other.resize_to
    if not 0 < keeps < other.workers:
        return stopped
    freed = sorted(gpus_of(other, other.nodes[:keeps]).items())
    return replace(stopped, frees=tuple(freed))


def _tier(context: DecisionContext, job: Job) -> int:
    if context.claims(job):
        return PROMISED
    return 2 if job.id in context.reservations.behind else 1


def _may_be_stopped(context: DecisionContext, other: Job, job: Job, patience_s: float) -> bool:
    forecasts, rules = context.forecasts, context.rules
    if context.claims(other):
        share = context.reservations.shares.get(other.id)
        if share is not None and not share.workers_now:
            return True  # as planned: it gives way and is in time all the same
        if context.just_started(other, patience_s):
            return False
        curve = forecasts.curve(other)
        lost_s = forecasts.time_to_free_s(other) + curve.start_s(other.workers, "p90")
        if not other.holds_state:  # it begins anew
            lost_s = forecasts.restart_s(other) - forecasts.rest_s(other, other.workers)
        slack_s, _ = slack(other, forecasts)
        return slack_s > lost_s + _time_away_s(context, other, job)
    if context.claims(job):
        return True
    ran_s = context.now - (context.now if other.resumed_at is None else other.resumed_at)
    return ran_s >= rules.least_run_s and not was_stopped_often(other)


def _time_away_s(context: DecisionContext, other: Job, job: Job) -> float:
    """How long a promised job that is planned to run on waits, once it is stopped for another.

    Until that one is done. But plans have GPUs for both, only not side by side on nodes: one with
    smaller workers has others as soon as all who have no claim have left these.
    """
    done_s = context.forecasts.trajectory_s(job)
    if other.gpus_per_worker < job.gpus_per_worker:
        return min(done_s, context.reservations.room.rows.drain_s)
    return done_s


def least_width_in_time(context: DecisionContext, job: Job) -> int:
    """The least width at which it is still in time with a margin; its least without a deadline."""
    share = context.reservations.shares.get(job.id)
    if share is not None and not context.reservations.roomy:
        return min(share.workers_now or job.workers, job.workers)  # as planned
    curve = context.forecasts.curve(job)
    left_s = context.time_left_s(job)
    if left_s == FOREVER or job.service_class == "best_effort":
        return min(curve.least, job.workers)
    for width in curve.widths:
        if width >= job.workers:
            return job.workers
        if context.forecasts.rest_s(job, width) <= (1.0 - MARGIN) * left_s:
            return width
    return job.workers
