"""A training whose loop belongs to a library, which calls back after each of its steps.

Each step that the library has done is one of `training.steps`: so epochs are counted, saved and
reported, and a stop is taken, while the library waits in its callback. The library writes the
checkpoints, and reads one itself when it goes on.
"""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from laxity.worker.checkpoints.checkpoint import CheckpointError
from laxity.worker.steps import Stops
from laxity.worker.training import Training, TrainingError, run_of


class LibraryLoop:
    """`save(path)` makes a file or folder of the library's state there. All workers take part in it.

    `checkpoint` is the one to go on from, None at the first start. Before `begin`, nothing counts.
    `alone` is the library that trains on one worker; TrainingError says so where there are several.
    """

    def __init__(
        self,
        training: Training,
        save: Callable[[Path], object],
        *,
        random: bool = False,
        alone: str = "",
    ) -> None:
        self.training, self._run = training, run_of(training)
        self._save, self._alone = save, alone
        self.checkpoint: Path | None = None
        self._steps: Iterator[int] | None = None
        self._next: int | None = None  # the step in flight, counted from 0; None: none
        self._staged = training.folder / "staged" if training.folder else None
        training.checkpoint_with(self._write, self._take)
        training.restore(random=random)

    def begin(
        self, *, at: int, total: int, every: int | None = None, stops: Stops = "boundary"
    ) -> None:
        """The library has done `at` of its `total` steps.

        A job's epochs are equal parts of them. Where none are declared, `every` steps are an epoch, or
        one per cent.
        """
        declared = self._run.declared_epochs
        every = None if declared else every or max(1, total // 100)
        self._run.count_from(at, total=total, every=every)
        self._steps = self.training.steps(total=total, every=every, stops=stops)
        self._check_width()
        self._stage()
        self._next = self._take_step(self._steps)

    def advance(self, done: int) -> None:
        """The library has done so many steps in all. May save, and wait here when told to stop."""
        while self._steps is not None and self._next is not None and self._next < done:
            if self._run.ends_epoch:
                self._stage()
            self._next = self._take_step(self._steps)

    def _take_step(self, steps: Iterator[int]) -> int | None:
        """The next one, None behind the last. How many workers there are is known then."""
        step = next(steps, None)
        self._check_width()
        return step

    def _check_width(self) -> None:
        if self._alone and self.training.workers > 1:
            raise TrainingError(
                f"{self._alone} would train {self.training.workers} models that know nothing of "
                "each other: declare workers=1"
            )

    def _stage(self) -> None:
        """All of several workers save together, before one of them makes a checkpoint of it."""
        if self.training.workers > 1 and self._staged is not None:
            if self.training.rank == 0:
                _remove(self._staged)
            self._save(self._staged)

    def end(self) -> None:
        """The library trains no more."""
        steps, self._steps = self._steps, None
        if steps is not None:
            self._run.leave()
            steps.close()  # type: ignore[attr-defined]  # a generator

    def log(self, **figures: object) -> None:
        """Those of the library's figures that are numbers, for the epoch in flight."""
        numbers = {
            name.replace(" ", "_"): float(value)
            for name, value in figures.items()
            if isinstance(value, int | float) and not isinstance(value, bool)
        }
        if numbers and self._next is not None:
            self.training.log(**numbers)

    def _write(self, path: Path) -> None:
        """Of several workers each has saved its part before worker 0 comes here."""
        if self.training.workers == 1 or self._staged is None:
            self._save(path)
            return
        if not self._staged.exists():
            raise CheckpointError("several workers save at the end of an epoch only")
        self._staged.rename(path)

    def _take(self, path: Path) -> None:
        self.checkpoint = path


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
