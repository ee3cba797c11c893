"""A training as one link of a chain: it ends by itself before the time limit of its batch job.

`laxity chain` tells a link by its environment which chain it belongs to and when its job is ended.
At a boundary where another epoch would not fit, the training is saved and the process ends with
`EXIT_UNFINISHED`: the chain goes on. All epochs trained is a mark in the chain's folder.
"""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from laxity import names
from laxity.durable_files import replace_file

EXIT_UNFINISHED: Final = 7  # as laxity's commands end where something has not ended
TRAINED: Final = "trained"
CHECKPOINTS: Final = "checkpoints"
LEAVING_S: Final = 5.0  # for what the script does after its epochs
EPOCH_MARGIN: Final = 1.2  # so much longer than the longest so far the next epoch may take
PATIENT_LINKS: Final = 2  # that may end without having saved an epoch


class ChainError(RuntimeError):
    """This chain cannot get any further, or is told nonsense."""


class LinkEnded(SystemExit):
    """The link ends in time; its successor goes on from the checkpoint."""


@dataclass(frozen=True, slots=True)
class ChainLink:
    """Link `number` of the chain in `folder`; Slurm or whoever runs it ends its job at `ends_at`."""

    folder: Path
    number: int = 1
    ends_at: float = math.inf

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> "ChainLink | None":
        """What the environment says; None outside of a chain. ChainError for what is no number."""
        folder = environ.get(names.ENV_CHAIN_FOLDER, "")
        if not folder:
            return None
        number = _read_number(environ, names.ENV_CHAIN_LINK, 1.0)
        return cls(Path(folder), int(number), _read_number(environ, names.ENV_ENDS_AT, math.inf))

    @property
    def checkpoints(self) -> Path:
        return self.folder / CHECKPOINTS

    def require_progress(self, done: int) -> None:
        """ChainError where earlier links have ended and no epoch was ever saved."""
        if not done and self.number > PATIENT_LINKS:
            message = (
                f"{self.number - 1} links have ended and no epoch was saved: nothing was given to "
                "training.restore(), or an epoch takes longer than the time limit allows. Give it "
                "your model and optimizer, give the links more time, or count smaller epochs: "
                "epochs(unit=STEPS)"
            )
            raise ChainError(message)

    def has_time_for(self, epoch_s: float, save_s: float) -> bool:
        """Whether another epoch fits before the limit, if the longest so far took `epoch_s`."""
        return time.time() + EPOCH_MARGIN * epoch_s + 2.0 * save_s + LEAVING_S < self.ends_at

    def note_trained(self) -> None:
        """All epochs are trained and saved: once the script has ended well, so has the chain."""
        replace_file(self.folder / TRAINED, f"{self.number}\n")


def _read_number(environ: Mapping[str, str], name: str, default: float) -> float:
    text = environ.get(name, "").strip()
    try:
        return float(text) if text else default
    except ValueError:
        message = f"{name}={text!r}: expected a number"
        raise ChainError(message) from None
