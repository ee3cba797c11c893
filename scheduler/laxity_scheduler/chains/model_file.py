"""A trained provisioner as one file: arrays and a header of JSON, never pickled objects."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from laxity_scheduler.array_file import load_arrays, refuse_damage, save_arrays
from laxity_scheduler.chains.model_kinds import READERS, Model
from laxity_scheduler.model.job import HOUR_S

FORMAT: Final = "laxity-provisioner"
VERSION: Final = 1
MOST_BYTES: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class Provisioner:
    """A model, for which pair it was trained, on what, and its errors on weeks held out."""

    kind: str
    model: Model
    pair_nodes: int
    limit_s: float
    trained_on: Mapping[str, Any]
    errors: Mapping[str, float]

    def check_pair(self, nodes: int, limit_s: float, name: str) -> None:
        """ValueError if it was trained for jobs of another size or limit, which it cannot see."""
        if (nodes, limit_s) != (self.pair_nodes, self.limit_s):
            raise ValueError(
                f"{name} was trained for jobs of {self.pair_nodes} nodes and "
                f"{self.limit_s / HOUR_S:g} h, not {nodes} nodes and {limit_s / HOUR_S:g} h"
            )


def save_provisioner(provisioner: Provisioner, path: Path) -> None:
    """Write the file. OSError if that fails."""
    header = {
        "format": FORMAT,
        "version": VERSION,
        "kind": provisioner.kind,
        "pair_nodes": provisioner.pair_nodes,
        "limit_s": provisioner.limit_s,
        "trained_on": dict(provisioner.trained_on),
        "errors": dict(provisioner.errors),
    }
    save_arrays(path, header, provisioner.model.arrays())


def load_provisioner(path: Path) -> Provisioner:
    """Read the file. ValueError if it is none, or of a version that is not known."""
    if not path.exists():
        raise ValueError(f"there is no file {path}")
    return read_provisioner(path, str(path))


def read_provisioner(source: Path | bytes, name: str) -> Provisioner:
    """Read a file or its bytes; `name` is what a ValueError calls it."""
    with refuse_damage(f"{name} is no provisioner of version {VERSION}"):
        header, arrays = load_arrays(source, FORMAT, VERSION, most_bytes=MOST_BYTES)
        return Provisioner(
            kind=header["kind"],
            model=READERS[header["kind"]](arrays),
            pair_nodes=header["pair_nodes"],
            limit_s=header["limit_s"],
            trained_on=header["trained_on"],
            errors=header["errors"],
        )
