"""Claims that all run at once: while their least widths fit, no plan over time is needed.

Whoever is in time at the width that it has, or at a smaller one, takes no free GPU from anybody; all
such claims are counted together, from columns.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.capacity.ledger import OWN, Ledger
from laxity_scheduler.frame.arrays import Ints
from laxity_scheduler.frame.fields import PROMISED_DUE_AT, SIZE, STAYS, WORKERS
from laxity_scheduler.frame.kernels import TINY_S
from laxity_scheduler.frame.remaining import stopping
from laxity_scheduler.model.cluster import Reserved
from laxity_scheduler.model.job import FOREVER, Job, WorkerShape
from laxity_scheduler.promising.claims import Claims
from laxity_scheduler.promising.regions import Region
from laxity_scheduler.promising.reserve import Claim, Share, ShareTable
from laxity_scheduler.promising.room import Room


class ConcurrentFit:
    """Claims that all run at once, each on one width: while they fit, no time profile is needed."""

    def __init__(self, room: Room) -> None:
        self._room = room
        state = room.state
        nodes = [node for node in state.nodes if node.pool == "training"]
        coming = sum(node.free_gpus for node in room.coming)  # not there to run at once
        self.left = room.capacity - coming - sum(job.gpus for job in room.unmoving)
        self.left -= sum(kept.gpus for kept in state.reserved)  # whenever they are needed
        self.left -= room.held.unmoving_gpus
        self._free = sum(max(0, node.free_gpus) for node in nodes)
        self._free -= sum(hold.gpus for hold in room.held.unclaimed)
        self._ledger: Ledger | None = None
        self._now: Ledger | None = None  # whole workers that fit on what is free now
        large = (room.forecasts.frame.column(SIZE) > 1.0).any()
        if (len(nodes) > 1 and large) or room.sharing.counts:
            names, gpus = [node.id for node in nodes], [node.gpus for node in nodes]
            sets = [node_set.nodes for node_set in (state.sets or {}).values()]
            self._ledger = Ledger(names, gpus, sets, [node.room for node in nodes])
            self._now = Ledger.of(state, pools=OWN)
            for job in room.unmoving:
                _take_all(self._ledger, job.nodes, job.shape)
            if not all(map(self._keep, state.reserved)):
                self.left = -1  # a plan over time says more
        self._parts = [_Part(room, region) for region in room.regions]

    def _keep(self, step: Reserved) -> bool:
        """Whether its whole workers fit on nodes; they are kept there."""
        assert self._ledger is not None  # noqa: S101 - asked before
        size, may = step.gpus_per_worker, self._room.state.nodes_of_set(step.eligible)
        return self._ledger.place(step.gpus // size, size, may) is not None

    def add_all(self, claims: Claims, *, amended: str = "") -> ShareTable | None:
        """The shares of all claims, counted; None if they do not fit together.

        That of the `amended` job has another deadline than the snapshot says.
        """
        shares = ShareTable()
        if claims.jobs and self._ledger is None:
            self._add_plain(shares, amended)
            if self.left < 0 or any(part.left < 0 for part in self._parts):
                return None
        for job, deadline_s in zip(claims.jobs, claims.deadline_s.tolist(), strict=True):
            if job.id in shares:
                continue
            share = self.add(Claim(job, deadline_s), keep=True)
            if share is None:
                return None
            shares.add(job.id, share)
        return shares

    def _add_plain(self, shares: ShareTable, amended: str) -> None:
        """Those that are in time at their width or less: they take no free GPU from anybody.

        So it does not matter in which order they are counted.
        """
        frame = self._room.forecasts.frame
        stays = (frame.column(STAYS) > 0.0) & (frame.column(WORKERS) > 0.0)
        rows = np.flatnonzero(frame.plain & frame.promised & ~stays)
        left_s = (frame.column(PROMISED_DUE_AT)[rows] - frame.now) + TINY_S
        width, finish_s = frame.least_in_time(rows, left_s)
        names, ids = [job.id for job in frame.at(rows)], self._room.ids
        ids = ids - {amended} if amended else ids
        counts = width > 0.0
        if not ids.issuperset(names):
            counts &= np.array([name in ids for name in names], dtype=np.bool_)
        self.left -= int((width * frame.column(SIZE)[rows])[counts].sum())
        names = [names[place] for place in np.flatnonzero(counts).tolist()]
        shares.add_widths(names, width[counts].astype(np.int64), finish_s[counts])
        if self._parts:
            self._weigh(rows[counts], width[counts])

    def _weigh(self, rows: Ints, width: Floats) -> None:
        """These rows run on these widths: so many GPUs less are left on the regions they are on."""
        frame, occupancy = self._room.forecasts.frame, self._room.occupancy
        jobs, size, held = frame.at(rows), frame.column(SIZE)[rows], frame.column(WORKERS)[rows]
        placed = np.array([len(job.nodes) for job in jobs]) == held
        seated = occupancy.workers[rows]
        fewer = np.flatnonzero(placed & (width < held))
        first = zip(frame.at(rows[fewer]), width[fewer].tolist(), strict=True)
        seated[fewer] = occupancy.of([job.nodes[: int(wide)] for job, wide in first])
        nowhere = np.flatnonzero(~placed).tolist()
        for column, part in enumerate(self._parts):
            whole = part.region.whole_of(jobs)
            weighs = np.where(whole, width, seated[:, column]) * size
            part.left -= int(weighs[placed].sum())
            part.left -= sum(part.gpus(jobs[row], int(width[row])) for row in nowhere)

    def add(self, claim: Claim, *, keep: bool) -> Share | None:
        """Its share, counted if `keep`; None (nothing counted) if it does not fit with the rest."""
        gpus = claim.job.gpus_per_worker
        staying = 0 if stopping(claim.job) else claim.job.workers
        share = self._alone(claim, 0.0)
        now = share is not None and self._begins_now(claim.job, share.widest - staying)
        if share is not None and not now:
            share = self._alone(claim, self._room.drain_s)
        if share is None or share.widest * gpus > self.left:
            return None
        if any(part.gpus(claim.job, share.widest) > part.left for part in self._parts):
            return None
        if not self._packs(claim.job, share.widest, keep=keep):
            return None
        if keep:
            new = max(0, share.widest - staying) * gpus
            self._free -= new
            if now:
                self._take_now(claim.job, new // gpus)
            self.left -= share.widest * gpus
            for part in self._parts:
                part.free -= new * part.region.whole(claim.job)
                part.left -= part.gpus(claim.job, share.widest)
        return share

    def spare_gpus_on(self, region: Region) -> int:
        """GPUs of a region that no claim needs."""
        return next(part.left for part in self._parts if part.region is region)

    def _begins_now(self, job: Job, more: int) -> bool:
        """Whether so many more workers find places that are free now, or held for it."""
        size, ledger = job.gpus_per_worker, self._now
        if any(more * size > free for free in self._frees(job)):
            return False
        if ledger is None or more <= 0:
            return True
        ledger.open_holds(job.id)
        places = ledger.slots(size, self._room.state.eligible_nodes(job), needs=job.needs)
        ledger.close_holds(job.id)
        return places >= more

    def _take_now(self, job: Job, more: int) -> None:
        """They start there."""
        if self._now is not None and more > 0:
            self._now.open_holds(job.id)
            may = self._room.state.eligible_nodes(job)
            self._now.place(more, job.gpus_per_worker, may, needs=job.needs)

    def _frees(self, job: Job) -> Iterator[int]:
        """Free GPUs of the cluster, and of each region that it cannot leave."""
        yield self._free
        for part in self._parts:
            if part.region.whole(job):
                yield part.free

    def count(self, jobs: Sequence[Job], gpus: Ints) -> int:
        """Count the first of these newcomers while their GPUs (n,) are free; how many."""
        if self._ledger is not None:
            return 0
        sums = np.cumsum(gpus)
        count = int((sums <= min(self._free, self.left)).sum())
        weights = [part.weighs(jobs, gpus) for part in self._parts]
        for part, (first_odd, weighs) in zip(self._parts, weights, strict=True):
            fits = np.cumsum(weighs) <= min(part.free, part.left)
            bad = np.flatnonzero(~fits & (weighs > 0))
            count = min([count, first_odd, *bad[:1].tolist()]) if part.left >= 0 else 0
        taken = int(sums[count - 1]) if count else 0
        self._free, self.left = self._free - taken, self.left - taken
        for part, (_, weighs) in zip(self._parts, weights, strict=True):
            taken = int(weighs[:count].sum())
            part.free, part.left = part.free - taken, part.left - taken
        return count

    def _alone(self, claim: Claim, after_s: float) -> Share | None:
        """On the least width that is in time, from `after_s` on. Nobody narrows who may not be stopped."""
        job, forecasts = claim.job, self._room.forecasts
        least = 0 if job.preemptible or stopping(job) else job.workers
        for width in forecasts.curve(job).widths:
            if width < least:
                continue
            finish_s = forecasts.rest_s(job, width, after_s=after_s)
            if finish_s <= claim.deadline_s + TINY_S and finish_s < FOREVER:
                later = after_s > 0.0 and width > job.workers
                steps = ((0.0, job.workers), (after_s, width)) if later else ((0.0, width),)
                return Share(steps, finish_s)
        return None

    def _packs(self, job: Job, workers: int, *, keep: bool) -> bool:
        """Whether the workers fit on nodes: big ones can fail where the sum fits."""
        if self._ledger is None:
            return True
        ledger = self._ledger if keep else self._ledger.copy()
        stay = _take_all(ledger, job.nodes[:workers], job.shape)
        may = self._room.state.eligible_nodes(job)
        more = workers - stay
        return ledger.place(more, job.gpus_per_worker, may, needs=job.needs) is not None


class _Part:
    """One region: GPUs left for claims, and free now."""

    def __init__(self, room: Room, region: Region) -> None:
        self.region, on_it = region, room.on[region]
        held = sum(region.sits(job) * job.gpus_per_worker for job in room.unmoving)
        kept = sum(step.gpus for step in room.state.reserved if region.whole(step))
        self.left = on_it.capacity - on_it.coming - held - kept
        kept_free = [hold.gpus for hold in room.held.unclaimed if hold.node in region.nodes]
        self.free = on_it.free - sum(kept_free)

    def weighs(self, jobs: Sequence[Job], gpus: Ints) -> tuple[int, Ints]:
        """GPUs (n,) with which newcomers weigh here; and the first that weighs by what it awaits."""
        awaited = self.region.awaited
        odd = (
            next((place for place, job in enumerate(jobs) if job.id in awaited), len(jobs))
            if awaited
            else len(jobs)
        )
        mine = self.region.whole_of(jobs)
        return odd, np.where(mine, gpus, 0)

    def gpus(self, job: Job, workers: int) -> int:
        return self.region.workers(job, workers) * job.gpus_per_worker


def _take_all(ledger: Ledger, nodes: Sequence[str], shape: WorkerShape) -> int:
    """Take what can be taken on these nodes; how many workers that is."""
    taken = 0
    for node in nodes:
        if ledger.place_on((node,), 1, shape.gpus, needs=shape.needs) is not None:
            taken += 1
    return taken
