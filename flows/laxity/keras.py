"""Keras' part: `fit` under a deadline, by a callback and where it begins.

    model.fit(x, y, epochs=20, callbacks=[Deadline(training)], initial_epoch=training.epoch)

Model, optimizer, random numbers and the state of the other callbacks are saved at each epoch's end.
"""

import pickle
import sys
from pathlib import Path
from typing import Any, Final

import keras

from laxity.worker.library_loop import LibraryLoop
from laxity.worker.training import Training, TrainingError

WEIGHTS: Final = "model.weights.h5"  # the optimizer's are among them
CALLBACKS: Final = "callbacks.pkl"


class Deadline(keras.callbacks.Callback):  # type: ignore[misc]  # has no types where it is not installed
    """An epoch counts once all other callbacks have had its end: when the next one begins."""

    def __init__(self, training: Training) -> None:
        super().__init__()
        self._training = training
        self._loop = LibraryLoop(training, self._save, random=True, alone="Keras")
        self._others: list[Any] = []
        self._done = 0
        self._began = False

    def set_model(self, model: Any) -> None:
        """Called by the list of all callbacks, which nothing else leads to."""
        super().set_model(model)
        callers = sys._getframe(1).f_locals.get("self")  # noqa: SLF001 - see above
        self._others = [each for each in getattr(callers, "callbacks", []) if each is not self]

    def on_train_begin(self, logs: Any = None) -> None:
        self._done = self._training.epoch
        if self._loop.checkpoint is not None:
            self.model.load_weights(self._loop.checkpoint / WEIGHTS)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if not self._began and epoch != self._done:
            raise TrainingError(
                f"fit() begins at epoch {epoch}, and {self._done} are done: write "
                "initial_epoch=training.epoch after callbacks=[Deadline(training)]"
            )
        self._count()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._loop.log(**(logs or {}))
        self._done = epoch + 1

    def on_train_end(self, logs: Any = None) -> None:
        self._count()
        self._loop.end()

    def _count(self) -> None:
        if not self._began:
            self._began = True
            self._put_back()
            self._loop.begin(at=self._done, total=self.params["epochs"], every=1)
        self._loop.advance(self._done)

    def _save(self, path: Path) -> None:
        path.mkdir(parents=True)
        self.model.save_weights(path / WEIGHTS)
        (path / CALLBACKS).write_bytes(pickle.dumps([_plain(each) for each in self._others]))

    def _put_back(self) -> None:
        """After the others' on_train_begin, which makes them new."""
        if self._loop.checkpoint is None:
            return
        states = pickle.loads((self._loop.checkpoint / CALLBACKS).read_bytes())  # noqa: S301 - the job's own
        for callback, (kind, state) in zip(self._others, states, strict=False):
            if type(callback).__name__ == kind:
                vars(callback).update(state)


def _plain(callback: Any) -> tuple[str, dict[str, Any]]:
    """The class and the state of a callback: numbers, texts and arrays, such as the best weights."""
    state = {}
    for name, value in vars(callback).items():
        if name not in {"_model", "params"} and not callable(value):
            try:
                state[name] = pickle.loads(pickle.dumps(value))  # noqa: S301 - from here
            except Exception:  # noqa: BLE001, S112 - what cannot be kept is no state of a training
                continue
    return type(callback).__name__, state
