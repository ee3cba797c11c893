"""What training code holds: its epochs, its share of the data, its state, and the others' means.

    for epoch in training.epochs():
        loss = model.fit(training.shard(data))
        training.average(model)
        training.log(loss=loss)

Between two epochs the state is saved and reported; there the training stops, goes on or changes
its width when told so. Without a scheduler the same code just trains, alone.
"""

import math
import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any, ClassVar, TypeVar

from laxity.parsing import whole_number
from laxity.worker.chain_link import ChainLink
from laxity.worker.checkpoints.checkpoint import CheckpointError
from laxity.worker.checkpoints.random_generators import RandomGenerators
from laxity.worker.checkpoints.state import check_restorable
from laxity.worker.checkpoints.training_state import TrainingError
from laxity.worker.code.environment import WorkerEnvironment, saving_share, says_resumes
from laxity.worker.data.counted_io import count_items, open_counted
from laxity.worker.data.shards import take_shard
from laxity.worker.group.membership import GroupError
from laxity.worker.mlflow_tracking import EpochMetrics, logged_number
from laxity.worker.sigterm import SigtermHandler, TrainingStopped
from laxity.worker.steps import Steps
from laxity.worker.worker_run import WorkerRun

__all__ = ["CheckpointError", "GroupError", "Training", "TrainingError", "TrainingStopped"]

Thing = TypeVar("Thing")
Item = TypeVar("Item")
Save = Callable[[Path], object]


class Training:
    """One worker's view of a training. A worker of a job gets it as a parameter."""

    _present: ClassVar["Training | None"] = None  # of this process

    def __init__(
        self,
        epochs: int | None = None,
        *,
        folder: Path | str | None = None,
        save: Save | None = None,
        load: Save | None = None,
        resumes: bool = False,
    ) -> None:
        """Train alone: with a folder, checkpoints go there and a second start goes on from them.

        `resumes`: the code keeps its own state, and a second start goes on by itself.
        """
        link = ChainLink.of(os.environ)
        if folder is None and link is not None:
            folder = link.checkpoints
        environment = WorkerEnvironment(
            folder=Path(folder) if folder is not None else None,
            epochs=epochs,
            saving_share=saving_share(os.environ),
            tracking_uri=os.environ.get("MLFLOW_TRACKING_URI", ""),
            resumes=resumes or says_resumes(os.environ),
        )
        self._enter(WorkerRun(environment, SigtermHandler()))
        self._run.state.link = link
        if save is not None and load is not None:
            self.checkpoint_with(save, load)

    def _enter(self, run: WorkerRun) -> None:
        self._run = run
        Training._present = self

    # --- where it stands ---

    @property
    def rank(self) -> int:
        """Number of this worker, from 0."""
        return self._run.state.rank

    @property
    def workers(self) -> int:
        """How many workers train now; may change from one epoch to the next."""
        return self._run.state.width

    @property
    def epoch(self) -> int:
        """Inside the loop the epoch in flight, counted from 1; outside the epochs done."""
        return self._run.epoch

    @property
    def total_epochs(self) -> int:
        """Epochs of the whole training."""
        return self._run.state.total

    @property
    def done(self) -> bool:
        """Whether no epoch is left to train. After a start, `restore()` must come before."""
        return self._run.state.is_done

    @property
    def folder(self) -> Path | None:
        """The training's own folder, the same for all its workers and for a later attempt."""
        return self._run.state.environment.folder

    @property
    def run_id(self) -> str:
        """The MLflow run of this training, on worker 0; "" elsewhere and where nothing is tracked.

        The first call may take seconds, and raises what MLflow raises.
        """
        return self._run.run_id

    # --- epochs ---

    def epochs(self, unit: int | None = None, *, total: int | None = None) -> Iterator[int]:
        """The epochs that are left, counted from 1. An epoch is any equal unit of work.

        With `unit=500` it is 500 steps: `training.steps` then counts them through. `total` is for
        a training that nobody schedules; a job's number of epochs is part of its declaration.
        """
        return self._run.epochs(unit, total=total)

    @property
    def steps(self) -> Steps:
        """The steps of this epoch in a loop over `epochs(unit=n)`; `steps(total=, every=)`: all."""
        return self._run.steps

    # --- state ---

    def restore(self, *things: object, random: bool = False) -> int:
        """Save these at each boundary from now on, and put them back as last saved, in place.

        The number of epochs that they hold: 0 at the first start. `random`: the random numbers of
        Python, NumPy, PyTorch and CUDA go on, too.
        """
        if self._run.role is not None:
            raise TrainingError("restore() comes before epochs()")
        for thing in things:
            check_restorable(thing)
        state = self._run.state
        first = len(state.states.objects)
        state.states.objects += (*things, *([RandomGenerators(self.rank)] if random else ()))
        newest = state.newest_checkpoint()
        if newest is not None:
            state.load(newest, first=first)
        return state.done

    def checkpoint_with(self, save: Save, load: Save) -> None:
        """Callables of your own: `save(path)` makes a file or a folder there, `load(path)` reads it."""
        if self._run.role is not None:
            raise TrainingError("checkpoint_with() comes before epochs()")
        self._run.state.states.save, self._run.state.states.load = save, load
        self._run.state.loaded = None

    def average(self, thing: Thing, *, weight: float = 1.0) -> Thing:
        """Replace every number of a model or of arrays by its mean over all workers, in place.

        The means are the same bits on all workers. `weight` may be the size of the shard. A plain
        number comes back as its mean.
        """
        if not self._run.is_inside or self._run.role is None:
            raise TrainingError("average() belongs inside the loop over epochs()")
        from laxity.worker.group.averaging import put_means

        self._run.notices.combines = True
        if not math.isfinite(weight) or weight < 0:
            raise ValueError(f"average(weight={weight}): expected a number, 0 or more")
        return put_means(thing, partial(self._run.role.average, weight=weight))

    # --- its data ---

    def shard(self, data: Any, *, seed: int | None = None) -> Any:
        """This worker's part of arrays, sequences, or tuples and dicts of them, in this epoch."""
        if not self._run.is_inside:
            raise TrainingError(
                "shard() belongs inside the loop over epochs(): "
                "the parts change when the number of workers does"
            )
        state = self._run.state
        return take_shard(data, rank=state.rank, width=state.width, seed=seed, epoch=state.done + 1)

    def count_bytes(self, count: int) -> None:
        """So many bytes were read: for loaders that `open` and `reading` do not see."""
        self._run.state.count(int(count))

    def open(self, path: Path | str, mode: str = "rb") -> IO[Any]:
        """A file for reading, counted."""
        return open_counted(Path(path), mode, partial(self._run.state.count, of_file=True))

    def reading(self, items: Iterable[Item]) -> Iterator[Item]:
        """The same items, with the bytes of their arrays counted."""
        return count_items(items, self.count_bytes)

    # --- what it says ---

    def declare(
        self, *, samples: int | None = None, batch_size: int | None = None, size: int | None = None
    ) -> None:
        """Say what only this code knows: samples of an epoch, global batch, parameters of the net.

        Forecasts follow at once; what is not given stays as it was declared.
        """
        sizes = {"samples": samples, "batch_size": batch_size, "size": size}
        known = {name: _checked_size(name, n) for name, n in sizes.items() if n is not None}
        if self._run.reports is not None and known:
            self._run.reports.append("declared", **known)

    def log(self, **metrics: float) -> None:
        """Figures of this epoch, for MLflow and the reports; worker 0's count."""
        figures = {name: logged_number(name, value) for name, value in metrics.items()}
        self._run.notices.odd_figures(figures, self.epoch)
        if self._run.role is None and self.total_epochs > 1:
            self._run.notices.no_loop("training.log() came before training.epochs()")
        if self._run.is_inside or self._run.role is None:
            self._run.state.metrics |= figures
            return
        self._run.state.last |= figures
        if self._run.tracker is not None:
            self._run.tracker.add([EpochMetrics.after(self._run.state.done, figures)])

    def last(self, name: str) -> float:
        """The latest value logged under this name, also by an earlier start."""
        figures = self._run.state.last | self._run.state.metrics
        if name not in figures:
            raise KeyError(f"{name!r} was never logged; logged were {sorted(figures)}")
        return figures[name]


def present_training() -> Training | None:
    """This process's, for a library's own callbacks; None: it is no worker."""
    return Training._present  # noqa: SLF001 - its own module


def training_of(run: WorkerRun) -> Training:
    """What user code gets of this run."""
    training = Training.__new__(Training)
    training._enter(run)  # noqa: SLF001 - its own module
    return training


def run_of(training: Training) -> WorkerRun:
    """What laxity's own modules call of this training."""
    return training._run  # noqa: SLF001 - its own module


def _checked_size(name: str, number: int) -> int:
    whole = whole_number(number, least=1)
    if whole is None:
        raise ValueError(f"declare({name}={number!r}): expected a whole number, 1 or more")
    return whole
