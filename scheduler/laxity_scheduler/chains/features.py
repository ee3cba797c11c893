"""What a provisioner knows at a decision: a day of snapshots, and how far the predecessor is.

A snapshot is taken every ten minutes; a window is the last 144.

Of Mirage's 13 features that are not in `snapshot_loop` the pair's limits and sizes and the
successor's wait and elapsed run are constant within an experiment, and left out. The predecessor's
wait and elapsed run stand once beside a window, not once per row: there Mirage repeats them.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from laxity_profiler.estimate import Floats
from laxity_scheduler.chains.snapshot_loop import MIRAGE_COLUMNS
from laxity_scheduler.frame.arrays import Ints
from laxity_scheduler.model.job import DAY_S

DECIDE_EVERY_S: Final = 600.0  # one decision by each snapshot
WINDOW: Final = round(DAY_S / DECIDE_EVERY_S)
SIX_HOURS: Final = 36
Singles = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Windows:
    """Knowledge at n decisions.

    `queue` is (n, WINDOW, COLUMNS), the newest row last; `wait_h`, `elapsed_h` and `left_h` are (n,):
    the predecessor's past wait, elapsed run, and hours up to its time limit.
    """

    queue: Singles
    wait_h: Floats
    elapsed_h: Floats
    left_h: Floats

    def rows(self, rows: Ints) -> "Windows":
        """Some of the decisions, in this order."""
        pair = (self.wait_h[rows], self.elapsed_h[rows], self.left_h[rows])
        return Windows(self.queue[rows], *pair)

    def flat(self) -> Singles:
        """All that Mirage's trees see, (n, WINDOW * 29 + 2)."""
        queue = self.queue[:, :, :MIRAGE_COLUMNS].reshape(len(self.queue), -1)
        return np.concatenate((queue, self._pair()), axis=1)

    def tokens(self) -> Singles:
        """All that Mirage's networks see, (n, WINDOW, 29 + 2): the pair stands in each row."""
        shape = (*self.queue.shape[:2], 2)
        pair = np.broadcast_to(self._pair()[:, None], shape)
        return np.concatenate((self.queue[:, :, :MIRAGE_COLUMNS], pair), axis=2)

    def summary(self) -> Singles:
        """Each column now, its mean of six hours and of a day, its change over both, (n, 167)."""
        now = self.queue[:, -1]
        parts = (
            now,
            self.queue[:, -SIX_HOURS:].mean(axis=1),
            self.queue.mean(axis=1),
            now - self.queue[:, -SIX_HOURS],
            now - self.queue[:, 0],
            self._pair(),
        )
        return np.concatenate(parts, axis=1)

    def _pair(self) -> Singles:
        return np.stack((self.wait_h, self.elapsed_h), axis=1).astype(np.float32)
