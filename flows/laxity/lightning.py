"""Lightning's part: its Trainer under a deadline, without a changed line.

In a worker of laxity each Trainer has this callback: Lightning asks for it by an entry point. To go on
after a stop, write `trainer.fit(model, loader, ckpt_path=laxity.lightning.resume())`. Outside of
a worker that is None, and there is no callback.

The job's epochs are equal parts of the Trainer's batches. Where the data can go on in the middle (the
loader has state_dict and load_state_dict), a stop is taken after any batch, else at an epoch's end.
"""

import math
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from laxity.worker.library_loop import LibraryLoop
from laxity.worker.progress.progress_client import post_progress, takes_progress
from laxity.worker.training import Training, TrainingError, present_training, run_of


def callbacks() -> list[Any]:
    """What each Trainer of this process is given: for the entry points of Lightning's packages."""
    training = present_training()
    if training is not None:
        return [_with_hooks(_BatchCounter)(training)]
    return [_with_hooks(_ProgressPoster)()] if takes_progress() else []


def resume() -> str | None:
    """The checkpoint that this job goes on from; None at its first start."""
    training = present_training()
    checkpoint = loop_of(training).checkpoint if training is not None else None
    return None if checkpoint is None else str(checkpoint)


@cache
def loop_of(training: Training) -> LibraryLoop:
    """The one of a training: `resume` and the callback share it."""

    def save(path: Path) -> None:
        _TRAINERS[training].save_checkpoint(path)

    return LibraryLoop(training, save, random=True)


_TRAINERS: dict[Training, Any] = {}  # that trains


def _with_hooks(kind: type) -> type:
    """The class as a callback of the package that is here: it has two names."""
    package = sys.modules.get("lightning.pytorch") or sys.modules["pytorch_lightning"]
    return type(kind.__name__, (kind, package.Callback), {})


class _BatchCounter:
    """Counts batches. The last one of the Trainer's epoch counts once its validation is over."""

    def __init__(self, training: Training) -> None:
        self._training = training
        self._loop: LibraryLoop | None = None  # None: it does not train, or other code counts it

    def on_train_start(self, trainer: Any, module: Any) -> None:
        training = self._training
        if run_of(training).started:
            return
        _TRAINERS[training] = trainer
        self._loop = loop_of(training)
        total, stops = _batches_of(trainer), "anywhere" if _can_go_on(trainer) else "boundary"
        if total is None:
            raise TrainingError("how long does this Trainer train? Give it max_epochs")
        self._loop.begin(at=_done(trainer), total=total, stops=stops)  # type: ignore[arg-type]

    def on_train_batch_end(self, trainer: Any, module: Any, *_: Any) -> None:
        if self._loop is not None and not trainer.is_last_batch:
            self._loop.advance(_done(trainer))

    def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
        if self._loop is not None:
            self._loop.log(**_figures(trainer))
            self._loop.advance(_done(trainer))

    def on_train_end(self, trainer: Any, module: Any) -> None:
        if self._loop is not None:
            self._loop.end()
            self._loop = None


class _ProgressPoster:
    """Under `laxity run` the script is no worker: it posts its progress, if it knows its end."""

    def on_train_batch_end(self, trainer: Any, module: Any, *_: Any) -> None:
        self._post(trainer)

    def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
        self._post(trainer, _figures(trainer))

    def on_train_end(self, trainer: Any, module: Any) -> None:
        self._post(trainer, _figures(trainer), now=True)

    def _post(
        self, trainer: Any, figures: Mapping[str, float] | None = None, *, now: bool = False
    ) -> None:
        batches = _batches_of(trainer)
        if batches is not None:
            post_progress(_done(trainer), batches, figures, now=now)


def _figures(trainer: Any) -> dict[str, float]:
    """What the training has logged last, by name."""
    return {name: float(value) for name, value in trainer.callback_metrics.items()}


def _done(trainer: Any) -> int:
    """Batches, over all epochs; of a Trainer that does not know how many an epoch has, epochs."""
    if math.isinf(trainer.num_training_batches):
        return int(trainer.current_epoch)
    return int(trainer.fit_loop.epoch_loop.batch_progress.total.ready)


def _batches_of(trainer: Any) -> int | None:
    """All of the training; or its epochs, as `_done` counts them. None: it has no limit of them."""
    batches, epochs, steps = trainer.num_training_batches, trainer.max_epochs, trainer.max_steps
    limits: list[int] = []
    if epochs is not None and epochs >= 0:
        limits.append(int(epochs if math.isinf(batches) else epochs * batches))
    if steps >= 0 and not math.isinf(batches):
        limits.append(int(steps * trainer.accumulate_grad_batches))
    return max(1, min(limits)) if limits else None


def _can_go_on(trainer: Any) -> bool:
    """Whether the data goes on in the middle of an epoch."""
    loader = trainer.train_dataloader
    return hasattr(loader, "state_dict") and hasattr(loader, "load_state_dict")
