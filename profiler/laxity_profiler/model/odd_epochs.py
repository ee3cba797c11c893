"""Usual epochs and odd ones: an epoch that took many times as long costs its own excess.

Epochs are drawn from a mixture: usual ones, and rare ones of another size (a data server that resets, a
checkpoint on a slow disk). Usual is what lies within `FAR` standard errors of the median, measured
by the median of the distances from it (MAD), and within twice or half of it. Three odd ones in a row
are no odd ones but a lasting change. How often a rare one comes again:

    share = odd / (own epochs + epochs of history + 20)     size = mean of the odd ones over the usual

20 usual epochs are assumed beside those that were seen. The form is ours.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import Final

from laxity_profiler.model.run_factor import Belief

FAR: Final = 6.0  # standard errors from the usual
FACTOR: Final = 2.0  # and so many times as long, or as short
LASTING: Final = 3  # odd ones in a row
ASSUMED: Final = 20  # usual epochs
SURE: Final = 0.3  # relative error of an expectation that two epochs cannot overrule


@dataclass(frozen=True, slots=True)
class EpochMixture:
    """Which ratios are usual; and what rare ones add to an epoch: their mean, their variance.

    Both are relative to a usual epoch.
    """

    is_usual: tuple[bool, ...]
    excess: float = 0.0
    excess2: float = 0.0

    def with_rare(self, belief: Belief) -> Belief:
        """What is believed of usual epochs, for epochs of both kinds."""
        rare = 1.0 + self.excess
        noise2 = belief.noise2 + self.excess2 / (rare * rare)
        return replace(belief, factor=belief.factor * rare, noise2=noise2)


def split_epochs(ratios: Sequence[float], belief: Belief, n_history: int) -> EpochMixture:
    """Of ratios to what was expected of an epoch, oldest first, and what is believed before them."""
    if not ratios:
        return EpochMixture(())
    centre = _usual_ratio(ratios, belief)
    mad = 1.4826 * median(abs(ratio - centre) for ratio in ratios) if len(ratios) > 2 else 0.0
    far = FAR * max(mad, centre * math.sqrt(belief.noise2))
    is_odd = [
        abs(ratio - centre) > far and not centre / FACTOR <= ratio <= centre * FACTOR
        for ratio in ratios
    ]
    lasting = _count_last(is_odd)
    if lasting >= LASTING:
        return EpochMixture((False,) * (len(ratios) - lasting) + (True,) * lasting)
    usual = tuple(not odd for odd in is_odd)
    rare = [ratio / centre - 1.0 for ratio, odd in zip(ratios, is_odd, strict=True) if odd]
    if not rare:
        return EpochMixture(usual)
    share = len(rare) / (len(ratios) + n_history + ASSUMED)
    size = fmean(rare)
    return EpochMixture(usual, share * size, share * size * size)


def _usual_ratio(ratios: Sequence[float], belief: Belief) -> float:
    """The middle one; of one or two what was expected, if that is sure, else the smaller one."""
    if len(ratios) > 2:
        return median(ratios)
    return belief.factor if belief.left2 < SURE * SURE else min(ratios)


def _count_last(odd: Sequence[bool]) -> int:
    return next((n for n, each in enumerate(reversed(odd)) if not each), len(odd))
