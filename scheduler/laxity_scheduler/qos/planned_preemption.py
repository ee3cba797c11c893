"""Promised jobs that make way for others: they stop now and start again later, in time all the same.

Plans say who runs and who waits. Carrying that out to the letter would stop promised jobs for
somebody for whom enough is free, or is being freed, already.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np

from laxity_scheduler.allocation.victims import Need
from laxity_scheduler.capacity.ledger import Ledger
from laxity_scheduler.model.decision import Preempt
from laxity_scheduler.model.job import Job
from laxity_scheduler.model.reasons import reason
from laxity_scheduler.promising.queueing import slack
from laxity_scheduler.qos.context import DecisionContext

Kept = Mapping[str, Counter[str]]  # what is kept free for whom, by node


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
    ways.sort(
        key=lambda job: context.forecasts.time_to_free_s(job) > patience_s
    )  # in time for it first
    for job in ways:
        if shares[job.id].starts_s <= shares[taker.id].starts_s:
            continue  # it is back by then: it makes way for somebody else
        if left > 0 and job.id != taker.id and _could_use(context, taker, job):
            left -= job.gpus
            preempt_reason = reason("preempt_for", beneficiary=taker.id, gpus=job.gpus)
            context.change(Preempt(job.id, "epoch", taker.id, preempt_reason))


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


def _could_use(context: DecisionContext, taker: Job, victim: Job) -> bool:
    """Whether a job may use any of the nodes that another one would free, or of its quota."""
    may = context.state.eligible_nodes(taker)
    shares_quota = bool(taker.quota) and taker.quota == victim.quota
    return shares_quota or may is None or not may.isdisjoint(victim.nodes)
