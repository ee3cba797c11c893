"""Hundreds of waiting jobs started, and widened into idle GPUs, in one go: see `waiting_table`."""

from collections.abc import Iterable, Sequence

import numpy as np

from laxity_scheduler.frame.arrays import Ints
from laxity_scheduler.frame.construct import construct_many
from laxity_scheduler.frame.fields import DUE_AT
from laxity_scheduler.frame.kernels import TINY_S
from laxity_scheduler.model.job import FOREVER
from laxity_scheduler.model.reasons import Reason
from laxity_scheduler.promising.queueing import Waiting
from laxity_scheduler.qos.bargain import Bargain, Start


def start_claimed(bargain: Bargain, ones: Sequence[Waiting]) -> int:
    """Start the first of these promised jobs, as `Starts` does one by one; how many."""
    if not (ones and bargain.starts_at_once):
        return 0
    table, shares = bargain.waiting, bargain.reservations.shares
    names = [one.job.id for one in ones]
    plain = [
        name in shares.plain and one.rank == "promised"
        for name, one in zip(names, ones, strict=True)
    ]
    at = table.at([one.job for one in ones[: _first_false(plain)]])
    new = np.array([name in bargain.newly for name in names[: len(at)]], dtype=np.bool_)
    left_s = np.where(new, table.column(DUE_AT)[at], table.in_force_at[at]) - table.now
    rest, width = table.rest_s[at], table.width[at]
    there = width > 0
    safe = there & (rest <= ((1.0 - bargain.rules.margin) * left_s)[:, None])
    in_time = there & (rest <= (left_s + TINY_S)[:, None])
    many = _first_false(in_time.max(axis=1).tolist())
    tries = np.column_stack([_first(width, safe), _first(width, in_time)])[:many]
    jobs, sizes = [one.job for one in ones[:many]], table.size[at[:many]]
    placed = bargain.sites.place_all(bargain.ledger, jobs, tries, sizes, claimed=True)
    first = np.where(tries[:, 0] > 0, tries[:, 0], tries[:, 1])
    _start(bargain, ones, placed, first, [_due(one) for one in ones[: len(placed)]])
    return len(placed)


def start_others(bargain: Bargain, ones: Sequence[Waiting]) -> int:
    """Start the first of these jobs without a claim; how many. They can be stopped for claims."""
    if not (ones and bargain.starts_at_once):
        return 0
    table = bargain.waiting
    stops = [one.job.preemptible for one in ones]
    at = table.at([one.job for one in ones[: _first_false(stops)]])
    wanted = np.array([one.workers for one in ones[: len(at)]], dtype=np.int64)
    least, mean_s = table.width[at, 0], table.total_s("mean")[at]
    soft = np.array([one.rank == "soft" for one in ones[: len(at)]], dtype=np.bool_)
    second = np.where(soft & (least < wanted) & bargain.grows, least, 0)
    tries = np.column_stack([wanted, second])
    jobs, sizes = [one.job for one in ones[: len(at)]], table.size[at]
    placed = bargain.sites.place_all(bargain.ledger, jobs, tries, sizes, claimed=False)
    terms, many = bargain.rules.terms, len(placed)
    queued_at = np.array([one.job.queued_at for one in ones[:many]])
    runs_s = terms.ageing_runs * np.where(mean_s[:many, 0] < FOREVER, mean_s[:many, 0], 0.0)
    bargain.wake_first(queued_at + np.maximum(terms.ageing_s, runs_s))
    slack_s = np.array([one.slack_s for one in ones[:many]])
    bargain.wake_first(bargain.now + slack_s[soft[:many]])
    levels = (table.width[at[:many]] == _widths(placed)[:, None]).argmax(axis=1)
    totals_s = mean_s[np.arange(many), levels].tolist()
    why = [_other(one, total_s) for one, total_s in zip(ones, totals_s, strict=False)]
    _start(bargain, ones, placed, wanted, why)
    return many


Why = tuple[str, tuple[tuple[str, float], ...]]


def _due(one: Waiting) -> Why:
    return "due_first", (("slack_s", one.slack_s),)


def _other(one: Waiting, total_s: float) -> Why:
    if one.rank == "soft":
        return _due(one)
    if one.rank == "hopeless":
        return "hopeless", ()
    return "shortest_first", (("remaining_s", total_s),)


def _start(
    bargain: Bargain,
    ones: Sequence[Waiting],
    placed: Sequence[tuple[str, ...]],
    first: Ints,
    why: Iterable[Why],
) -> None:
    """Starts on these nodes; who gets fewer workers than it was to have first grows later."""
    widths = list(map(len, placed))
    known = {width: ("workers", width) for width in set(widths)}
    codes: list[str] = []
    frame: list[tuple[tuple[str, float], ...]] = []
    for width, wanted, (code, fact) in zip(widths, first.tolist(), why, strict=False):
        if code != "due_first":
            codes.append(code)
            frame.append(fact)
        elif width < wanted:
            codes.append("planned_growth")
            frame.append((known[width],))
        else:
            codes.append(code)
            frame.append((*fact, known[width]))
    reasons = construct_many(Reason, codes, frame)
    starts = map(Start, ones, widths, placed, reasons)
    bargain.starts.update(zip([one.job.id for one in ones], starts, strict=False))


def _first_false(flags: list[bool]) -> int:
    return flags.index(False) if False in flags else len(flags)


def _first(width: Ints, mask: "np.ndarray[tuple[int, int], np.dtype[np.bool_]]") -> Ints:
    """The first width that is so, (n,); 0 where none is."""
    level = mask.argmax(axis=1)
    found: Ints = np.where(mask.any(axis=1), width[np.arange(len(width)), level], 0)
    return found


def _widths(placed: Sequence[tuple[str, ...]]) -> Ints:
    return np.array([len(nodes) for nodes in placed], dtype=np.int64)
