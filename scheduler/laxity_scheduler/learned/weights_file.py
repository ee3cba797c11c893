"""The weights of the learned policy as one file; with which features they were trained is in it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from laxity_scheduler.array_file import load_arrays, refuse_damage, save_arrays
from laxity_scheduler.learned.job_features import FEATURES
from laxity_scheduler.learned.scoring_net import ScoringNet

FORMAT: Final = "laxity-policy"
VERSION: Final = 1
MOST_BYTES: Final = 16 << 20  # a thousand times what ships
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
    return read_policy(path, str(path))


def read_policy(source: Path | bytes, name: str) -> TrainedPolicy:
    """Read a file or its bytes; `name` is what a ValueError calls it."""
    with refuse_damage(f"{name} is no policy of version {VERSION}"):
        header, arrays = load_arrays(source, FORMAT, VERSION, most_bytes=MOST_BYTES)
        check_features(header.get("features"))
        net = ScoringNet.from_arrays(arrays, len(FEATURES))
        trained_on = header.get("trained_on", {})
        if not isinstance(trained_on, dict):
            raise TypeError(f"trained_on is a {type(trained_on).__name__}")
    return TrainedPolicy(net, trained_on)


def check_features(names: object) -> None:
    """ValueError if a net with these inputs would read others."""
    if names != list(FEATURES):
        raise ValueError("it was trained on other features")
