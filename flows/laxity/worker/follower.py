"""Workers 1 and up: at each boundary they do what worker 0 says, and never act on their own."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from laxity.worker import launcher
from laxity.worker.checkpoints.training_state import TrainingState
from laxity.worker.group.membership import GroupClient
from laxity.worker.group.messages import Header
from laxity.worker.sigterm import BeginAnew, EndedWithout

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Follower:
    """The boundary as a follower sees it. Leaving, parked and early workers all just wait."""

    def __init__(self, state: TrainingState, member: GroupClient) -> None:
        self._state = state
        self._member = member
        self._launched = False

    @property
    def void(self) -> bool:
        return self._member.void

    def launch(self) -> bool:
        """With a launcher: meet the others before the function is called; False if all is over.

        A worker that is not needed waits here until it is, or is ended.
        """
        command = self._member.join()
        while command["do"] not in ("launch", "end"):
            command = self._wait_command()
        if command["do"] == "end":
            return False
        self._launched = True
        self._state.width = int(command["width"])
        launcher.set_variables(
            rank=self._state.rank,
            width=self._state.width,
            host=str(command["host"]),
            port=int(command["port"]),
            run=self._state.environment.training,
        )
        return True

    def begin(self) -> bool:
        """Join the group; False if the training is over."""
        return self._obey_command(self._wait_command() if self._launched else self._member.join())

    def boundary(self) -> bool:
        """An epoch is done; False if it was the last one."""
        state, void = self._state, self._member.void
        ended = state.epoch_over()
        if not void:
            state.last |= ended["metrics"]
        try:
            command = self._member.boundary(bytes_read=ended["bytes"])
        except OSError:
            if not state.holds_state and not self._member.await_another():
                return self._obey_command({"do": "end"})
            self._require_state()
            return self._obey_command(self._join_again())
        if command["do"] == "end" and not void:
            state.done += 1  # it holds the final state itself
            return False
        return self._obey_command(command)

    def average(
        self, arrays: "Sequence[NDArray[Any]]", names: Sequence[str], weight: float
    ) -> "Sequence[NDArray[Any]] | None":
        return self._member.average(arrays, names, weight)

    def anyone_gone(self) -> bool:
        return self._member.anyone_gone()

    def between_steps(self, step: int, steps: int) -> None:
        """Several workers stop at an epoch's end only."""

    def on_sigterm(self) -> None:
        """Worker 0 saves for all."""

    def end_early(self, left_at: float) -> None:
        """Worker 0 counts the epoch."""

    def end(self) -> None:
        """Worker 0 ends it for all."""

    def _obey_command(self, command: Header) -> bool:
        while command["do"] == "wait":
            command = self._wait_command()
        state = self._state
        if command["do"] == "anew":
            self._start_anew("the number of workers changes")
        if command["do"] == "end":
            self._take_final_state()
            return False
        if command["do"] == "form":
            epoch = int(command["epoch"])
            self._require_state()
            if command["load"] and state.loaded != epoch:
                state.load_epoch(epoch)
            state.done = epoch
            state.set_width(int(command["width"]), formation=str(command["round"]))
        else:
            state.done += 1
            state.warmup = False
        return True

    def _require_state(self) -> None:
        """BeginAnew where this process has trained and cannot go to what another group begins with."""
        state = self._state
        if state.has_trained and not state.holds_state:
            state.termination.asked = True
            raise BeginAnew("the workers change, and nothing was given to training.restore()")

    def _wait_command(self) -> Header:
        try:
            return self._member.wait()
        except OSError:
            return self._join_again()

    def _join_again(self) -> Header:
        """Worker 0 is gone: join the next one. A process of a launcher cannot change its group."""
        if self._launched:
            self._start_anew("worker 0 is gone")
        return self._member.join()

    def _start_anew(self, why: str) -> None:
        """Begin again as another process, unless this one was told to stop: it would not know."""
        self._state.termination.check()
        launcher.start_anew(why)

    def _take_final_state(self) -> None:
        """The training ended without this worker: it has what the last checkpoint holds."""
        state = self._state
        if not state.holds_state:
            raise EndedWithout(
                "the training has ended without this worker, and nothing was given to "
                "training.restore(): its code after the epochs is left out"
            )
        newest = state.newest_checkpoint()
        if newest is not None and state.loaded != newest.epoch:
            state.load(newest)
