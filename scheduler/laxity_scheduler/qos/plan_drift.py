"""Hundreds of running promised jobs beside their plans: who has what is planned, and who has not.

`sizing.grow_promised` asks each promised job whether it is as planned, and nearly always it is. Here columns
answer, where claims are planned over time.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.frame import fields
from laxity_scheduler.frame.arrays import Bools
from laxity_scheduler.model.job import FOREVER, Job
from laxity_scheduler.qos.context import DecisionContext


def compare_promised(context: DecisionContext) -> Iterator[tuple[Job, bool, float]]:
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
