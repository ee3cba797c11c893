"""What a checkpoint holds, compared with what a training gives: a difference is an error, never silent.

A start that restores less than was saved would go on with parts that were never trained. One that
gives more has parts that the epochs before have never seen: whether these may begin anew beside a
trained model, only its user knows. A checkpoint that holds nothing is none: no start can go on from it.
"""

import pickle
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self

from laxity.human_time import count_noun
from laxity.worker.checkpoints.checkpoint import Checkpoint, CheckpointError
from laxity.worker.checkpoints.random_generators import RandomGenerators

OBJECTS: Final = "objects.pkl"
OWN: Final = "own"  # what the user's own save callable makes of this path: a file or a folder
RANDOM: Final = RandomGenerators.__name__
NOTE: Final = "state"  # where a checkpoint's note says what it holds
REMEDY: Final = (
    "Give restore() what was saved, in the same order, or begin at epoch 1: in an empty folder, or "
    "with laxity submit --fresh"
)


@dataclass(frozen=True, slots=True)
class Contents:
    """Classes of the objects given to restore(), in order; "" where an earlier laxity wrote none.

    `own`: something of checkpoint_with() is there. `resumes`: the training code keeps its own state.
    """

    kinds: tuple[str, ...] = ()
    own: bool = False
    resumes: bool = False

    @property
    def holds_state(self) -> bool:
        """Whether a later start can go on from it. Random numbers alone are no model."""
        return any(kind != RANDOM for kind in self.kinds) or self.own or self.resumes

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> Self:
        """What a checkpoint says that it holds, else what is found in it."""
        noted = checkpoint.note.get(NOTE)
        if isinstance(noted, Mapping):
            return cls(tuple(noted["kinds"]), bool(noted["own"]), bool(noted["resumes"]))
        states = read_states(checkpoint.path)
        return cls(("",) * len(states), (checkpoint.path / OWN).exists())

    def to_json(self) -> dict[str, Any]:
        """The fields of a checkpoint's note."""
        return asdict(self)

    def check_known(self, given: "Contents", folder: Path) -> None:
        """CheckpointError where more or other things are given than were saved in this folder."""
        check_count(len(self.kinds), len(given.kinds), folder)
        pairs = zip(self.kinds, given.kinds, strict=False)
        for number, (saved, kind) in enumerate(pairs, start=1):
            if saved and saved != kind:
                raise CheckpointError(
                    f"object {number} in {folder} is of type {saved}; restore() was given a {kind}. "
                    f"{REMEDY}"
                )
        if given.own and not self.own:
            raise CheckpointError(f"{folder} holds nothing for checkpoint_with() to load. {REMEDY}")

    def check_complete(self, given: "Contents", folder: Path) -> None:
        """CheckpointError where something that was saved in this folder is not given."""
        rest = enumerate(self.kinds[len(given.kinds) :], start=len(given.kinds) + 1)
        missing = [
            f"object {number}{f' ({kind})' * bool(kind)} of restore()" for number, kind in rest
        ]
        missing += ["what checkpoint_with() saved"] * (self.own and not given.own)
        missing += ["a state of the code's own (resumes=True)"] * (self.resumes > given.resumes)
        if missing:
            raise CheckpointError(
                f"{folder} holds {', '.join(missing)}, and this training restores none of it. {REMEDY}"
            )


def check_count(saved: int, given: int, folder: Path) -> None:
    """CheckpointError where more objects are given than were saved in this folder."""
    if given > saved:
        raise CheckpointError(
            f"{folder} holds {count_noun(saved, 'object')}, but {given} were given to restore(). "
            f"{REMEDY}"
        )


def read_states(folder: Path) -> list[Any]:
    """The states of the objects in a checkpoint."""
    states: list[Any] = pickle.loads((folder / OBJECTS).read_bytes())  # noqa: S301 - the job's own
    return states
