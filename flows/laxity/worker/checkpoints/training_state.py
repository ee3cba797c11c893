"""Where a training stands: what its epochs, its boundaries and its user's calls have in common."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from laxity.worker.chain_link import ChainLink
from laxity.worker.checkpoints.checkpoint import Checkpoint, CheckpointError, Checkpoints
from laxity.worker.checkpoints.checkpoint_contents import Contents
from laxity.worker.checkpoints.state import States
from laxity.worker.code.environment import WorkerEnvironment
from laxity.worker.data.io_meter import Meter
from laxity.worker.sigterm import SigtermHandler

SHOWN_WITHIN_S: Final = 15.0  # a checkpoint that another worker has written
NO_STATE: Final = "nothing was given to training.restore()"
REMEDY: Final = (
    "Give it the model and the optimizer, or declare resumes=True if your code keeps its own state "
    "in training.folder"
)


# Of the epoch's number, its figures and its seconds: whether the training ends there.
Judge = Callable[[int, Mapping[str, float], float], bool]


class TrainingError(RuntimeError):
    """The training code calls something where it has no meaning.

    `json_result`: what the training function returned all the same.
    """

    def __init__(self, message: str, *, json_result: Any = None) -> None:
        super().__init__(message)
        self.json_result = json_result


class ScriptError(RuntimeError):
    """A script that is the training failed; its own output says why."""


@dataclass(frozen=True, slots=True)
class Inside:
    """How far the epoch in flight is, where the training can stop between two of its steps."""

    step: int = 0  # of its steps are done
    share: float = 0.0  # of them
    spent_s: float = 0.0  # that they took

    def report(self) -> dict[str, float]:
        """Fields of a report line: nothing at an epoch's end."""
        return {"share": self.share, "spent_s": self.spent_s} if self.step else {}


@dataclass(slots=True)
class TrainingState:
    """`done` epochs of `total` are completed; `width` workers train, this one is number `rank`."""

    environment: WorkerEnvironment
    checkpoints: Checkpoints | None = None
    states: States = field(default_factory=States)
    termination: SigtermHandler = field(default_factory=SigtermHandler)
    total: int = 0
    done: int = 0
    inside: Inside = Inside()
    width: int = 1
    formation: str = ""
    warmup: bool = True
    bytes_read: int = 0
    lost: int = 0  # epochs that earlier starts have trained, and no checkpoint holds
    left_early: bool = False  # the loop over the epochs, by the code itself
    judged: bool = False  # its judge has ended it
    stops_anywhere: bool = False  # it can save between any two steps
    steps_left: int = 0  # of the epoch in flight, where it counts steps
    is_untrained: bool = False  # the code has taken this epoch from the loop and done nothing in it
    has_trained: bool = False  # this process has begun an epoch, also one that did not count
    link: ChainLink | None = None  # where it is one of a chain
    judge: Judge | None = None  # of a trial
    link_ended: bool = False
    began_at: float | None = None  # monotonic: of the epoch in flight, if it began before its loop
    ended_at: float | None = None  # monotonic: of the epoch in flight, if it ended a while ago
    no_state: str = NO_STATE  # why a later start begins at epoch 1
    remedy: str = REMEDY
    meter: Meter | None = None  # where an epoch is one pass over the data
    load_s: float | None = None  # what the last loading took
    loaded: int | None = None  # the epoch that the objects are at since then
    metrics: dict[str, float] = field(default_factory=dict)  # of the epoch in flight
    last: dict[str, float] = field(default_factory=dict)  # the latest of each name
    when_formed: list[Callable[[], None]] = field(default_factory=list)

    @property
    def rank(self) -> int:
        return self.environment.index

    @property
    def is_done(self) -> bool:
        """Whether no epoch is left to train."""
        return self.left_early or 0 < self.total <= self.done

    def count(self, count: int, *, of_file: bool = False) -> None:
        """So many bytes were read."""
        self.bytes_read += count
        if self.meter is not None:
            self.meter.count(count, of_file=of_file)

    @property
    def may_stop_inside(self) -> bool:
        """Whether a stop is taken between two steps. Several workers would stop at different ones."""
        return self.stops_anywhere and self.width == 1 and self.holds_state

    @property
    def holds_state(self) -> bool:
        """Whether a later start can go on from what this one leaves."""
        return self.states.contents.holds_state

    def newest_checkpoint(self) -> Checkpoint | None:
        """The newest one that holds something: nobody can go on from the others."""
        newest = self.checkpoints.newest() if self.checkpoints else None
        return newest if newest is not None and Contents.of(newest).holds_state else None

    def load(self, checkpoint: Checkpoint, *, first: int = 0) -> None:
        """Put the registered objects (from number `first` on) back to this checkpoint.

        CheckpointError where it holds fewer or others.
        """
        Contents.of(checkpoint).check_known(self.states.contents, checkpoint.path)
        began = time.monotonic()
        with self.termination.defer():
            self.states.read(checkpoint.path, first=first)
            self.last = dict(checkpoint.note.get("last", {}))
            self.metrics |= checkpoint.note.get("metrics", {})
            self.inside = Inside(**checkpoint.note.get("inside", {}))
            self.done = self.loaded = checkpoint.epoch
        self.load_s = time.monotonic() - began

    def load_epoch(self, epoch: int) -> None:
        """Go to the checkpoint of exactly this epoch; a shared folder may show it late."""
        checkpoint = self._await_checkpoint(epoch)
        if checkpoint is None:
            raise CheckpointError(
                f"worker {self.rank} cannot see the checkpoint of epoch {epoch} in "
                f"{self.environment.folder}: all workers of a job need the same folder"
            )
        self.load(checkpoint)
        self.check_complete(checkpoint)

    def check_complete(self, checkpoint: Checkpoint) -> None:
        """CheckpointError where it holds something that was not given to be restored."""
        Contents.of(checkpoint).check_complete(self.states.contents, checkpoint.path)

    def set_width(self, width: int, *, formation: str = "") -> None:
        """The group has this width from now on."""
        self.width, self.warmup, self.formation = width, True, formation
        for call in self.when_formed:
            call()

    def epoch_over(self) -> dict[str, Any]:
        """What the epoch in flight has logged and read; the next one begins with nothing."""
        report = {"metrics": self.metrics, "bytes": self.bytes_read, "untrained": self.is_untrained}
        self.metrics, self.bytes_read, self.inside = {}, 0, Inside()
        self.is_untrained, self.ended_at = False, None
        return report

    def _await_checkpoint(self, epoch: int) -> Checkpoint | None:
        until = time.monotonic() + SHOWN_WITHIN_S
        while self.checkpoints is not None:
            checkpoint = self.checkpoints.at(epoch)
            if checkpoint is not None or time.monotonic() > until:
                return checkpoint
            time.sleep(0.2)
        return None


def instant_of(monotonic_s: float) -> float:
    """The instant, in seconds since 1970, of a monotonic time of this process."""
    return time.time() - (time.monotonic() - monotonic_s)
