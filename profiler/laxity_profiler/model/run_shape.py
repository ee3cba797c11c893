"""How the epochs of a run differ by a rule: a validation every k-th, a curriculum, a fast first one.

    T(i) = level(w) f s_i e_i        i: number of the epoch; f: of the run; e: noise; mean of s: 1

r_ki is the time of epoch i in run k over the mean of that run, m_i its mean over the K runs with as
many epochs. It is drawn towards 1 by how little was seen (empirical Bayes: the variance between epochs
against that of a mean of K; Efron and Morris 1975):

    s_i = 1 + gain (m_i - 1)         gain = tau^2 / (tau^2 + v / K)         tau^2 = var(m) - v / K

v is the variance of one epoch between runs. One run alone cannot tell it; there it is that between
epochs of equal place in the rule: half the mean square of the differences at the best distance (1: it
changes slowly; k: every k-th, at least twice). What a first epoch takes beyond the second one's share
is a warm-up.
The form is ours.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from laxity_profiler.estimate import Floats

LEAST_EPOCHS: Final = 3
LEAST_GAIN: Final = 0.5  # with less, epochs are taken for equal
LEAST_RATIO: Final = 0.02
RUNS_KEPT: Final = 50
ASSUMED_POINTS: Final = 4.0
ASSUMED_NOISE2: Final = 0.05**2


@dataclass(frozen=True, slots=True)
class RunShape:
    """The ratios of all epochs of runs with so many, over their mean; learned from `runs`."""

    epochs: int
    ratios: tuple[float, ...]
    runs: int

    def ratio(self, number: int) -> float:
        """Of one epoch, counted from 1; of one that such runs do not have, 1."""
        return self.ratios[number - 1] if 1 <= number <= self.epochs else 1.0

    def rest(self, done: int) -> tuple[float, float, float]:
        """Of the epochs that are left: their sum, how many equal ones are as sure, and the next one."""
        left = self.ratios[done:]
        if not left:
            return 0.0, 1.0, 1.0
        total = sum(left)
        return total, total * total / sum(ratio * ratio for ratio in left), left[0]


class ShapeRuns:
    """Whole runs of equal length, (K, N): each epoch over the mean of its run, warm-ups no numbers."""

    def __init__(self, uids: Sequence[str], ratios: Floats) -> None:
        self._rows = {uid: row for row, uid in enumerate(uids[-RUNS_KEPT:])}
        self._ratios = _without_odd(ratios[-RUNS_KEPT:])
        self._noise2 = _noise2_between_runs(self._ratios)
        self.alone_noise2 = _noise2_within_run(self._ratios[0]) if len(self._rows) == 1 else 0.0

    def shape(self, without: str = "") -> RunShape | None:
        """That of all runs but one; of a single run, its own. None where epochs are equal."""
        ratios = self._ratios
        if without in self._rows and len(ratios) > 1:
            ratios = np.delete(ratios, self._rows[without], axis=0)
        middle = _column_means(ratios)
        runs, n = ratios.shape
        unsure2 = (self.alone_noise2 or self._noise2) / runs
        between2 = float(np.var(middle)) - unsure2
        gain = between2 / (between2 + unsure2) if between2 > 0.0 else 0.0
        if gain < LEAST_GAIN:
            return None
        shrunk = np.maximum(1.0 + gain * (middle - 1.0), LEAST_RATIO)
        return RunShape(n, tuple(shrunk.tolist()), runs)


def _without_odd(ratios: Floats) -> Floats:
    """Epochs that took more than twice what they take in the middle run, or less than half: no numbers."""
    if len(ratios) < 3:
        return ratios
    ordered = np.sort(np.nan_to_num(ratios, nan=1.0), axis=0)
    middle = ordered[len(ordered) // 2]
    is_odd = (ratios > 2.0 * middle) | (ratios < middle / 2.0)
    return np.where(is_odd, np.nan, ratios)


def _column_means(ratios: Floats) -> Floats:
    """By number of the epoch; the first, which warms up, is at most as long as the second."""
    seen = ~np.isnan(ratios)
    sums = np.where(seen, ratios, 0.0).sum(axis=0)
    counts = seen.sum(axis=0)
    middle: Floats = np.where(counts > 0, sums / np.maximum(counts, 1), 1.0)
    middle[0] = min(middle[0], middle[1])
    return middle


def _noise2_between_runs(ratios: Floats) -> float:
    """Variance of one epoch between runs, with some that are assumed; the first warms up."""
    later = ratios[:, 1:]
    seen = ~np.isnan(later)
    middle = np.where(seen, later, 0.0).sum(axis=0) / np.maximum(seen.sum(axis=0), 1)
    squares = float(np.where(seen, (later - middle) ** 2, 0.0).sum())
    points = float(np.maximum(seen.sum(axis=0) - 1, 0).sum())
    return (ASSUMED_POINTS * ASSUMED_NOISE2 + squares) / (ASSUMED_POINTS + points)


def _noise2_within_run(ratios: Floats) -> float:
    """Variance of one epoch around the rule that explains the run best: at the best distance.

    Each is compared with the one so far before it, or after it where that one would be the first.
    """
    places = np.arange(1, len(ratios))
    squares = []
    for distance in range(1, len(ratios) // 2 + 1):
        before, after = places - distance, places + distance
        alike = np.where((before < 1) & (after < len(ratios)), after, before)
        apart = ratios[places] - ratios[alike]
        apart = apart[~np.isnan(apart)]
        if 2 * len(apart) >= len(places):
            squares.append(float(np.mean(apart**2)) / 2.0)
    return max(min(squares, default=float(np.nanvar(ratios[1:]))), ASSUMED_NOISE2)
