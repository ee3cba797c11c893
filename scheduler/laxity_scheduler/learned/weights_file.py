"""The weights of the learned policy as one file; with which features they were trained is in it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from laxity_scheduler.array_file import load_arrays, save_arrays
from laxity_scheduler.learned.job_features import FEATURES
from laxity_scheduler.learned.scoring_net import ScoringNet

FORMAT: Final = "laxity-policy"
VERSION: Final = 1
SHIPPED: Final = Path(__file__).with_name("shipped_weights.npz")


@dataclass(frozen=True, slots=True)
class TrainedPolicy:
    """A net, and on what it was trained."""

    net: ScoringNet
    trained_on: Mapping[str, Any] = field(default_factory=dict)


def save_policy(policy: TrainedPolicy, path: Path) -> None:
    """Write the file. OSError if that fails."""
    header = {
        "format": FORMAT,
        "version": VERSION,
        "features": list(FEATURES),
        "trained_on": dict(policy.trained_on),
    }
    save_arrays(path, header, policy.net.arrays())


def load_policy(path: Path) -> TrainedPolicy:
    """Read the file. ValueError says why it is none that can be used."""
    if not path.exists():
        raise ValueError(f"there is no file {path}")
    try:
        header, arrays = load_arrays(path, FORMAT, VERSION)
        check_features(header.get("features"))
        net = ScoringNet.from_arrays(arrays, len(FEATURES))
    except ValueError as error:
        raise ValueError(f"{path} is no policy of version {VERSION}: {error}") from error
    return TrainedPolicy(net, header.get("trained_on", {}))


def check_features(names: object) -> None:
    """ValueError if a net with these inputs would read others."""
    if names != list(FEATURES):
        raise ValueError("it was trained on other features")
