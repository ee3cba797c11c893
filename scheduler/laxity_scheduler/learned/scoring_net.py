"""A small net that scores one row of features, the same for every job: features -> 32 -> 32 -> score.

DL2's net sees all jobs at once and is made for so many (algorithms.md 6.4). One net that is shared by
the rows takes any number of jobs, in any order. Its arithmetic is in double precision.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.frame.arrays import Bools

MOST_WEIGHT: Final = 1e6  # trained ones are below 10; scores of these stay finite


@dataclass(frozen=True, slots=True)
class ScoringNet:
    """`weights` of shapes (F, H), (H, H), (H, 1), `biases` of (H,), (H,), (1,)."""

    weights: tuple[Floats, ...]
    biases: tuple[Floats, ...]

    def score(self, rows: Floats) -> Floats:
        """Shape (n, F) to (n,)."""
        values = rows
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            values = np.maximum(values @ weight + bias, 0.0)
        return np.asarray((values @ self.weights[-1] + self.biases[-1])[:, 0])

    def arrays(self) -> dict[str, Floats]:
        """By name, for a file."""
        pairs = enumerate(zip(self.weights, self.biases, strict=True))
        return {
            f"{kind}_{layer}": array
            for layer, pair in pairs
            for kind, array in zip(("weight", "bias"), pair, strict=True)
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Floats], features: int) -> "ScoringNet":
        """ValueError if shapes do not follow one another, or a weight is absurd."""
        layers = range(len(arrays) // 2)
        try:
            weights = tuple([arrays[f"weight_{layer}"].astype(np.float64) for layer in layers])
            biases = tuple([arrays[f"bias_{layer}"].astype(np.float64) for layer in layers])
        except KeyError as error:
            raise ValueError(f"it has no {error}") from error
        if not all((np.abs(each) <= MOST_WEIGHT).all() for each in (*weights, *biases)):  # no NaN
            raise ValueError(f"a weight is no finite number of at most {MOST_WEIGHT:g}")
        width = features
        for weight, bias in zip(weights, biases, strict=True):
            if weight.ndim != 2 or weight.shape[0] != width or bias.shape != weight.shape[1:]:
                raise ValueError(f"a layer has shape {weight.shape}, not ({width}, ...)")
            width = weight.shape[1]
        if not weights or width != 1:
            raise ValueError("its last layer gives no single score")
        return cls(weights, biases)


def masked_softmax(scores: Floats, allowed: Bools) -> Floats:
    """Probabilities of the allowed ones, (n,); the others have 0. ValueError if none is."""
    if not allowed.any():
        raise ValueError("nothing is allowed")
    raised = np.where(allowed, scores, -np.inf)
    weights = np.exp(raised - raised.max())
    return np.asarray(weights / weights.sum())
