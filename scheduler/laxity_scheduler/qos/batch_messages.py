"""What hundreds of jobs that start are told, in one go: see `waiting_table`."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.frame.construct import construct_many
from laxity_scheduler.frame.fields import DUE_AT, LEFT
from laxity_scheduler.model.decision import Admit, Forecasted, Promised
from laxity_scheduler.model.job import FOREVER, Job
from laxity_scheduler.model.reasons import Reason, reason
from laxity_scheduler.model.verdict import Forecast, Promise
from laxity_scheduler.qos.bargain import Bargain

if TYPE_CHECKING:
    from laxity_scheduler.frame.arrays import Ints
    from laxity_scheduler.promising.waiting_table import WaitingTable


def promises_said(bargain: Bargain, jobs: Sequence[Job]) -> dict[str, Promised]:
    """New promises of jobs that start now, as `policies.qos` says them one by one."""
    table, newly, shares = bargain.waiting, bargain.newly, bargain.reservations.shares
    if not newly:
        return {}
    plain, starts = shares.plain, bargain.starts
    jobs = [job for job in jobs if job.id in newly and job.id in starts and job.id in plain]
    jobs, at, level = _starting(bargain, table, jobs)
    if not jobs:
        return {}
    given = [newly[job.id] for job in jobs]
    due_at = np.array([one.deadline_at for one in given])
    rows, now_s = table.rows[at], np.zeros(len(at))
    finish_s = table.frame.finish_s(rows, level, now_s, "p90")
    planned = np.array([plain[job.id] for job in jobs])
    workers = table.width[at, level]
    sooner = (planned[:, 0] == workers) & (finish_s > due_at - table.now)
    finish_s = np.where(sooner, np.minimum(finish_s, planned[:, 1]), finish_s)
    p90 = table.now + finish_s
    p50 = np.minimum(p90, table.now + table.frame.finish_s(rows, level, now_s, "p50"))
    bargain.wake_first(due_at + 1e-3)
    why = _kept(p90, p90 - due_at, workers)
    p90_at = p90.tolist()
    runs = [((ends_at, width),) for ends_at, width in zip(p90_at, workers.tolist(), strict=True)]
    rests_on = [one.rests_on for one in given]
    promises = construct_many(Promise, due_at.tolist(), p50.tolist(), p90_at, runs, why, rests_on)
    names = [job.id for job in jobs]
    return dict(zip(names, construct_many(Promised, names, promises, why), strict=True))


def plans_said(bargain: Bargain, jobs: Sequence[Job]) -> dict[str, Promised]:
    """New promises of jobs that are planned to start later, on one width to the end."""
    table, newly, starts = bargain.waiting, bargain.newly, bargain.starts
    if not newly or bargain.reservations.roomy:
        return {}
    jobs = [job for job in jobs if job.id in newly and job.id not in starts]
    at = table.at(jobs)
    plans = bargain.reservations.shares.outline([job.id for job in jobs[: len(at)]])
    plain = (plans.workers > 0) & (plans.workers == plans.widest)
    plain &= (table.column(LEFT)[at] > 0.0) & (plans.finish_s < FOREVER)
    rows = np.flatnonzero(plain)
    if not len(rows):
        return {}
    jobs, at, plans = [jobs[row] for row in rows.tolist()], at[rows], plans.at(rows)
    level = (table.width[at] == plans.workers[:, None]).argmax(axis=1)
    median_s = table.frame.finish_s(table.rows[at], level, plans.starts_s, "p50")
    given = [newly[job.id] for job in jobs]
    due_at = np.array([one.deadline_at for one in given])
    p90 = table.now + plans.finish_s
    p50 = np.minimum(p90, table.now + median_s)
    bargain.wake_first(due_at + 1e-3)
    why = _kept(p90, p90 - due_at, plans.workers)
    begins, p90_at = (table.now + plans.starts_s).tolist(), p90.tolist()
    runs = [
        ((begin, 0), (end, width)) if begin > table.now else ((end, width),)
        for begin, end, width in zip(begins, p90_at, plans.workers.tolist(), strict=True)
    ]
    rests_on = [one.rests_on for one in given]
    promises = construct_many(Promise, due_at.tolist(), p50.tolist(), p90_at, runs, why, rests_on)
    names = [job.id for job in jobs]
    return dict(zip(names, construct_many(Promised, names, promises, why), strict=True))


def _kept(p90_at: Floats, late_s: Floats, workers: "Ints") -> list[Reason]:
    rows = zip(p90_at.tolist(), late_s.tolist(), workers.tolist(), strict=True)
    frame = [
        (("p90_at", at), ("late_s", late), ("workers", width))
        if late > 0.0
        else (("p90_at", at), ("slack_s", -late), ("workers", width))
        for at, late, width in rows
    ]
    codes = ["promise_in_danger" if late else "fits" for late in (late_s > 0.0).tolist()]
    return construct_many(Reason, codes, frame)


def forecasts_said(bargain: Bargain, jobs: Sequence[Job]) -> dict[str, Forecasted]:
    """Forecasts of jobs that start now and want one, as `promise.forecast_of` makes each."""
    table, starts = bargain.waiting, bargain.starts
    jobs = [job for job in jobs if job.id in starts and (job.asked or job.verdict is None)]
    jobs, at, level = _starting(bargain, table, jobs)
    if not jobs:
        return {}
    due = table.column(DUE_AT)[at]
    each = np.arange(len(at))
    p50_s = table.frame.by_level_s(table.rows[at], "p50")[each, level]
    p90_s = table.rest_s[at, level]
    p90 = table.now + p90_s
    with np.errstate(invalid="ignore"):
        late = np.where(due < FOREVER, np.maximum(0.0, p90 - due), 0.0).tolist()
    frame = [
        (("p90_at", p90_at), ("late_s", late_s))
        for p90_at, late_s in zip(p90.tolist(), late, strict=True)
    ]
    why = construct_many(
        Reason, ["forecast_late" if late_s else "forecast" for late_s in late], frame
    )
    forecasts = construct_many(Forecast, (table.now + p50_s).tolist(), p90.tolist(), late, why)
    names = [job.id for job in jobs]
    return dict(zip(names, construct_many(Forecasted, names, forecasts, why), strict=True))


def never_said(
    bargain: Bargain, jobs: Sequence[Job], starts_s: Mapping[str, float]
) -> dict[str, Forecasted]:
    """Forecasts of jobs that want one and of which nobody knows when they start."""
    table, starts = bargain.waiting, bargain.starts
    if not bargain.blocked:
        return {}
    jobs = [
        job
        for job in jobs
        if job.id in table.place
        and job.id not in starts
        and starts_s.get(job.id, FOREVER) == FOREVER
        and (job.asked or job.verdict is None)
    ]
    left = table.column(LEFT)[table.at(jobs)] > 0.0
    jobs = [job for job, some in zip(jobs, left.tolist(), strict=True) if some]
    never = reason("forecast", p90_at=FOREVER, late_s=0.0)
    late = reason("forecast_late", p90_at=FOREVER, late_s=FOREVER)
    told = {
        False: Forecast(FOREVER, FOREVER, 0.0, never),
        True: Forecast(FOREVER, FOREVER, FOREVER, late),
    }
    found = [told[job.deadline_at < FOREVER] for job in jobs]
    names = [job.id for job in jobs]
    said = construct_many(Forecasted, names, found, [one.reason for one in found])
    return dict(zip(names, said, strict=True))


def _starting(
    bargain: Bargain, table: "WaitingTable", jobs: Sequence[Job]
) -> tuple[list[Job], "Ints", "Ints"]:
    """Those with epochs left, their places in the table and the levels that they start on."""
    at = table.at(jobs)
    left = table.column(LEFT)[at] > 0.0
    found = [job for job, some in zip(jobs, left.tolist(), strict=False) if some]
    at = at[left]
    held = np.array([bargain.starts[job.id].workers for job in found], dtype=np.int64)
    return found, at, (table.width[at] == held[:, None]).argmax(axis=1)


def admissions(bargain: Bargain) -> list[Admit]:
    """All that start."""
    starts = list(bargain.starts.values())
    return construct_many(
        Admit,
        list(bargain.starts),
        [start.workers for start in starts],
        [start.nodes for start in starts],
        [start.reason for start in starts],
    )
