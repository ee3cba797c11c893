"""On which widths waiting jobs may start, and why on this one: of a whole queue, as columns."""

from collections.abc import Sequence

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.frame.arrays import Bools, Ints
from laxity_scheduler.frame.construct import construct_many
from laxity_scheduler.frame.fields import DUE_AT, QUEUED_AT, TOTAL
from laxity_scheduler.frame.kernels import TINY_S
from laxity_scheduler.model.job import FOREVER
from laxity_scheduler.model.reasons import Fact, Reason
from laxity_scheduler.promising.claims import ageing_limits_s
from laxity_scheduler.promising.queueing import Waiting
from laxity_scheduler.qos.context import MARGIN, DecisionContext, Start

Facts = tuple[tuple[str, Fact], ...]


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
    facts = [_why(*row, context.now) for row in columns]
    return construct_many(Reason, *zip(*facts, strict=True))


def _why(start: Start, remaining_s: float, limit_s: float, now: float) -> tuple[str, Facts]:
    """As a code and facts; who found fewer nodes than it was to have first grows later."""
    waiter = start.waiting
    if start.coming is not None:
        return "start_when_nodes_come", start.coming.facts
    if waiter.rank == "best_effort":
        return "shortest_first", (("remaining_s", remaining_s),)
    if waiter.rank == "hopeless":
        return "hopeless", ()
    if waiter.rank == "aged":
        return "aged", (("waited_s", now - waiter.job.queued_at), ("limit_s", limit_s))
    if start.placed < start.wanted:
        return "planned_growth", (("workers", start.workers),)
    return "due_first", (("slack_s", waiter.slack_s), ("workers", start.workers))
