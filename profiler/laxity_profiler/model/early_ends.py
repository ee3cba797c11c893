"""How many of its declared epochs a training really runs, learned from runs that ended early.

Of the runs that trained beyond the epochs done so far, sorted, with the declared N behind them as
one more: P50 is their median, and P90 their quantile at (m + 1) 0.9 once ten runs have ended, N
before. So a model that always trains all of its epochs is predicted as ever, and a promise does not
rest on a habit that was seen three times.
"""

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

ENOUGH: Final = 10  # runs that have ended, before P90 follows them
MOST: Final = 50  # runs that count: the latest


class EpochShares(NamedTuple):
    """Epochs that are expected as shares of those that are left, by quantile; at most 1."""

    p10: float = 1.0
    p50: float = 1.0
    mean: float = 1.0
    p90: float = 1.0


ALL_EPOCHS: Final = EpochShares()


def ended_shares(runs: Sequence[tuple[int, int]]) -> tuple[float, ...]:
    """n/N of the latest runs, of (epochs trained, epochs declared), ascending; () if none was early."""
    latest = [done / total for done, total in runs[-MOST:] if 0 < done <= total]
    return tuple(sorted(latest)) if any(share < 1.0 for share in latest) else ()


def expected_shares(ended: Sequence[float], epochs: int, done: int) -> EpochShares:
    """What is expected of `epochs` of which so many are done; `ended` as from `ended_shares`."""
    left = epochs - done
    beyond = [n - done for n in (round(share * epochs) for share in ended) if n > done]
    if not beyond:
        return ALL_EPOCHS
    outcomes = [*beyond, left]
    places = len(outcomes)
    middle = outcomes[math.ceil(0.5 * places) - 1]
    high = outcomes[min(places - 1, math.ceil(0.9 * places)) - 1] if len(ended) >= ENOUGH else left
    low = outcomes[max(1, math.floor(0.1 * places)) - 1]
    mean = sum(outcomes) / places
    return EpochShares(low / left, middle / left, mean / left, max(middle, high) / left)


def early_text(ended: Sequence[float], epochs: int) -> str:
    """What a job of so many epochs should know of the runs before it; "" if none ended early."""
    early = sum(share < 1.0 for share in ended)
    if not early:
        return ""
    middle = round(ended[(len(ended) - 1) // 2] * epochs)
    rests = "P90 follows them" if len(ended) >= ENOUGH else f"P90 counts all {epochs}"
    runs = f"{early} of the last {len(ended)} runs"
    if early == len(ended):
        runs = {1: "the one run", 2: "both runs"}.get(early, f"all {early} runs")
    half = "half of them by" if len(ended) > 1 else "after"
    return f"{runs} ended early, {half} epoch {middle} of {epochs}: {rests}"
