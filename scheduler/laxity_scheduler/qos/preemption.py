"""Whose GPUs go to whom: some workers of a job, or all, for one that cannot wait.

Jobs that are wider than they need come first, then best effort, then soft ones, then promised ones
with enough slack; of the first tier that does, the cheapest set.

Promised jobs make way as planned: they stop now and start again later, in time all the same. To the
letter, plans would stop them for somebody for whom enough is free, or is being freed, already.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from laxity_scheduler.allocation.victims import (
    Need,
    Victim,
    cheapest_victims,
    gpus_of,
    victim_by_shrinking,
    victim_by_stopping,
)
from laxity_scheduler.capacity.ledger import Ledger
from laxity_scheduler.model.decision import Preempt, Resize
from laxity_scheduler.model.job import FOREVER, Job, NodeRoom, spend, workers_that_fit
from laxity_scheduler.model.reasons import reason
from laxity_scheduler.promising.claims import was_stopped_often
from laxity_scheduler.promising.queueing import Waiting, slack
from laxity_scheduler.qos.context import MARGIN, MOST_DISPLACING, DecisionContext

PROMISED: Final = 3  # the last tier
Kept = Mapping[str, Counter[str]]  # what is kept free for whom, by node
NeedOf = Callable[[Waiting, "Counter[str]"], Need | None]


def choose(
    context: DecisionContext, job: Job, need: Need, patience_s: float, *, tiers: int
) -> tuple[Victim, ...]:
    """The cheapest jobs to narrow or stop, from the lowest tier that does in time; () if none does.

    Tiers: wider than they need; best effort; soft; promised jobs with enough slack. Where none does in
    time, from the lowest that does at all.
    """
    too_late: tuple[Victim, ...] = ()
    for tier in range(tiers):
        giving = [
            (other, victim)
            for other in _candidates(context)
            if other.id != job.id and _may_give(context, other)
            if _makes_room(context, other, job)
            for victim in _victims(context, other, job, tier, patience_s)
        ]
        in_time = [(other, victim) for other, victim in giving if victim.delay_s <= patience_s]
        if tier == PROMISED:
            lasting = [
                victim for other, victim in in_time if _makes_lasting_way(context, other, job)
            ]
            if chosen := cheapest_victims(lasting, need):
                return chosen
        chosen = cheapest_victims([victim for _, victim in in_time], need)
        if chosen is not None:
            return chosen
        if not too_late and len(in_time) < len(giving):
            too_late = cheapest_victims([victim for _, victim in giving], need) or ()
    return too_late


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
        return min(done_s, context.reservations.room.drain_s)
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


def preempt_as_planned(context: DecisionContext, served: Collection[str], kept: Kept) -> None:
    """Stop those that are planned to wait, for the first that is planned to take GPUs and lacks them.

    None where all who take have what they need, free or on its way; else no more GPUs than are
    planned to be taken in all. For who is `served`, others are stopped already or need not be.
    """
    reservations = context.reservations
    if reservations.roomy:
        return
    shares, takers = reservations.shares, _takers(context, served)
    jobs = context.state.running if takers else ()
    now = shares.rows_of([job.id for job in jobs]).workers_now
    ways = [jobs[place] for place in np.flatnonzero(now == 0).tolist()]
    ways = [job for job in ways if context.is_settled(job) and job.preemptible]
    taker, ways = _first_short(context, takers, ways, kept) if ways else (None, ways)
    if taker is None:
        return
    left = sum((shares[job.id].widest - job.workers) * job.gpus_per_worker for job in takers)
    patience_s, _ = slack(taker, context.forecasts)
    code = "preempt_for_aged" if taker in reservations.aged else "preempt_for"
    places = _find_places(context, taker, ways)
    ways.sort(
        key=lambda job: context.forecasts.time_to_free_s(job) > patience_s
    )  # in time for it first
    for job in ways:
        if shares[job.id].starts_s <= shares[taker.id].starts_s:
            continue  # it is back by then: it makes way for somebody else
        if left > 0 and job.id != taker.id and _could_use(taker, job, places):
            left -= job.gpus
            preempt_reason = reason(code, beneficiary=taker.id, gpus=job.gpus)
            context.change(Preempt(job.id, "epoch", taker.id, preempt_reason))


def ask_in_time(context: DecisionContext, later: Sequence[Waiting], need_of: NeedOf) -> set[str]:
    """Stop for the first of those that start later who else would be given its GPUs too late (ours).

    Who has no claim gives them at the end of an epoch. The last that ends in time may have begun. Those
    after the first get what it gives back. Returns for whom somebody is asked.
    """
    reservations, frame = context.reservations, context.forecasts.frame
    ones = [one for one in later if one.rank == "promised"]
    if not ones:
        return set()
    again_s = reservations.room.rows.freed_again_s
    plans = reservations.shares.rows_of([one.job.id for one in ones])
    left_s = frame.in_force_at[frame.row_numbers([one.job for one in ones])] - context.now
    latest_s = plans.starts_s + np.maximum(0.0, left_s - plans.finish_s)  # just in time
    places = np.flatnonzero(latest_s < again_s.max(initial=0.0))
    places = places[np.argsort(plans.starts_s[places], kind="stable")][:MOST_DISPLACING]
    running = [
        job
        for job in (context.state.running if len(places) else ())
        if job.id in reservations.shares and context.is_settled(job)
    ]
    runs = reservations.shares.rows_of([job.id for job in running])
    for place in places.tolist():
        one, patience_s = ones[place], float(latest_s[place])
        coming = context.releases.own(one.job) + context.releases.shared
        for other in np.flatnonzero(runs.widths_at(float(plans.starts_s[place])) == 0).tolist():
            coming += gpus_of(running[other], running[other].nodes)
        need = need_of(one, coming)
        if need is None or need.workers_fitting >= one.workers:
            continue
        chosen = choose(context, one.job, need, patience_s, tiers=PROMISED)
        rows = frame.row_numbers([context.state.by_id[victim.job] for victim in chosen])
        if not (again_s[rows] > patience_s).any():
            break
        carry_out(context, chosen, one.job, need.workers * one.job.gpus_per_worker, one.rank)
        context.waits_for[one.job.id] = tuple(victim.job for victim in chosen)
        return {one.job.id}
    return set()


def _takers(context: DecisionContext, served: Collection[str]) -> list[Job]:
    """The jobs that are planned to have more workers than they have, most urgent first.

    Those that were given some at this very instant can take more only later.
    """
    claims = context.reservations.claims
    planned = context.reservations.shares.rows_of(claims.names)
    has = np.array([job.workers for job in claims.jobs], dtype=np.int64)
    takers = claims.at(np.flatnonzero((planned.widest > has) & (planned.workers_now >= has)))
    gone = {*context.starts, *served, *context.acted}
    by_deadline = np.lexsort((context.forecasts.frame.ranks[takers.rows], takers.deadline_s))
    return [
        job
        for job in takers.at(by_deadline).jobs
        if job.id not in gone and not context.is_just_served(job)
    ]


def _first_short(
    context: DecisionContext, takers: list[Job], ways: list[Job], kept: Kept
) -> tuple[Job | None, list[Job]]:
    """The most urgent of these for whom not enough is free or on its way, and who makes way for it.

    Whose quota is used up needs a job of the same quota to make way. Where one without a claim will do
    that, and nodes are full as well, others may free these. No promise makes way for a soft claim.
    """
    trial, behind = context.ledger.copy(), context.reservations.behind
    taken: Counter[str] = Counter()  # of quotas
    for taker in takers:
        own = context.releases.own(taker) + kept.get(taker.id, Counter())
        need = _need_of(context, taker, trial, own + context.releases.shared)
        if need is None:
            continue
        need = replace(need, quota_left=max(0, need.quota_left - taken[need.quota]))
        context.releases.use(replace(need, coming=own))
        stopped = [job for job in ways if taker.id not in behind or job.id in behind]
        if need.exceeds_quota:
            mine = [job for job in stopped if job.quota == taker.quota]
            if mine:
                return taker, mine
            if stopped and _lacks_nodes(need) and _quota_comes(context, taker, need):
                return taker, stopped
        elif stopped and need.workers_fitting < need.workers:
            return taker, stopped
        size, among = taker.gpus_per_worker, need.nodes or None
        fitting = min(
            need.workers, need.workers_fitting, trial.slots(size, among, needs=taker.needs)
        )
        trial.place(fitting, size, among, needs=taker.needs)
        taken[need.quota] += need.workers * size
    return None, []


def _need_of(
    context: DecisionContext, taker: Job, ledger: Ledger, coming: Counter[str]
) -> Need | None:
    """What a job needs to be as wide as it is planned to be; None if no node is for that."""
    may = context.state.eligible_nodes(taker)
    workers = context.reservations.shares[taker.id].widest - taker.workers
    among = may or frozenset()
    if taker.workers and not context.grows:
        among = frozenset(taker.nodes) if may is None else may.intersection(taker.nodes)
    if may is not None and not among:
        return None
    return context.need(taker, workers, among, coming, ledger=ledger)


def _lacks_nodes(need: Need) -> bool:
    return replace(need, quota="").workers_fitting < need.workers


def _quota_comes(context: DecisionContext, taker: Job, need: Need) -> bool:
    """Whether its quota has enough once some jobs are gone that nobody needs to stop as planned.

    Those that are done by the time it is planned to start; those without a claim are stopped in its turn.
    """
    starts_s = context.reservations.shares[taker.id].starts_s
    gpus = sum(
        job.gpus
        for job in context.state.running
        if job.quota == taker.quota
        and (
            (job.preemptible and not context.claims(job))
            or context.forecasts.trajectory_s(job) <= starts_s
        )
    )
    return not replace(need, quota_left=need.quota_left + gpus).exceeds_quota


def _find_places(context: DecisionContext, taker: Job, ways: Collection[Job]) -> frozenset[str]:
    """The nodes that can be left to a whole worker of it when it is planned to start.

    Who may not be stopped, or is planned to run on, is still there then, unless it will have ended.
    """
    starts_s = context.reservations.shares[taker.id].starts_s
    leaves, stays = frozenset(job.id for job in ways), Counter[str]()
    for job in context.state.running if taker.gpus_per_worker > 1 else ():
        goes = job.preemptible and not context.claims(job)
        if not (goes or job.id in leaves or context.forecasts.trajectory_s(job) <= starts_s):
            for name in job.nodes:
                stays[name] += job.gpus_per_worker
    may = context.state.eligible_nodes(taker)
    return frozenset(
        name
        for name, node in context.nodes_by_id.items()
        if may is None or name in may
        if node.gpus - stays[name] >= taker.gpus_per_worker
    )


def _could_use(taker: Job, victim: Job, places: frozenset[str]) -> bool:
    """Whether a job may use any of the nodes that another one would free, or of its quota."""
    shares_quota = bool(taker.quota) and taker.quota == victim.quota
    return shares_quota or not places.isdisjoint(victim.nodes)
