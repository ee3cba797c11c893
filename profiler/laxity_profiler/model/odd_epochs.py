"""Usual epochs and odd ones: an epoch that took many times as long costs its own excess.

Epochs are drawn from a mixture: usual ones, and rare ones of another size (a data server that resets, a
checkpoint on a slow disk). Usual is what lies within `FAR` standard errors of the median, measured
by the median of the distances from it (MAD), and within twice or half of it. Three odd ones in a row
are no odd ones but a lasting change. How often a rare one comes again, of the n epochs that are left:

    share = odd / (own epochs + epochs of history + 5)     size = mean of what odd ones took beyond
    extra = count(share n) size                            count: quantiles of Poisson's distribution

5 usual epochs are assumed beside those that were seen, and 45 more before two runs are known: one
run cannot tell an odd epoch from a rule. The form is ours.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from laxity_profiler.model.run_factor import Belief

FAR: Final = 6.0  # standard errors from the usual
FACTOR: Final = 2.0  # and so many times as long, or as short
LASTING: Final = 3  # odd ones in a row
ASSUMED: Final = 5  # usual epochs
FIRST_RUNS: Final = 45  # and so many more, where fewer than two runs are known
LEAST_EPOCHS: Final = 5  # of a past run, to tell the odd ones among them
SURE: Final = 0.3  # relative error of an expectation that two epochs cannot overrule
NORMAL_90: Final = 1.28
POISSON_90: Final = (0.1054, 0.5318, 1.1021, 1.7448)  # up to these means P90 is 0, 1, 2, 3
POISSON_50: Final = 0.6931  # up to this one P50 is 0


Extra = tuple[float, float, float, float]
NO_EXTRA: Final[Extra] = (0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class RareEpochs:
    """How many of `epochs` took far longer than usual, and by how much in all, over a usual one."""

    epochs: int = 0
    odd: int = 0
    excess: float = 0.0

    def __add__(self, other: "RareEpochs") -> "RareEpochs":
        return RareEpochs(
            self.epochs + other.epochs, self.odd + other.odd, self.excess + other.excess
        )

    def expected_excess(self, left: float) -> Extra:
        """How many usual epochs those that may come last, beyond so many: P10, P50, mean and P90."""
        if not self.odd:
            return NO_EXTRA
        expected = self.odd / (self.epochs + ASSUMED) * left
        size = self.excess / self.odd
        wide = NORMAL_90 * math.sqrt(expected)
        few = next((count for count, most in enumerate(POISSON_90) if expected < most), None)
        return (
            size * max(0.0, expected - wide),
            size * (expected - 1.0 / 6.0 if expected > POISSON_50 else 0.0),
            size * expected,
            size * (expected + wide + 0.6 if few is None else few),
        )


NONE_RARE: Final = RareEpochs()
UNKNOWN_RARE: Final = RareEpochs(FIRST_RUNS)


@dataclass(frozen=True, slots=True)
class EpochMixture:
    """Which ratios are usual, and what is known of the rare ones."""

    is_usual: tuple[bool, ...]
    rare: RareEpochs = NONE_RARE


def split_epochs(ratios: Sequence[float], belief: Belief) -> EpochMixture:
    """Of ratios to what was expected of an epoch, oldest first, and what is believed before them."""
    if not ratios:
        return EpochMixture(())
    centre = _usual_ratio(ratios, belief)
    is_odd = _find_odd(ratios, centre, math.sqrt(belief.noise2))
    lasting = _count_last(is_odd)
    if lasting >= LASTING:
        return EpochMixture((False,) * (len(ratios) - lasting) + (True,) * lasting)
    return _mixture(ratios, is_odd, centre)


def split_past(epoch_s: Sequence[float]) -> EpochMixture:
    """Of the epochs of a run that is over; where several in a row are odd, all are usual."""
    all_usual = EpochMixture((True,) * len(epoch_s), RareEpochs(len(epoch_s)))
    if len(epoch_s) < LEAST_EPOCHS:
        return all_usual
    centre = median(epoch_s)
    is_odd = _find_odd(epoch_s, centre, 0.0)
    runs_of_odd = (_count_last(is_odd[: end + 1]) for end in range(len(is_odd)))
    return all_usual if max(runs_of_odd) >= LASTING else _mixture(epoch_s, is_odd, centre)


def _mixture(times: Sequence[float], is_odd: Sequence[bool], centre: float) -> EpochMixture:
    """Odd ones that were short are set apart, and none are expected."""
    pairs = zip(times, is_odd, strict=True)
    excess = [time / centre - 1.0 for time, odd in pairs if odd and time > centre]
    rare = RareEpochs(len(times), len(excess), sum(excess))
    return EpochMixture(tuple(not odd for odd in is_odd), rare)


def _find_odd(times: Sequence[float], centre: float, error: float) -> list[bool]:
    """Which of them are far from the middle; `error` is the least relative one of an epoch."""
    mad = 1.4826 * median(abs(time - centre) for time in times) if len(times) > 2 else 0.0
    far = FAR * max(mad, centre * error)
    return [
        abs(time - centre) > far and not centre / FACTOR <= time <= centre * FACTOR
        for time in times
    ]


def _usual_ratio(ratios: Sequence[float], belief: Belief) -> float:
    """The middle one; of one or two what was expected, if that is sure, else the smaller one."""
    if len(ratios) > 2:
        return median(ratios)
    return belief.factor if belief.left2 < SURE * SURE else min(ratios)


def _count_last(odd: Sequence[bool]) -> int:
    return next((n for n, each in enumerate(reversed(odd)) if not each), len(odd))
