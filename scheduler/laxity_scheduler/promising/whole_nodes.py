"""Nodes that promised jobs which wait will need whole: a worker of 8 GPUs on nodes of 8.

Plans count GPUs. A smaller job that starts on such a node shortly before may have room elsewhere in
that count, and stay for hours. So each worker that fills a node has one kept, of those that are
empty when it is planned to start the one that is empty last, and nobody starts there who would still
be there then (our own). Nodes that are empty before are left to those who are planned to use them.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping
from itertools import chain, islice
from typing import NamedTuple

from laxity_scheduler.capacity.ledger import Among
from laxity_scheduler.frame.kernels import TINY_S
from laxity_scheduler.model.cluster import NO_NODES
from laxity_scheduler.model.job import FOREVER, Job, Promise
from laxity_scheduler.promising.reservations import Reservations


class Keeper(NamedTuple):
    """Who needs a node whole, and in how many seconds."""

    job: str
    from_s: float


def find_kept_nodes(
    reservations: Reservations, open_to: Callable[[Job, float], Among]
) -> Mapping[str, Keeper]:
    """By node; one for each worker of promised jobs that wait, the job that starts soonest first.

    Only nodes that are `open_to` the job then: where it may not start either, nobody would.
    """
    room, gpus = reservations.room, {node.id: node.gpus for node in reservations.state.nodes}
    sizes = frozenset(gpus.values()) - {1} if len(gpus) > 1 else frozenset[int]()
    large = [
        (share.starts_s, job, share.widest)
        for job in reservations.claims.jobs
        if job.gpus_per_worker in sizes and _waits(job)
        if (share := reservations.shares.get(job.id)) is not None and share.starts_s < FOREVER
    ]
    if not large:
        return {}
    frees, kept = room.frees, dict[str, Keeper]()
    free, empty_s = frees.free.tolist(), dict[str, float]()
    for number, name in enumerate(frees.names):
        if free[number] == gpus[name]:
            empty_s[name] = 0.0
    rows = zip(frees.until_s.tolist(), frees.node.tolist(), frees.gpus.tolist(), strict=True)
    for until_s, number, more in rows:  # soonest first
        free[number] += more
        if free[number] == gpus[frees.names[number]]:
            empty_s.setdefault(frees.names[number], until_s)
    soonest = sorted(empty_s, key=empty_s.__getitem__)
    times_s = [empty_s[name] for name in soonest]
    latest = sorted(empty_s, key=lambda name: -empty_s[name])
    for from_s, job, workers in sorted(large, key=lambda one: (one[0], one[1].id)):
        may = open_to(job, from_s)
        taken = {hold.node for hold in room.held.in_force if hold.job != job.id}
        in_time = bisect_right(times_s, from_s + TINY_S)
        mine = (
            name
            for name in chain(latest[len(latest) - in_time :], soonest[in_time:])
            if name not in kept and gpus[name] == job.gpus_per_worker
            if may is None or name in may
            if name not in taken
        )
        for name in list(islice(mine, workers)):
            kept[name] = Keeper(job.id, from_s)
    return kept


def shut_nodes(
    kept: Mapping[str, Keeper], job: Job, hold_s: float, patience_s: float
) -> frozenset[str]:
    """Those on which a job may not start that would hold them for so long and can wait for so long."""
    if not kept:
        return NO_NODES
    return frozenset(
        name
        for name, keeper in kept.items()
        if keeper.job != job.id and keeper.from_s + TINY_S < min(hold_s, patience_s)
    )


def _waits(job: Job) -> bool:
    """Whether it is promised and has no GPUs yet, nor still others."""
    return isinstance(job.verdict, Promise) and not (job.workers or job.terminating_workers)
