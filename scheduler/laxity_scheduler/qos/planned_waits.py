"""Hundreds of waiting jobs that cannot start, seen at once: see `waiting_table`.

Where claims are planned over time most of the queue waits for its turn. Who neither starts now nor
needs anybody to stop is found in columns; the others are looked at one by one, in their place.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from laxity_scheduler.frame.arrays import Bools
from laxity_scheduler.frame.fields import DUE_AT, SUBMITTED_AT
from laxity_scheduler.frame.kernels import TINY_S
from laxity_scheduler.model.job import FOREVER
from laxity_scheduler.promising.claims import AGEING_S, was_stopped_often
from laxity_scheduler.promising.queueing import Waiting
from laxity_scheduler.promising.reserve import Profile
from laxity_scheduler.qos.context import THETA, DecisionContext

LOOK_AGAIN_S: Final = 1.0  # least time between two looks at a plan that slides with the clock


def order_by_plan(
    context: DecisionContext, ones: Sequence[Waiting]
) -> tuple[list[Waiting], list[bool]]:
    """Claimed jobs, those planned to start now first; and which plainly wait, as planned.

    They need nobody to stop yet.
    """
    reservations = context.reservations
    plans = reservations.shares.rows_of([entry.job.id for entry in ones])
    places = np.argsort(plans.workers_now <= 0, kind="stable")
    plans = plans.at(places)
    ordered = [ones[place] for place in places.tolist()]
    with np.errstate(invalid="ignore"):
        ahead_s = plans.starts_s - reservations.reach_s
    waits = (plans.workers_now == 0) & (ahead_s > TINY_S)
    context.wake_first(context.now + np.maximum(ahead_s[waits], LOOK_AGAIN_S))
    return ordered, waits.tolist()


def find_kept_out(
    context: DecisionContext, ones: Sequence[Waiting], rest: Profile | None
) -> list[bool]:
    """Which of these jobs without a claim cannot start, since claims need the GPUs before.

    `rest` is what claims leave; it only shrinks while jobs start. Soft ones about to be late are not
    among them.
    """
    if rest is None or not ones:
        return [False] * len(ones)
    table = context.waiting
    places = table.at([entry.job for entry in ones])
    stops = np.array(
        [entry.job.preemptible and not was_stopped_often(entry.job) for entry in ones],
        dtype=np.bool_,
    )
    held_s = np.where(table.held_s[places] < FOREVER, table.held_s[places], AGEING_S)
    held_s = np.where(stops, held_s, table.rest_s[places, 0])
    ends = np.minimum(np.searchsorted(rest.edges, held_s - TINY_S), len(rest.free))
    least_free = np.append(FOREVER, np.minimum.accumulate(rest.free))
    out: Bools = least_free[ends] < table.width[places, 0] * table.size[places]
    soft = np.array([entry.rank == "soft" for entry in ones], dtype=np.bool_)
    slack_s = np.array([entry.slack_s for entry in ones])
    window_s = np.maximum(0.0, table.column(DUE_AT)[places] - table.column(SUBMITTED_AT)[places])
    out &= ~soft | (slack_s >= THETA * window_s)
    flags: list[bool] = out.tolist()
    return flags
