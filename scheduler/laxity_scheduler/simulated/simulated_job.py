"""One simulated job as it is: where it stands, what it holds and what waits for its epoch's end.

A job trains from `ready_at` on: position(t) = position + (t - max(since, ready_at)) / epoch_s.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final

from laxity_profiler.estimate import NO_PROGRESS, Progress
from laxity_scheduler.frame.arrays import replace_fields
from laxity_scheduler.model.job import FOREVER, Job
from laxity_scheduler.simulated.ground_truth import GroundTruth

TINY: Final = 1e-9


@dataclass(slots=True)
class SimJob:
    """A submitted, unfinished job as it is."""

    truth: GroundTruth
    row: Job
    position: float = 0.0  # epochs done, with a fraction, at `since`
    since: float = 0.0
    ready_at: float = 0.0  # training goes on from here
    product: str = ""  # of its GPUs, the slowest if there are several
    formed: int = 0  # width it trains at, or will once ready; 0 without workers
    workers: int = 0  # width it holds GPUs for
    nodes: tuple[str, ...] = ()
    stop_at_boundary: bool = False
    shrink_to: int = 0
    grown_at: float = 0.0  # when added workers can join
    parked: bool = False
    going: int = 0  # workers that were stopped and whose pods have not gone yet
    starting: bool = False
    charged_at: float = -1.0
    version: int = 0
    dirty: bool = True
    row_due_at: float = FOREVER  # when its row is looked at again
    seen: tuple[tuple[float, int], ...] = ()
    fresh_at: int = 0  # epochs done when it last started or re-formed: the next one is a warm-up
    shown: tuple[int, bool] = (-1, False)
    had: frozenset[int] = frozenset()  # widths since the last periodic restart
    # for the report
    accounted_at: float = 0.0
    first_start_at: float = FOREVER
    running_s: float = 0.0
    gpu_s: float = 0.0
    lost_gpu_s: float = 0.0
    resizes: int = 0

    def at(self, now: float) -> float:
        """Epochs done by now, with a fraction."""
        if not self.formed or self.parked:
            return self.position
        ran_s = now - max(self.since, self.ready_at)
        if ran_s <= 0.0:
            return self.position
        return min(float(self.truth.epochs), self.position + ran_s / self.epoch_s)

    @property
    def epoch_s(self) -> float:
        return self.truth.times_on(self.product)[self.formed]

    def move_to(self, products: Collection[str]) -> None:
        """Its workers are on these products from now on: it is as fast as the slowest."""
        width = self.workers
        slowest = max(products, key=lambda product: (self.truth.times_on(product)[width], product))
        if slowest != self.product:
            self.product, self.seen = slowest, ()
            self.row = replace_fields(
                self.row, workload=replace(self.row.workload, gpu_type=slowest)
            )

    @property
    def gpus(self) -> int:
        return self.workers * self.truth.gpus_per_worker

    @property
    def finish_at(self) -> float:
        """When it ends if nothing is changed."""
        if not self.formed or self.parked:
            return FOREVER
        left = self.truth.epochs - self.position
        return max(self.since, self.ready_at) + left * self.epoch_s

    @property
    def stops_inside(self) -> bool:
        """Whether it was told to stop and does so inside its epoch."""
        return self.stop_at_boundary and self.row.stops_anywhere

    @property
    def ends_link(self) -> bool:
        """Whether it stops before its link's limit, which its workers know themselves."""
        return self.row.wall_limit_s < FOREVER and self.row.stop_for == self.truth.id

    @property
    def changes(self) -> bool:
        """Whether something waits for an epoch's end."""
        if self.parked or not self.formed:
            return False
        if self.stop_at_boundary:
            return True
        return self.formed != (self.shrink_to or self.workers)


def row_of(live: SimJob, done: int, now: float) -> Job:
    """Its row as it is now, with so many epochs done."""
    row = live.row
    started = live.formed and not live.parked  # parked, it saves until `ready_at`
    starting = started and live.starting and now < live.ready_at and live.position - done < TINY
    begun_at = None
    if started and not starting:
        part_s = (live.position - done) * live.epoch_s
        begun_at = max(now, live.ready_at) - part_s
    epochs, progress = live.seen, NO_PROGRESS
    if done:
        progress = Progress(
            done,
            tuple([s for s, _ in epochs]),
            tuple([w for _, w in epochs]),
            gpu_type=live.product,
        )
    return replace_fields(
        row,
        workers=live.workers,
        nodes=live.nodes,
        terminating_workers=live.going,
        progress=progress,
        since=now,
        attained_gpu_s=live.gpu_s,
        epoch_started_at=begun_at,
        formed=0 if starting else live.formed,
        resize_to=live.shrink_to,
        saved_part=live.position - done if row.stops_anywhere and begun_at is None else 0.0,
        parked_epoch=done if live.parked and now >= live.ready_at else None,
    )
