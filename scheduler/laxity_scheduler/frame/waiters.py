"""Jobs that wait, as columns: what each of them takes on each of its widths, from now on.

Jobs of one curve (see `curve`) are alike; what there is per curve is worked out once. The answers are
those of `Forecasts.rest_s` for a job that has no workers, in the same floating-point operations.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.frame.arrays import Ints
from laxity_scheduler.frame.curve import ROW, Curve
from laxity_scheduler.frame.remaining import Forecasts
from laxity_scheduler.model.job import FOREVER, Job

P50, MEAN, P90 = (ROW[name] for name in ("p50", "mean", "p90"))


@dataclass(frozen=True)
class Waiters:
    """n waiting jobs of K kinds on L levels, of which those that a job has not are of width 0."""

    jobs: Sequence[Job]
    curves: Sequence[Curve]  # (K,)
    kind: Ints  # (n,)
    widths: Ints  # (K, L)
    totals: Floats  # (K, L, 4): seconds of the whole epochs that are left, by quantile
    starts: Floats  # (K, L, 4)
    left: Floats  # (K,): epochs
    size: Ints  # (n,): GPUs per worker

    @cached_property
    def width(self) -> Ints:
        """Shape (n, L)."""
        return self.widths[self.kind]

    @property
    def epochs(self) -> Floats:
        """Epochs that are left, (n,)."""
        return self.left[self.kind]

    def total_s(self, quantile: int) -> Floats:
        """Seconds of the whole epochs that are left, (n, L)."""
        return self.totals[self.kind, :, quantile]

    def rest_s(self, quantile: int) -> Floats:
        """Seconds to the end by level if it starts now, (n, L)."""
        total, start = self.totals[..., quantile], self.starts[..., quantile]
        rest = np.where(total < FOREVER, start + total, FOREVER)
        ended = (self.left <= 0.0)[:, None] & (self.widths > 0)
        return np.where(ended, 0.0, rest)[self.kind]

    @cached_property
    def held_s(self) -> Floats:
        """How long one holds its least width if it is stopped at its first epoch's end (P90), (n,)."""
        found = [
            one.start_s(one.least, "p90")
            + one.epoch_s(one.least, "p90")
            + one.stop_s(one.least, "p90")
            for one in self.curves
        ]
        return np.array(found)[self.kind]

    def walked_s(
        self, rows: Ints, levels: Ints, quantile: int, *, from_s: Floats | float = 0.0
    ) -> Floats:
        """The same by whole epochs, as `reserve.simulate` counts them, (len(rows),)."""
        kinds = self.kind[rows]
        epoch_s = self.totals[kinds, levels, quantile] / np.maximum(self.left[kinds], 1.0)
        begun_s = from_s + self.starts[kinds, levels, quantile]
        end_s: Floats = begun_s + self.left[kinds] * epoch_s
        return end_s

    def at(self, rows: Ints) -> list[Job]:
        """These jobs."""
        jobs = self.jobs
        return [jobs[row] for row in rows.tolist()]


def waiters_of(jobs: Sequence[Job], forecasts: Forecasts) -> Waiters:
    """These jobs, none of which has workers."""
    found = forecasts.curves(jobs)
    ids = list(map(id, found))
    by_id = dict(zip(ids, found, strict=True))
    numbers = dict(zip(by_id, range(len(by_id)), strict=True))
    kind = np.array(list(map(numbers.__getitem__, ids)), dtype=np.int64)
    curves = list(by_id.values())
    deepest = max((len(one.widths) for one in curves), default=1)
    width = np.zeros((len(curves), deepest), dtype=np.int64)
    total, start = (np.full((len(curves), deepest, 4), FOREVER) for _ in range(2))
    for row, curve in enumerate(curves):
        for at, one in enumerate(curve.widths):
            width[row, at] = one
            total[row, at] = curve.totals[one]
            start[row, at] = curve.starts[one]
    epochs = np.array([float(curve.epochs_left) for curve in curves])
    size = np.array([job.gpus_per_worker for job in jobs], dtype=np.int64)
    return Waiters(jobs, curves, kind, width, total, start, epochs, size)
