"""Training by steps: those of one epoch, or all of a training whose epochs are so many steps each."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from laxity.human_time import count_noun
from laxity.stderr import say
from laxity.worker.training_state import TrainingError


@dataclass(frozen=True, slots=True)
class Steps:
    """`training.steps`: iterated inside a loop over epochs(unit=n), or called instead of one.

    `loop` yields numbers until the epoch is void; `declared` is the job's number of epochs.
    """

    of_epoch: range | None
    loop: Callable[[range], Iterator[int]]
    epochs: Callable[..., Iterator[int]]
    declared: int | None

    def __iter__(self) -> Iterator[int]:
        """The numbers of this epoch's steps, over the whole training, from 0.

        Ends early when the epoch is void because another worker is gone: it will be done again.
        """
        if self.of_epoch is None:
            raise TrainingError("training.steps counts inside a loop over epochs(unit=...)")
        return self.loop(self.of_epoch)

    def __call__(self, *, total: int, every: int) -> Iterator[int]:
        """All steps that are left, counted from 0; each `every` steps are an epoch.

        A job has the number of epochs that it declares: where that does not fit, an epoch has more or
        fewer steps, and the log says so.
        """
        if min(total, every) < 1:
            raise TrainingError(f"steps(total={total}, every={every}): expected 1 or more of both")
        count = -(-total // every)
        epochs = self.declared or count
        if total < epochs:
            raise TrainingError(
                f"steps(total={total}): this job declares {epochs} epochs; declare fewer"
            )
        if epochs != count:
            say(
                f"steps(total={total}, every={every}) are {count_noun(count, 'epoch')}, and this job "
                f"declares {epochs}: an epoch has {total / epochs:g} steps"
            )
        return self._loop_all(total, every if epochs == count else None, epochs)

    def _loop_all(self, total: int, every: int | None, epochs: int) -> Iterator[int]:
        for epoch in self.epochs(unit=every or 1, total=epochs):
            first, end = (
                min(total, n * every) if every else n * total // epochs for n in (epoch - 1, epoch)
            )
            yield from self.loop(range(first, end))
