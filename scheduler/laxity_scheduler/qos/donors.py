"""Whose GPUs go to whom: some workers of a job, or all, for one that cannot wait.

Jobs that are wider than they need come first, then best effort, then soft ones, then promised ones
with enough slack; of the first tier that does, the cheapest set.
"""

from dataclasses import replace

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
from laxity_scheduler.promising.queueing import slack
from laxity_scheduler.qos.bargain import Bargain


def choose(
    bargain: Bargain, job: Job, need: Need, patience_s: float, *, tiers: int
) -> tuple[Victim, ...]:
    """The cheapest jobs to narrow or stop, from the lowest tier that does; () if none does.

    Tiers: wider than they need; best effort; soft; promised jobs with enough slack.
    """
    for tier in range(tiers):
        victims = [
            victim
            for other in _candidates(bargain)
            if other.id != job.id and _may_give(bargain, other)
            for victim in _victims(bargain, other, job, tier, patience_s)
        ]
        chosen = cheapest_victims(victims, need)
        if chosen is not None:
            return chosen
    return ()


def _candidates(bargain: Bargain) -> list[Job]:
    """Running jobs of which anything may be taken, as long as nothing is decided on them."""
    if bargain.candidates is None:
        bargain.candidates = [
            job for job in bargain.state.running if job.preemptible and bargain.settled(job)
        ]
    return bargain.candidates


def _may_give(bargain: Bargain, other: Job) -> bool:
    """Nothing is decided on it but, perhaps, that it gives some workers; nobody awaits its end."""
    if other.id in bargain.ends:
        return False
    return other.id not in bargain.acted or other.id in bargain.shrunk


def carry_out(bargain: Bargain, chosen: tuple[Victim, ...], job: Job, gpus: int, rank: str) -> None:
    """Ask the victims to stop or to narrow, in this job's favour."""
    for victim in chosen:
        other = bargain.state.by_id[victim.job]
        if victim.keeps:
            freed = (other.workers - victim.keeps) * other.gpus_per_worker
            shrink = reason("shrink_donor", gpus=freed, beneficiary=job.id)
            nodes = other.nodes[: victim.keeps]
            bargain.change(Resize(other.id, victim.keeps, nodes, "epoch", shrink))
            continue
        code = "preempt_for_aged" if rank == "aged" else "preempt_for"
        why = reason(code, beneficiary=job.id, gpus=gpus)
        bargain.change(Preempt(other.id, victim.moment, job.id, why))


def _victims(
    bargain: Bargain, other: Job, job: Job, tier: int, patience_s: float
) -> tuple[Victim, ...]:
    """What this job could give at this tier: nothing, some of its workers, or all."""
    if tier and _tier(bargain, other) <= tier and _may_be_stopped(bargain, other, job, patience_s):
        stopped = bargain.stopped.get(other.id)
        if stopped is None:
            stopped = bargain.stopped[other.id] = victim_by_stopping(
                other, bargain.forecasts, FOREVER
            )
        if stopped.delay_s > patience_s:
            stopped = victim_by_stopping(other, bargain.forecasts, patience_s)
        return (_of_the_rest(bargain, other, stopped),)
    if other.id in bargain.shrunk:
        return ()
    spare = bargain.narrowed.get(other.id)
    if spare is None:
        keeps = needed_width(bargain, other)
        may = bargain.formed(other) and keeps < other.workers
        spare = (victim_by_shrinking(other, keeps, bargain.forecasts),) if may else ()
        bargain.narrowed[other.id] = spare
    return spare


def _of_the_rest(bargain: Bargain, other: Job, stopped: Victim) -> Victim:
    """Of a job that shrinks: the workers that leave are counted already."""
    keeps = bargain.shrunk.get(other.id) or other.resize_to
    if not 0 < keeps < other.workers:
        return stopped
    freed = sorted(gpus_of(other, other.nodes[:keeps]).items())
    return replace(stopped, frees=tuple(freed))


def _tier(bargain: Bargain, job: Job) -> int:
    if bargain.claims(job):
        return 3
    return 1 if job.service_class == "best_effort" else 2


def _may_be_stopped(bargain: Bargain, other: Job, job: Job, patience_s: float) -> bool:
    if not other.preemptible:
        return False
    forecasts, rules = bargain.forecasts, bargain.rules
    if bargain.claims(other):
        share = bargain.reservations.shares.get(other.id)
        if share is not None and not share.workers_now:
            return True  # as planned: it gives way and is in time all the same
        if bargain.just_started(other, patience_s):
            return False
        curve = forecasts.curve(other)
        lost_s = forecasts.freed_s(other) + curve.start_s(other.workers, "p90")
        waits_s = forecasts.trajectory_s(job)
        slack_s, _ = slack(other, forecasts)
        return slack_s > lost_s + waits_s
    if bargain.claims(job):
        return True
    ran_s = bargain.now - (bargain.now if other.resumed_at is None else other.resumed_at)
    return ran_s >= rules.least_run_s and other.preemptions < rules.most_preemptions


def needed_width(bargain: Bargain, job: Job) -> int:
    """The least width at which it is still in time with a margin; its least without a deadline."""
    share = bargain.reservations.shares.get(job.id)
    if share is not None and not bargain.reservations.roomy:
        return min(share.workers_now or job.workers, job.workers)  # as planned
    curve = bargain.forecasts.curve(job)
    left_s = bargain.left_s(job)
    if left_s == FOREVER or job.service_class == "best_effort":
        return min(curve.least, job.workers)
    for width in curve.widths:
        if width >= job.workers:
            return job.workers
        if bargain.forecasts.rest_s(job, width) <= (1.0 - bargain.rules.margin) * left_s:
            return width
    return job.workers
