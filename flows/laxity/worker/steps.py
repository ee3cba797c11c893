"""Training by steps: those of one epoch, or all of a training whose epochs are so many steps each."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from laxity.human_time import count_noun
from laxity.stderr import say
from laxity.worker.checkpoints.training_state import TrainingError, TrainingState
from laxity.worker.roles import Role

Stops = Literal["boundary", "anywhere"]


def epoch_ends(total: int, every: int | None, epochs: int) -> list[int]:
    """How many of all steps are done at each epoch's end: `every` more, where that comes out."""
    numbers = range(1, epochs + 1)
    if every and epochs == -(-total // every):
        return [min(total, number * every) for number in numbers]
    return [number * total // epochs for number in numbers]


@dataclass(frozen=True, slots=True)
class Steps:
    """`training.steps`: iterated inside a loop over epochs(unit=n), or called instead of one."""

    of_epoch: range | None
    role: Callable[[], Role | None]
    epochs: Callable[..., Iterator[int]]
    state: TrainingState

    def __iter__(self) -> Iterator[int]:
        """The numbers of this epoch's steps, over the whole training, from 0.

        Ends early when the epoch is void because another worker is gone: it will be done again.
        """
        if self.of_epoch is None:
            raise TrainingError("training.steps counts inside a loop over epochs(unit=...)")
        return self._loop(self.of_epoch)

    def __call__(
        self, *, total: int, every: int | None = None, stops: Stops = "boundary"
    ) -> Iterator[int]:
        """All steps that are left, counted from 0; each `every` steps are an epoch.

        A job has the number of epochs that it declares: where that does not fit, an epoch has more or
        fewer steps, and the log says so. With `stops="anywhere"` one worker stops after any step, and
        goes on with the next: what was given to restore() must then be whole between two steps.
        """
        if stops not in get_args(Stops):
            raise TrainingError(f"steps(stops={stops!r}): expected one of {get_args(Stops)}")
        self.state.stops_anywhere = stops == "anywhere"
        declared = self.state.environment.epochs
        if every is None and not declared:
            raise TrainingError("steps(every=...): how many steps are an epoch? No job declares it")
        if total < 1 or (every is not None and every < 1):
            raise TrainingError(f"steps(total={total}, every={every}): expected 1 or more of both")
        count = -(-total // every) if every else declared or 0
        epochs = declared or count
        if total < epochs:
            raise TrainingError(
                f"steps(total={total}): this job declares {epochs} epochs; declare fewer"
            )
        if epochs != count:
            say(
                f"steps(total={total}, every={every}) are {count_noun(count, 'epoch')}, and this job "
                f"declares {epochs}: an epoch has {total / epochs:g} steps"
            )
        return self._loop_all([0, *epoch_ends(total, every, epochs)])

    def _loop_all(self, ends: list[int]) -> Iterator[int]:
        for epoch in self.epochs(unit=ends[1], total=len(ends) - 1):
            yield from self._loop(range(ends[epoch - 1], ends[epoch]))

    def _loop(self, numbers: range) -> Iterator[int]:
        """The steps of one epoch that are left, until it is void."""
        state, role = self.state, self.role()
        for number in numbers[state.inside.step :]:
            if role is not None and role.void:
                return
            state.steps_left = numbers.stop - number
            if role is None or not state.may_stop_inside:
                yield number
                continue
            with state.termination.step():
                yield number
            if number + 1 < numbers.stop:
                role.between_steps(number + 1 - numbers.start, len(numbers))
