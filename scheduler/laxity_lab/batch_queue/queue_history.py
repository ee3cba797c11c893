"""A day of snapshots at each decision of a simulated start.

The simulated cluster is looked at once per snapshot, and all windows are views of the same rows.
"""

from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from laxity_lab.batch_queue.successor import Pair
from laxity_profiler.estimate import Floats
from laxity_scheduler.chains.features import DECIDE_EVERY_S, WINDOW, Singles, Windows
from laxity_scheduler.chains.snapshot_loop import COLUMNS
from laxity_scheduler.frame.arrays import Ints
from laxity_scheduler.model.job import HOUR_S


@dataclass(frozen=True, slots=True)
class QueueHistory:
    """Snapshots of one start up to its predecessor's end, none of the successor's doing."""

    pair: Pair
    taken_at: Floats
    snapshots: Singles

    def row_at(self, instant: float) -> int:
        """The last snapshot up to an instant."""
        return int(np.searchsorted(self.taken_at, instant, side="right")) - 1

    def windows(self, rows: Ints) -> Windows:
        """What is known at these snapshots. ValueError if one has less than a day before it."""
        if rows.min(initial=WINDOW) < WINDOW - 1:
            raise ValueError(f"snapshot {rows.min()} has no {WINDOW} rows up to it")
        queue = sliding_window_view(self.snapshots, WINDOW, axis=0)[rows - WINDOW + 1]
        pair, taken_at = self.pair, self.taken_at[rows]
        elapsed_h = np.maximum(0.0, taken_at - pair.started_at) / HOUR_S
        wait_h = (np.minimum(taken_at, pair.started_at) - pair.submitted_at) / HOUR_S
        left_h = pair.settings.limit_s / HOUR_S - elapsed_h
        return Windows(queue.swapaxes(1, 2), wait_h, elapsed_h, left_h)


def watch_queue(pair: Pair) -> QueueHistory:
    """Take the snapshots of a start, from a day before the predecessor's submission on."""
    looks = list(pair.looks(DECIDE_EVERY_S))
    taken_at = np.array([taken for taken, _ in looks], dtype=np.float64)
    snapshots = np.array([snapshot for _, snapshot in looks], dtype=np.float32)
    return QueueHistory(pair, taken_at, snapshots.reshape(-1, COLUMNS))
