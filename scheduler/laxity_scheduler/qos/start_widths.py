"""On which widths waiting jobs may start, and why on this one: of a whole queue, as columns.

Where claims are planned over time most of the queue waits for its turn. Who neither starts now nor
needs anybody to stop is found in columns; the others are looked at one by one, in their place.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.frame.arrays import Bools, Ints, construct_many
from laxity_scheduler.frame.fields import DUE_AT, QUEUED_AT, SUBMITTED_AT, TOTAL
from laxity_scheduler.frame.kernels import TINY_S
from laxity_scheduler.model.job import FOREVER
from laxity_scheduler.model.reasons import Fact, Reason
from laxity_scheduler.promising.claims import AGEING_S, ageing_limits_s, was_stopped_often
from laxity_scheduler.promising.queueing import Waiting
from laxity_scheduler.promising.reserve import Profile
from laxity_scheduler.qos.context import MARGIN, THETA, DecisionContext, Start

Facts = tuple[tuple[str, Fact], ...]
LOOK_AGAIN_S: Final = 1.0  # least time between two looks at a plan that slides with the clock


def tries_with_claim(context: DecisionContext, ones: Sequence[Waiting]) -> Ints:
    """Widths for jobs with a claim, (n, K), the first that fits counts; 0 is none.

    The least width in time with a margin, without, then narrower if it may grow later; where none is
    in time, the fastest and those below it. None where the free GPUs are for others that are due before.
    """
    table, reservations = context.waiting, context.reservations
    places = table.at([entry.job for entry in ones])
    plans = reservations.shares.rows_of([entry.job.id for entry in ones])
    is_new = np.array([entry.job.id in context.newly for entry in ones], dtype=np.bool_)
    due_at = np.where(is_new, table.column(DUE_AT)[places], table.in_force_at[places])
    starts_now = (plans.workers_now > 0) | reservations.roomy
    tries = _in_time(context, places, due_at - table.now, plans.workers_now)
    tries[~((plans.workers >= 0) & starts_now)] = 0
    aged = np.array([entry.rank == "aged" for entry in ones], dtype=np.bool_)
    tries[aged] = 0
    tries[aged, 0] = np.where(starts_now, table.width[places, 0], 0)[aged]
    return tries


def _in_time(context: DecisionContext, at: Ints, left_s: Floats, planned: Ints) -> Ints:
    rest, width = context.waiting.rest_s[at], context.waiting.width[at]
    there = width > 0
    safe = there & (rest <= ((1.0 - MARGIN) * left_s)[:, None])
    in_time = there & (rest <= (left_s + TINY_S)[:, None])
    least = _first(width, in_time)
    grows = context.grows & (planned > 0) & (planned < least)
    fastest = np.where(there, rest, FOREVER).argmin(axis=1)
    tries = np.where(np.arange(width.shape[1]) <= fastest[:, None], width, 0)[:, ::-1]
    tries = np.pad(tries, ((0, 0), (0, max(0, 3 - width.shape[1]))))
    some = in_time.any(axis=1)
    tries[some] = 0
    widths = np.column_stack([_first(width, safe), least, np.where(grows, planned, 0)])
    tries[some, :3] = widths[some]
    return tries


def _first(width: Ints, mask: "np.ndarray[tuple[int, int], np.dtype[np.bool_]]") -> Ints:
    """The first width that is so, (n,); 0 where none is."""
    level = mask.argmax(axis=1)
    widths: Ints = np.where(mask.any(axis=1), width[np.arange(len(width)), level], 0)
    return widths


def tries_without_claim(context: DecisionContext, ones: Sequence[Waiting]) -> Ints:
    """The same of jobs without a claim, (n, 2): a soft one may start narrower and grow later."""
    table = context.waiting
    least = table.width[table.at([entry.job for entry in ones]), 0]
    wanted = np.array([entry.workers for entry in ones], dtype=np.int64)
    second = np.where(_soft(ones) & (least < wanted) & context.grows, least, 0)
    return np.column_stack([wanted, second])


def wake_for_unclaimed(context: DecisionContext, ones: Sequence[Waiting]) -> None:
    """Look again when one of them has waited too long, or a soft one can no longer wait."""
    if ones:
        places, table = context.waiting.at([entry.job for entry in ones]), context.waiting
        limits_s = ageing_limits_s(table.frame, table.rows[places])
        context.wake_first(table.column(QUEUED_AT)[places] + limits_s)
        slack_s = np.array([entry.slack_s for entry in ones])
        context.wake_first(context.now + slack_s[_soft(ones)])


def _soft(ones: Sequence[Waiting]) -> Bools:
    return np.array([entry.rank == "soft" for entry in ones], dtype=np.bool_)


def start_reasons(context: DecisionContext, starts: Sequence[Start]) -> list[Reason]:
    """Why these start, on the workers that they have in the end."""
    frame = context.forecasts.frame
    rows = frame.row_numbers([start.waiting.job for start in starts])
    level = frame.levels_of(rows, np.array([start.placed for start in starts], dtype=np.int64))
    remaining_s = frame.levels("mean")[rows, TOTAL, level].tolist()
    limits_s = ageing_limits_s(frame, rows).tolist()
    columns = zip(starts, remaining_s, limits_s, strict=True)
    by_turn = "shortest_first" if frame.predictability == 0.0 else "its_turn"
    facts = [_why(*row, context.now, by_turn) for row in columns]
    return construct_many(Reason, *zip(*facts, strict=True))


def _why(
    start: Start, remaining_s: float, limit_s: float, now: float, by_turn: str
) -> tuple[str, Facts]:
    """As a code and facts; who found fewer nodes than it was to have first grows later."""
    waiter = start.waiting
    if start.coming is not None:
        return "start_when_nodes_come", start.coming.facts
    if waiter.rank == "best_effort":
        return by_turn, (("remaining_s", remaining_s),)
    if waiter.rank == "hopeless":
        return "hopeless", ()
    if waiter.rank == "aged":
        return "aged", (("waited_s", now - waiter.job.queued_at), ("limit_s", limit_s))
    if start.placed < start.wanted:
        return "planned_growth", (("workers", start.workers),)
    return "due_first", (("slack_s", waiter.slack_s), ("workers", start.workers))


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
