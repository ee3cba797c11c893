"""Verdicts on hard jobs that ask, and the end of those that are not to go on past their deadline.

Hundreds of newcomers are promised their deadlines in one go (`Newcomers`); others one by one.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from laxity_scheduler.frame.arrays import Ints
from laxity_scheduler.frame.fields import (
    BEST_EFFORT,
    DUE_AT,
    HARD,
    LEFT,
    PINNED,
    PROMISED_DUE_AT,
    SERVICE,
    STAYS,
    STOPS_LATE,
    WANTS,
    WORKERS,
)
from laxity_scheduler.frame.kernels import TINY_S
from laxity_scheduler.model.decision import Forecasted, Preempt, Refuse
from laxity_scheduler.model.job import FOREVER, Forecast, Job, PendingPromise, Promise, Refusal
from laxity_scheduler.model.reasons import reason
from laxity_scheduler.promising.claims import Claims, claims_of, want_promise
from laxity_scheduler.promising.planner import Plans
from laxity_scheduler.promising.queueing import WaitingTable
from laxity_scheduler.promising.reservations import MOST_OTHERS, Reservations
from laxity_scheduler.qos.context import DecisionContext
from laxity_scheduler.qos.start_widths import LOOK_AGAIN_S

CHUNK: Final = 512  # so many are planned in one call


class Newcomers:
    """Hard jobs that ask for a promise, in order, up to the first that does not wait."""

    def __init__(
        self, table: WaitingTable, jobs: Sequence[Job], reservations: Reservations
    ) -> None:
        self._table, self._reservations = table, reservations
        places = table.at(jobs)
        due_s = table.column(DUE_AT)[places] - table.now
        self._claims = Claims(jobs[: len(places)], table.rows[places], due_s)
        self._size = table.size[places]
        rest, width = table.rest_s[places], table.width[places]
        in_time = (rest <= due_s[:, None] + TINY_S) & (rest < FOREVER) & (width > 0)
        level, among = in_time.argmax(axis=1), np.arange(len(places))
        self._width, self._rest_s = width[among, level], rest[among, level]
        may = np.full(len(places), not reservations.state.budgets)
        may &= _possible(table, places, reservations)
        self._odd = np.flatnonzero(~(may & in_time.any(axis=1)))

    def promise(self, first: int) -> dict[str, PendingPromise]:
        """The next of them that are plainly in time: counted among the claims."""
        index = int(np.searchsorted(self._odd, first))
        last = int(self._odd[index]) if index < len(self._odd) else len(self._size)
        if self._reservations.roomy:
            return self._together(slice(first, last))
        return self._behind(first, last)

    def _together(self, places: slice) -> dict[str, PendingPromise]:
        """As long as all claims run at once, each on its least width."""
        before, claims = self._reservations.first_names, self._claims.at(places)
        widths, sizes, finish_s = self._width[places], self._size[places], self._rest_s[places]
        count = self._reservations.admit_all(claims, widths, finish_s, sizes)
        return self._build_pending_promises(claims.at(slice(count)), before)

    def _behind(self, first: int, last: int) -> dict[str, PendingPromise]:
        """As long as each is in time behind all claims, as they are planned."""
        promises: dict[str, PendingPromise] = {}
        count = CHUNK
        while count == CHUNK:
            before, begin = self._reservations.first_names, first + len(promises)
            places = slice(begin, min(last, begin + CHUNK))
            count = self._reservations.admit_behind(self._plans, places)
            claims = self._claims.at(slice(begin, begin + count))
            promises |= self._build_pending_promises(claims, before)
        return promises

    @cached_property
    def _plans(self) -> Plans:
        """Room for their shares."""
        return Plans(self._reservations.room.planner, self._claims)

    def _build_pending_promises(
        self, claims: Claims, before: Sequence[str]
    ) -> dict[str, PendingPromise]:
        """Promises that rest on the first claims of all: those before, then one another."""
        jobs, curves, begun = claims.jobs, self._table.frame.curves, len(before)
        sources = [curves[row].source for row in claims.rows.tolist()]
        others = [*before, *(job.id for job in jobs[: MOST_OTHERS - begun])]
        names_by_source = {source: (source, *others) for source in set(sources)}
        rests_on = [
            names_by_source[source]
            if begun + row >= MOST_OTHERS
            else (source, *others[: begun + row])
            for row, source in enumerate(sources)
        ]
        return {
            job.id: PendingPromise(job.deadline_at, names)
            for job, names in zip(jobs, rests_on, strict=True)
        }


def assume_promised(context: DecisionContext, names: frozenset[str]) -> None:
    """These jobs, whose claims the snapshot has already, are promised by this decision."""
    for job in context.state.jobs if names else ():
        if job.id in names:
            source = context.forecasts.curve(job).source
            others = [name for name in context.reservations.first_names if name != job.id]
            context.newly[job.id] = PendingPromise(job.deadline_at, (source, *others))


def holds_share(job: Job) -> bool:
    """Whether it is promised with its group: no more is asked about it than when it must end."""
    return isinstance(job.verdict, Promise) and job.verdict.reason.code == "share_of_group"


def give_verdicts(context: DecisionContext) -> None:
    """Of hard jobs that ask. Amended promises first: they are judged on the snapshot's rows."""
    frame = context.forecasts.frame
    asking = [
        job
        for job in frame.where((frame.column(WANTS) > 0.0) & (frame.column(SERVICE) == HARD))
        if not job.pinned
    ]
    amended = [job for job in asking if isinstance(job.verdict, Promise)]
    shares = [job for job in amended if holds_share(job)]
    assume_promised(context, frozenset([job.id for job in shares]))
    for job in amended:
        if job.id not in context.newly:
            _judge(context, job)
    others = [job for job in asking if not isinstance(job.verdict, Promise)]
    if others:
        _judge_all(context, Newcomers(context.waiting, others, context.reservations), others)


def _judge_all(context: DecisionContext, newcomers: Newcomers, jobs: Sequence[Job]) -> None:
    """One after the other; runs of those of whom nothing special is to be said, all at once."""
    done = 0
    while done < len(jobs):
        promises = newcomers.promise(done)
        context.newly |= promises
        done += len(promises)
        if done < len(jobs):
            _judge(context, jobs[done])
            done += 1


def _judge(context: DecisionContext, job: Job) -> None:
    verdict = context.judge.verdict(job)
    match verdict:
        case Promise():
            context.newly[job.id] = PendingPromise(verdict.deadline_at, verdict.rests_on)
        case Refusal() if _goes(context, job):
            context.decisions.append(Refuse(job.id, verdict, verdict.reason))
        case Refusal():
            context.decisions.append(_runs_on(context, job, verdict))
            context.wake(context.now + LOOK_AGAIN_S)  # from then on it is in the queue
        case Forecast():
            context.decisions.append(Forecasted(job.id, verdict, verdict.reason))


def _goes(context: DecisionContext, job: Job) -> bool:
    """Whether a refused job is told so, and so goes; else it runs on as a soft one."""
    keeps_promise = isinstance(job.verdict, Promise)  # the old promise stands
    return context.rules.refuses or keeps_promise or job.deadline_at <= context.now


def _runs_on(context: DecisionContext, job: Job, verdict: Refusal) -> Forecasted:
    """What a job is told that is not promised and yet stays (algorithms.md 3.4, 10.1)."""
    late_s = max(0.0, verdict.p90_at - job.deadline_at)
    forecast_reason = reason("forecast_late", p90_at=verdict.p90_at, late_s=late_s)
    return Forecasted(
        job.id, Forecast(verdict.p90_at, verdict.p90_at, late_s, forecast_reason), forecast_reason
    )


def stop_missed(context: DecisionContext) -> None:
    """Jobs that are not to go on past their deadline."""
    decided = {d.job for d in context.decisions if isinstance(d, Refuse)}
    for job in context.forecasts.frame.where(context.forecasts.frame.column(STOPS_LATE) > 0.0):
        if job.pinned or job.refused or job.deadline_at == FOREVER:
            continue
        if job.id in decided:
            continue
        late_s = context.now - _last_deadline(job)
        if late_s <= 0.0:
            context.wake(_last_deadline(job) + 1e-3)
            continue
        stop_reason = reason("missed_and_stopped", due_at=_last_deadline(job))
        if job.workers:
            if context.is_settled(job):
                context.change(Preempt(job.id, "epoch", "", stop_reason))
        elif not job.terminating_workers:
            context.acted.add(job.id)
            context.decisions.append(Refuse(job.id, Refusal(stop_reason), stop_reason))


def claim_leftovers(context: DecisionContext) -> None:
    """Jobs with a deadline and no promise claim what promises leave, where that is in time."""
    frame, reservations = context.forecasts.frame, context.reservations
    due_at = frame.column(DUE_AT)
    mask = (due_at > context.now) & (due_at < FOREVER) & ~frame.promised
    mask &= (frame.column(SERVICE) != BEST_EFFORT) & (frame.column(PINNED) == 0.0)
    mask &= (frame.column(WORKERS) == 0.0) | (frame.column(STAYS) == 0.0)
    decided = {d.job for d in context.decisions if isinstance(d, Refuse)}
    jobs = [
        job
        for job in frame.where(mask & ~want_promise(frame))
        if job.id not in reservations.shares and not job.refused
        if job.id not in context.acted and job.id not in decided
    ]
    if jobs:
        left_s = [job.deadline_at - context.now for job in jobs]
        reservations.plan_behind(claims_of(frame, jobs, left_s))


def _last_deadline(job: Job) -> float:
    promised_at = job.verdict.deadline_at if isinstance(job.verdict, Promise) else 0.0
    return max(promised_at, job.deadline_at) if job.asked else promised_at or job.deadline_at


def _possible(table: WaitingTable, at: Ints, reservations: Reservations) -> NDArray[np.bool_]:
    """Whether none of the refusals applies that no order of claims can change."""
    room, due_at = reservations.room, table.column(DUE_AT)[at]
    size, width, jobs = table.size[at], table.width[at], [table.jobs[row] for row in at.tolist()]
    kinds = list(zip([job.eligible for job in jobs], size.tolist(), strict=True))
    slots_by_kind = {
        kind: room.slots_for(job) for kind, job in dict(zip(kinds, jobs, strict=True)).items()
    }
    slots = np.array([slots_by_kind[kind] for kind in kinds], dtype=np.int64)
    there = (width > 0) & (width <= slots[:, None])
    fastest = np.where(there, table.rest_s[at], FOREVER).min(axis=1)
    promised_at = table.column(PROMISED_DUE_AT)[at]
    first = np.array([job.widths[0] for job in jobs], dtype=np.int64)
    possible: NDArray[np.bool_] = table.column(SERVICE)[at] == HARD
    possible &= promised_at == -FOREVER
    possible &= (due_at < FOREVER) & (due_at > table.now) & (table.column(LEFT)[at] > 0.0)
    possible &= (size <= max(room.state.capacity("").training, default=0)) & (first <= slots)
    possible &= table.total_s("p90")[at, 0] < FOREVER
    with np.errstate(invalid="ignore"):
        possible &= table.now + fastest - due_at <= 0.0
    return possible
