"""Transformers' part: its Trainer under a deadline, by one line.

    laxity.transformers.train(trainer)  # in place of trainer.train()

The job's epochs are equal parts of the Trainer's steps. Its own checkpoints hold them, and a stop is
taken after any step. Outside of a laxity worker this is `trainer.train()`.
"""

import os
import shutil
from pathlib import Path
from typing import Any

from transformers import Trainer, TrainerCallback

from laxity.worker.library_loop import LibraryLoop
from laxity.worker.training import Training, present_training


def train(trainer: Trainer, **options: Any) -> Any:
    """What `trainer.train(**options)` returns; it goes on from this job's last checkpoint."""
    training = present_training()
    if training is None:
        return trainer.train(**options)
    units = _StepCounter(training, trainer)
    trainer.add_callback(units)
    if units.loop.checkpoint is not None:
        (folder,) = units.loop.checkpoint.iterdir()
        options["resume_from_checkpoint"] = str(folder)
    return trainer.train(**options)


class _StepCounter(TrainerCallback):  # type: ignore[misc]  # has no types where it is not installed
    """Counts the Trainer's steps, each once its figures are logged and evaluated.

    Inside one of the Trainer's epochs that is when the next step begins, its rows already drawn: as
    the Trainer puts random numbers back. Between two it is before any row is drawn.
    """

    def __init__(self, training: Training, trainer: Trainer) -> None:
        self._trainer = trainer
        self._own: Path | None = None  # what the Trainer has saved by itself
        self.loop = LibraryLoop(training, self._save)

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.loop.begin(at=state.global_step, total=state.max_steps, stops="anywhere")

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.loop.advance(state.global_step)

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.loop.advance(state.global_step)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._own = Path(args.output_dir) / f"checkpoint-{state.global_step}"

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        self.loop.log(**{name: value for name, value in (logs or {}).items() if name != "epoch"})

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.loop.advance(state.global_step)
        self.loop.end()

    def _save(self, path: Path) -> None:
        """A folder with one of the Trainer's checkpoints; by hard links where it has just written it."""
        name = f"checkpoint-{self._trainer.state.global_step}"
        if self._own is not None and self._own.name == name and self._own.is_dir():
            shutil.copytree(self._own, path / name, copy_function=_link)
            return
        args = self._trainer.args
        kept = args.output_dir, args.save_total_limit, args.push_to_hub
        args.output_dir, args.save_total_limit, args.push_to_hub = str(path), None, False
        try:
            self._trainer._save_checkpoint(self._trainer.model, trial=None)  # noqa: SLF001 - the one that writes all
        finally:
            args.output_dir, args.save_total_limit, args.push_to_hub = kept


def _link(source: str, target: str) -> None:
    """A second name of the file, or a copy on another file system."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
