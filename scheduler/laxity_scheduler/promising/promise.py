"""Verdicts: a promise, a refusal with a reason and checked counter-offers, or a forecast.

A hard job is promised its deadline if, behind all earlier claims, a plan ends in time at P90. Jobs
without a claim are stopped for it at the end of their epochs. A promise is never given at the cost
of an earlier one; other orders of all claims are tried, but nobody may become late by them.

Who holds a promise and asks for another deadline gets a new verdict; refused, the old promise
stands, and its deadline stays the one in force (`plan.verdict_after`). A job that runs without a
promise is not refused but told a forecast: it runs on as soft.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np

from laxity_profiler.estimate import Predictor
from laxity_profiler.model_key import model_of
from laxity_scheduler.capacity.eligibility import misfit_reason
from laxity_scheduler.frame.arrays import construct_many
from laxity_scheduler.frame.curve import Quantile
from laxity_scheduler.frame.fields import ASKED, DUE_AT, WORKERS
from laxity_scheduler.frame.remaining import (
    Forecasts,
    find_limit,
    restarts_reason,
    too_slow_reason,
)
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.job import (
    FOREVER,
    Forecast,
    Job,
    Offer,
    PendingPromise,
    Promise,
    Refusal,
    Verdict,
)
from laxity_scheduler.model.reasons import Reason, reason
from laxity_scheduler.promising.claims import holds_promise
from laxity_scheduler.promising.queueing import Waiting, WaitingTable, build_queue, predict_starts
from laxity_scheduler.promising.regions import count_fitting
from laxity_scheduler.promising.reservations import (
    Reservations,
    promised_gpu_s,
    reservation_gpu_s,
    runs_of,
)
from laxity_scheduler.promising.reserve import Claim, Share

OFFER_MARGIN: Final = 0.05  # an offered deadline is later than it need be by this share ...
OFFER_MARGIN_S: Final = 60.0  # ... and at least so much: there is time to read and accept it
MOST_WIDTH_OFFERS: Final = 8
QUANTILES: Final[tuple[Quantile, Quantile]] = ("p50", "p90")


def offer_margin_s(finish_s: float) -> float:
    """How much later an offered deadline is than the finish that it is offered for."""
    return max(OFFER_MARGIN_S, OFFER_MARGIN * finish_s)


def judge(state: ClusterState, job: Job, predictor: Predictor) -> Verdict:
    """What this job would be told now, whether or not it is in the snapshot."""
    state = state.with_job(job)
    return Judge(state, Forecasts(state, predictor)).verdict(job)


class Judge:
    """Judges newcomers one after the other: who is promised is counted for the next."""

    def __init__(self, state: ClusterState, forecasts: Forecasts) -> None:
        self.state, self.forecasts = state, forecasts
        self.reservations = Reservations(state, forecasts)

    def verdict(self, job: Job) -> Verdict:
        """Promise, refusal or forecast; a promise is kept among the reservations."""
        if job.service_class != "hard" or job.deadline_at == FOREVER:
            return self.forecast(job)
        if not holds_promise(job, self.state.now):
            return self._hard(job, self.reservations)
        others = Reservations(self.state, self.forecasts, without=job.id)
        in_place = self._in_its_place(job)
        verdict = self._hard(job, others, in_place)
        if isinstance(verdict, Promise):
            self.reservations = in_place or others
        return verdict

    def _in_its_place(self, job: Job) -> Reservations | None:
        """All claims with the deadline that this one asks for now, if it and all others are kept.

        Judged as a newcomer, a running job would be planned behind those that wait, and make way
        for them.
        """
        claim = Claim(job, job.deadline_at - self.state.now)
        replanned = Reservations(self.state, self.forecasts, amended=claim)
        harmless = job.id not in replanned.late and self.reservations.harms_nobody(replanned)
        return replanned if harmless else None

    def _hard(
        self, job: Job, reservations: Reservations, in_place: Reservations | None = None
    ) -> Verdict:
        verdict = _Case(job, self.state, reservations, in_place).verdict()
        if isinstance(verdict, Refusal) and job.workers and not holds_promise(job, self.state.now):
            return self.forecast(job)
        return verdict

    def forecast(self, job: Job) -> Forecast:
        """When it will be done, if all goes as predicted."""
        if job.workers:
            return forecasts_of([job], self.forecasts, [0.0], [0])[0]
        queue = self._queue(job)
        starts = predict_starts(queue, self.reservations, self.state)
        return forecasts_of([job], self.forecasts, [starts[job.id]], [0])[0]

    def _queue(self, newcomer: Job) -> list[Waiting]:
        others = (job for job in self.state.queued if job.id != newcomer.id)
        jobs = [*others, newcomer]
        table = WaitingTable(self.forecasts, self.forecasts.frame.row_numbers(jobs))
        return build_queue(table, jobs, self.reservations)


def forecasts_of(
    jobs: Sequence[Job], forecasts: Forecasts, starts_s: Sequence[float], workers: Sequence[int]
) -> list[Forecast]:
    """The forecasts of jobs that start so many seconds from now, or run.

    On so many workers each; 0: on the width that it would choose, or has.
    """
    frame, now = forecasts.frame, forecasts.now
    rows, width = frame.row_numbers(jobs), np.array(workers, dtype=np.int64)
    due_at, runs = frame.column(DUE_AT)[rows], frame.column(WORKERS)[rows] > 0.0
    level, after_s = frame.levels_of(rows, width), np.where(runs, 0.0, starts_s)
    level[runs], chooses = ASKED, ~runs & (width == 0)
    left_s = frame.in_force_at[rows[chooses]] - now
    level[chooses] = frame.slack_s(rows[chooses], left_s)[1]
    p50_at, p90_at = (now + frame.rest_s(rows, level, after_s, q) for q in QUANTILES)
    with np.errstate(invalid="ignore"):
        late_s = np.where(due_at < FOREVER, np.maximum(0.0, p90_at - due_at), 0.0).tolist()
    figures = zip(p90_at.tolist(), late_s, strict=True)
    facts = [(("p90_at", p90), ("late_s", late)) for p90, late in figures]
    codes = ["forecast_late" if late else "forecast" for late in late_s]
    reasons = construct_many(Reason, codes, facts)
    return construct_many(Forecast, p50_at.tolist(), p90_at.tolist(), late_s, reasons)


def promises_of(
    jobs: Sequence[Job],
    shares: Sequence[Share],
    given: Sequence[PendingPromise],
    forecasts: Forecasts,
    reasons: Sequence[Reason | None],
) -> list[Promise]:
    """The promises that these shares allow; why, if there is nothing special to be said."""
    frame, now = forecasts.frame, forecasts.now
    p50_s = frame.finish_s(frame.row_numbers(jobs), [share.steps for share in shares], "p50")
    p90_at = [now + share.finish_s for share in shares]
    due_at = [pending.deadline_at for pending in given]
    products = [job.workload.gpu_type for job in jobs]
    fits = _fits(p90_at, due_at, [share.workers for share in shares], products)
    final_reasons = [special or usual for special, usual in zip(reasons, fits, strict=True)]
    runs = [
        runs_of(share, now) or ((ends_at, share.workers),)  # all its epochs are done
        for share, ends_at in zip(shares, p90_at, strict=True)
    ]
    p50_at = np.minimum(p90_at, now + p50_s).tolist()
    rests_on = [pending.rests_on for pending in given]
    return construct_many(Promise, due_at, p50_at, p90_at, runs, final_reasons, rests_on, products)


def _fits(
    p90_at: Sequence[float],
    due_at: Sequence[float],
    workers: Sequence[int],
    products: Sequence[str],
) -> list[Reason]:
    late_s = [ends_at - due for ends_at, due in zip(p90_at, due_at, strict=True)]
    spare = [("late_s", late) if late > 0.0 else ("slack_s", -late) for late in late_s]
    codes = ["promise_in_danger" if late > 0.0 else "fits" for late in late_s]
    named = [(("product", product),) if product else () for product in products]
    rows = zip(p90_at, spare, workers, named, strict=True)
    facts = [(("p90_at", end), fact, ("workers", width), *of) for end, fact, width, of in rows]
    return construct_many(Reason, codes, facts)


@dataclass(frozen=True)
class _Case:
    """One hard job before the judge."""

    job: Job
    state: ClusterState
    reservations: Reservations  # of all others
    in_place: Reservations | None = None  # its own changed among them, where nobody is harmed

    def verdict(self) -> Verdict:
        refusal = self._impossible()
        if refusal is not None:
            return refusal
        claim = Claim(self.job, self.job.deadline_at - self.state.now)
        over_budget = self._over_budget(claim)
        if over_budget is not None:
            return over_budget
        others = self.reservations.first_names
        replanned = self.in_place
        share = replanned.shares[self.job.id] if replanned else self.reservations.admit(claim)
        if share is None:
            return self._no_room(claim)
        forecasts = self.reservations.forecasts
        source = forecasts.curve(self.job).source
        pending = PendingPromise(self.job.deadline_at, (source, *others))
        return promises_of([self.job], [share], [pending], forecasts, [None])[0]

    def _impossible(self) -> Refusal | None:
        """What no order of claims can change."""
        job, now = self.job, self.state.now
        if job.deadline_at <= now:
            past = reason("deadline_in_the_past", due_at=job.deadline_at)
            return self._refusal(past, self._later_or_soft())
        room, gpus = self.reservations.room, job.gpus_per_worker
        unusable = misfit_reason(self.state, job)
        if unusable is not None:
            return Refusal(unusable)
        largest = max(self.state.capacity(job.eligible).training, default=0)
        if gpus > largest:
            figures = reason("does_not_fit_any_node", gpus_per_worker=gpus, largest_gpus=largest)
            return Refusal(figures)
        slots = room.slots_for(job)
        if job.widths[0] > slots:
            width = job.widths[0]
            return Refusal(
                reason("does_not_fit_cluster", workers=width, gpus_per_worker=gpus, slots=slots)
            )
        return self._over_limit(slots) or self._too_slow(slots)

    def _over_limit(self, slots: int) -> Refusal | None:
        """A start may not run long enough for it, or nobody knows how long it takes."""
        job, forecasts = self.job, self.reservations.forecasts
        limit = find_limit(job, forecasts, slots)
        if limit is not None:
            return Refusal(limit, self._wider(slots))
        return None if forecasts.curve(job).known else self._unknown()

    def _too_slow(self, slots: int) -> Refusal | None:
        job, forecasts = self.job, self.reservations.forecasts
        widths = [width for width in forecasts.curve(job).widths if width <= slots]
        best = min(widths, key=lambda width: forecasts.rest_s(job, width))
        rest_s = forecasts.rest_s(job, best)
        late_s = self.state.now + rest_s - job.deadline_at
        if late_s <= 0.0:
            return None
        p90_at = self.state.now + rest_s
        restarts_s = rest_s - forecasts.rest_s(replace(job, wall_limit_s=FOREVER), best)
        if restarts_s >= late_s:  # without links it would be in time
            late = {"workers": best, "p90_at": p90_at, "late_s": late_s}
            figures = restarts_reason(job, forecasts.predictor, restarts_s, late)
        else:
            figures = too_slow_reason(
                job, forecasts.predictor, workers=best, p90_at=p90_at, late_s=late_s
            )
        offers = (*self._later_or_soft(), *self._wider(slots))
        return self._refusal(figures, offers, p90_in_s=rest_s)

    def _unknown(self) -> Refusal:
        job, now = self.job, self.state.now
        probe = Offer("probe", FOREVER, job.widths[:1], FOREVER, now)
        soft = Offer("soft", job.deadline_at, job.widths, FOREVER, now)
        refusal_reason = reason("unknown_model_needs_profiling", model=model_of(job.workload.model))
        return Refusal(refusal_reason, (probe, soft))

    def _no_room(self, claim: Claim) -> Refusal:
        job, now = self.job, self.state.now
        earliest = self._earliest
        finish_s = earliest.finish_s if earliest else FOREVER
        free_gpus = self._free_gpus(job)
        figures: dict[str, float] = {
            "needed_gpus": (earliest.widest if earliest else job.widths[0]) * job.gpus_per_worker,
            "free_gpus": free_gpus,
            "late_s": now + finish_s - job.deadline_at,
        }
        refusal_reason = reason("capacity_promised_to_others", **figures)
        if job.quota and free_gpus < self._free_gpus(replace(job, quota="")):
            refusal_reason = reason("quota_promised_to_others", quota=job.quota, **figures)
        elif earliest is not None:
            refusal_reason = self._stops_too_late(earliest, claim) or refusal_reason
        offers = (
            *self._later_or_soft(),
            *self._wider(self.reservations.room.slots_for(job)),
            *self._offer_borrowed(claim),
        )
        return self._refusal(refusal_reason, offers, p90_in_s=finish_s)

    def _stops_too_late(self, earliest: Share, claim: Claim) -> Reason | None:
        """The reason if it would be in time on free GPUs, and stopping others for it takes too long."""
        reservations, starts_s = self.reservations, earliest.starts_s
        if not 0.0 < starts_s <= reservations.reach_s:
            return None
        if earliest.finish_s - starts_s > claim.deadline_s:
            return None
        forecasts, job = reservations.forecasts, self.job
        stopped = reservations.stoppable(earliest.workers * job.gpus_per_worker)
        if not stopped:
            return None
        start_s = forecasts.curve(job).start_s(earliest.workers, "p90")
        return reason(
            "capacity_freed_too_late",
            holders=", ".join(other.id for other in stopped),
            making_room_s=starts_s + start_s,
            late_s=earliest.finish_s - claim.deadline_s,
        )

    def _free_gpus(self, job: Job) -> int:
        """What promised jobs leave it now."""
        room, free_gpus = self.reservations.room, self.reservations.profile().parts[:, 0]
        among = 1 + len(room.regions)
        fitting = count_fitting(room.regions, job, free_gpus[:among].tolist()) * job.gpus_per_worker
        whole = zip(room.whole, free_gpus[among : among + len(room.whole)].tolist(), strict=True)
        return min([fitting, *(max(0, int(gpus)) for kind, gpus in whole if kind.asks(job))])

    def _refusal(
        self, why: Reason, offers: tuple[Offer, ...], *, p90_in_s: float = FOREVER
    ) -> Refusal:
        return Refusal(why, offers, self.state.now + p90_in_s)

    @cached_property
    def _earliest(self) -> Share | None:
        """The share that ends soonest behind all claims."""
        return self.reservations.earliest(self.job)

    def _later_or_soft(self) -> tuple[Offer, ...]:
        """The earliest deadline that would be promised on these widths, else class soft.

        Later than need be by a margin, so that it is still promised when it is accepted.
        """
        job, now = self.job, self.state.now
        earliest = self._earliest
        if earliest is not None:
            margin_s = offer_margin_s(earliest.finish_s)
            share = self.reservations.fits(Claim(job, earliest.finish_s + margin_s))
            if share is not None:
                due_at = now + earliest.finish_s + margin_s
                return (Offer("deadline", due_at, job.widths, now + share.finish_s, now),)
        return (Offer("soft", job.deadline_at, job.widths, FOREVER, now),)

    def _wider(self, slots: int) -> tuple[Offer, ...]:
        """The least width beyond its own with which this deadline would be promised."""
        job, now = self.job, self.state.now
        if len(job.widths) == 1:
            return ()  # code that cannot average over workers cannot be wider
        forecasts = self.reservations.forecasts
        width, tried = 2 * job.widths[-1], 0
        while width <= slots and tried < MOST_WIDTH_OFFERS:
            wider = forecasts.on_widths(job, (*job.widths, width))
            if wider and find_limit(wider, forecasts, slots):
                wider = None
            share = self.reservations.fits(Claim(wider, job.deadline_at - now)) if wider else None
            if wider and share:
                return (Offer("widths", job.deadline_at, wider.widths, now + share.finish_s, now),)
            width, tried = 2 * width, tried + 1
        return ()

    def _offer_borrowed(self, claim: Claim) -> tuple[Offer, ...]:
        """The fewest GPUs that would have to be borrowed for it; asked in steps of its widths.

        Not where it matters which nodes are borrowed.
        """
        job, now = self.job, self.state.now
        if job.eligible:
            return ()
        for width in self.reservations.forecasts.curve(job).widths:
            gpus = width * job.gpus_per_worker
            share = self.reservations.fits(claim, borrowed=gpus)
            if share is not None:
                p90_at = now + share.finish_s
                return (Offer("borrow", job.deadline_at, job.widths, p90_at, now, gpus),)
        return ()

    def _over_budget(self, claim: Claim) -> Refusal | None:
        """A namespace may hold only so many promised GPU-seconds at a time."""
        job, now = self.job, self.state.now
        budget = (self.state.budgets or {}).get(job.namespace)
        if budget is None:
            return None
        share = self.reservations.fits(claim)
        if share is None:
            return None
        held = promised_gpu_s(self.reservations, job.namespace)
        needed = reservation_gpu_s(job, runs_of(share, now), now)
        if held + needed <= budget:
            return None
        refusal_reason = reason(
            "capacity_budget_spent",
            namespace=job.namespace,
            left_gpu_h=max(0.0, budget - held) / 3600.0,
            budget_gpu_h=budget / 3600.0,
            needed_gpu_h=needed / 3600.0,
        )
        soft = Offer("soft", job.deadline_at, job.widths, now + share.finish_s, now)
        return self._refusal(refusal_reason, (soft,), p90_in_s=share.finish_s)
