"""What the log says once of code that trains otherwise than it seems to."""

import math
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from laxity.stderr import say
from laxity.worker.checkpoints.training_state import TrainingState

LONE: Final = "each trains a model of its own, and worker 0's counts"
LOOP_S: Final = 60.0  # until a function is expected to enter its loop
SKIPPED: Final = (
    "took less than 1 ms and logged nothing: it counts as trained, and no later run is predicted by it. "
    "Train inside of the loop, not after list(training.epochs()). If your code counts epochs itself and is "
    "ahead, declare resumes=True and begin after the number that training.restore() returns"
)
WENT_ON: Final = (
    "{0.done} of {0.total} epochs were trained, and {0.lost} by an earlier start: your code seems to go on "
    "from a state of its own. Declare resumes=True, and laxity counts on, too"
)
NO_LOOP: Final = (
    "If this is no preparation, train in `for epoch in training.epochs():`, or declare epochs=1: a "
    "function without that loop is then one epoch"
)


class Notices:
    """Each notice is given once in a process."""

    def __init__(self, state: TrainingState) -> None:
        self.combines = False  # the workers exchange something, or were warned that they do not
        self._state = state
        self._odd = self._no_loop = self._skipped = False

    def lone_models(self) -> None:
        """Workers that exchange nothing train several models."""
        if self.combines or self._state.width == 1:
            return
        self.combines = True
        distributed = sys.modules.get("torch.distributed")
        has_group = distributed is not None and distributed.is_initialized()
        if not (has_group or self._state.when_formed or self._state.rank):
            width = self._state.width
            say(f"{width} workers ended an epoch without training.average or DDP: {LONE}")

    def no_loop(self, what: str) -> None:
        """Epochs are counted in the loop only."""
        if not self._no_loop:
            self._no_loop = True
            say(f"{what}: no epoch is counted yet. {NO_LOOP}")

    @contextmanager
    def expect_loop(self, is_started: Callable[[], bool]) -> Iterator[None]:
        """While the function runs: say after a minute that no epoch has begun."""

        def remind() -> None:
            if not is_started() and (self._state.environment.epochs or 0) > 1:
                self.no_loop(f"{LOOP_S:g} s have passed")

        timer = threading.Timer(LOOP_S, remind)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def skipped(self, epoch: int) -> None:
        """Code with a count of its own takes epochs of a job that it does not train."""
        if self._state.environment.job and not self._skipped:
            self._skipped = True
            say(f"epoch {epoch} {SKIPPED}")

    def went_on_alone(self) -> bool:
        """Whether the code seems to have trained only what an earlier start had left of its epochs."""
        state = self._state
        trained = state.lost + state.done  # its own state may be an epoch ahead
        went_on = bool(state.lost) and state.left_early and state.total - trained in {0, 1}
        if went_on:
            say(WENT_ON.format(state))
        return went_on

    def odd_figures(self, figures: Mapping[str, float], epoch: int) -> None:
        """NaN and infinity are not logged."""
        odd = [name for name, value in figures.items() if not math.isfinite(value)]
        if odd and not self._odd:
            self._odd = True
            say(f"{odd[0]} is {figures[odd[0]]} in epoch {epoch}: such values are not logged")
