"""Models of what a submission now leads to, behind one protocol.

`forest`, `xgboost` and `boosting` predict hours of difference from a day of snapshots laid flat; the
first two are Mirage's, the third is the same with scikit-learn. A forest of Mirage's release also does
duty as its "xgboost"; here xgboost is xgboost. `network_models` holds Mirage's networks.
`calibrated` is laxity's own: quantiles of the wait from a summary of the day, calibrated on weeks
held out.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.array_file import collect_arrays
from laxity_scheduler.chains.features import Windows
from laxity_scheduler.chains.trees import Trees, read_trees
from laxity_scheduler.chains.wait_distribution import LEVELS, level_weights, read_levels

POINT: Final = "trees"


class ValueModel(Protocol):
    """Hours of difference if the successor were submitted now.

    `predict_h` gives (n, k) for n decisions; `weights`, (k,), are the probabilities of the k values:
    one for a point, several for a distribution.
    """

    @property
    def weights(self) -> Floats: ...

    def predict_h(self, windows: Windows) -> Floats: ...

    def arrays(self) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class PointModel:
    """One value per decision."""

    trees: Trees

    @property
    def weights(self) -> Floats:
        return np.ones(1)

    def predict_h(self, windows: Windows) -> Floats:
        return self.trees.predict(windows.flat())[:, None]

    def arrays(self) -> dict[str, Any]:
        return collect_arrays(POINT, self.trees)

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, Any]) -> "PointModel":
        return cls(read_trees(arrays, POINT))


@dataclass(frozen=True, slots=True)
class CalibratedModel:
    """A wait's quantiles, one ensemble of trees per level, read at calibrated levels."""

    by_level: tuple[Trees, ...]
    read_at: Floats

    @property
    def weights(self) -> Floats:
        return level_weights()

    def predict_h(self, windows: Windows) -> Floats:
        waits_h = read_levels(predict_waits_h(self.by_level, windows), self.read_at)
        return waits_h - windows.left_h[:, None]

    def arrays(self) -> dict[str, Any]:
        trees = {
            name: array
            for number, trees in enumerate(self.by_level)
            for name, array in collect_arrays(f"level{number}", trees).items()
        }
        return {"read_at": self.read_at, **trees}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, Any]) -> "CalibratedModel":
        levels = [read_trees(arrays, f"level{number}") for number in range(len(LEVELS))]
        return cls(tuple(levels), arrays["read_at"])


def predict_waits_h(by_level: tuple[Trees, ...], windows: Windows) -> Floats:
    """Quantiles of the wait before calibration, (n, levels), in hours, rising with the level."""
    rows = windows.summary()
    log_waits = np.stack([trees.predict(rows) for trees in by_level], axis=1)
    waits_h: Floats = np.maximum(0.0, np.expm1(np.sort(log_waits, axis=1)))
    return waits_h
