"""Whether all promises and one more have room on the nodes, found by packing: a test that is sufficient.

It lists claims in several orders and places each as soon as its workers fit on nodes, the fullest node
first. A schedule that it gives can be carried out. Where it gives none there may be one all the same: no
promised job is stopped or resized in it. Quotas are not looked at.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from laxity_profiler.estimate import Predictor
from laxity_scheduler.frame.kernels import TINY_S
from laxity_scheduler.frame.remaining import Forecasts, stopping
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.job import FOREVER, Job
from laxity_scheduler.promising.claims import deadline_in_force, holds_promise

TRIES: Final = 50  # orders that are drawn, beside those by a rule


class Block(NamedTuple):
    """GPUs of one node that a worker has, in seconds from now."""

    job: str
    node: str
    gpus: int
    from_s: float
    until_s: float


class Wanted(NamedTuple):
    """A job that is to be placed: not before when, until when, and how long it takes by width."""

    job: Job
    from_s: float
    due_s: float
    takes_s: Mapping[int, float]


Choose = Callable[
    [Sequence[int]], Sequence[int]
]  # the first of these widths in time; (): the soonest


def find_schedule(
    state: ClusterState, newcomer: str, predictor: Predictor, *, spare: float
) -> list[Block] | None:
    """A schedule of all promised jobs and of the newcomer, each with that share of its time to spare.

    Who is not promised leaves at its epoch's end if it may be stopped, else at its end.
    """
    forecasts = Forecasts(state, predictor)
    busy = _find_busy(state, forecasts, 1.0 + spare)
    if busy is None:
        return None
    wanted = list(_find_wanted(state, newcomer, forecasts, 1.0 + spare))
    schedules = (_place_all(state, order, choose, busy) for order, choose in _orders(wanted))
    return next((schedule for schedule in schedules if schedule is not None), None)


def _find_busy(state: ClusterState, forecasts: Forecasts, longer: float) -> list[Block] | None:
    """What runs or ends now; None if a promised job that runs has less than its share to spare."""
    blocks: list[Block] = []
    for job in state.running:
        until_s = forecasts.time_to_free_s(job)
        if holds_promise(job, state.now) and not stopping(job):
            until_s = longer * forecasts.rest_s(job, job.workers)
            if state.now + until_s > deadline_in_force(job) + TINY_S:
                return None
        elif job.pinned or not (job.preemptible or stopping(job)):
            until_s = FOREVER if job.pinned else forecasts.rest_s(job, job.workers)
        blocks += [Block(job.id, name, job.gpus_per_worker, 0.0, until_s) for name in job.nodes]
    gone = [forecasts.curve(job) for job in state.jobs if job.terminating_workers]
    gone_s = max((curve.stop_s(curve.least, "p90") for curve in gone), default=FOREVER)
    for node in state.nodes:
        more = node.gpus - node.free_gpus - sum(one.gpus for one in blocks if one.node == node.id)
        blocks += [Block("", node.id, more, 0.0, gone_s)] if more > 0 else []
    return blocks


def _find_wanted(
    state: ClusterState, newcomer: str, forecasts: Forecasts, longer: float
) -> Iterator[Wanted]:
    """The newcomer, and promised jobs that wait or are being stopped."""
    for job in state.jobs:
        asks = job.id == newcomer or holds_promise(job, state.now)
        if not asks or (job.workers and not stopping(job)):
            continue
        curve = forecasts.curve(job)
        freed_s = forecasts.time_to_free_s(job) if job.workers else 0.0
        gone_s = curve.stop_s(curve.least, "p90") if job.terminating_workers else 0.0
        ends_s = {width: forecasts.rest_s(job, width) for width in curve.widths}
        takes_s = {width: longer * (end_s - freed_s) for width, end_s in ends_s.items()}
        yield Wanted(job, max(freed_s, gone_s), deadline_in_force(job) - state.now, takes_s)


def _orders(wanted: Sequence[Wanted]) -> Iterator[tuple[list[Wanted], Choose]]:
    """By deadline, slack, size and size times time, each on the least width and on the fastest; then drawn."""
    keys: list[Callable[[Wanted], float]] = [
        lambda one: one.due_s,
        lambda one: one.due_s - one.from_s - min(one.takes_s.values()),
        lambda one: -one.job.gpus_per_worker,
        lambda one: -one.job.gpus_per_worker * max(one.takes_s.values()),
    ]
    for key in keys:
        order = sorted(wanted, key=lambda one: (key(one), one.due_s, one.job.id))
        yield order, lambda widths: widths
        yield order, lambda _: ()
    rng = random.Random(0)
    for _ in range(TRIES):
        yield rng.sample(wanted, len(wanted)), lambda widths: rng.sample(widths, len(widths))


def _place_all(
    state: ClusterState, order: Sequence[Wanted], choose: Choose, busy: Sequence[Block]
) -> list[Block] | None:
    blocks = list(busy)
    for one in order:
        widths = sorted(one.takes_s)
        chosen = choose(widths)
        places = [_place(state, one, width, blocks) for width in chosen or widths]
        in_time = [place for place in places if place is not None]
        if not in_time:
            return None
        soonest = [place[0].until_s for place in in_time]
        blocks += in_time[0 if chosen else soonest.index(min(soonest))]
    return blocks


def _place(
    state: ClusterState, one: Wanted, width: int, blocks: Sequence[Block]
) -> list[Block] | None:
    """On so many workers as soon as they fit, in time."""
    size, takes_s, may = one.job.gpus_per_worker, one.takes_s[width], state.eligible_nodes(one.job)
    starts = {one.from_s, *(block.until_s for block in blocks if block.until_s > one.from_s)}
    for from_s in sorted(at_s for at_s in starts if at_s + takes_s <= one.due_s + TINY_S):
        until_s = from_s + takes_s
        meets = [block for block in blocks if block.from_s < until_s and block.until_s > from_s]
        moments = [max(from_s, block.from_s) for block in meets]
        nodes: list[tuple[int, str]] = []
        for node in state.nodes if may is None else [n for n in state.nodes if n.id in may]:
            mine = [block for block in meets if block.node == node.id]
            taken = [sum(b.gpus for b in mine if b.from_s <= s < b.until_s) for s in moments]
            free = node.gpus - max(taken, default=0)
            nodes += [(free, node.id)] * (free // size)
        if len(nodes) >= width:
            names = [name for _, name in sorted(nodes)[:width]]
            return [Block(one.job.id, name, size, from_s, until_s) for name in names]
    return None
