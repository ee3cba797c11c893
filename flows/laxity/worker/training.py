"""What training code holds: its epochs, its share of the data, its state, and the others' means.

    for epoch in training.epochs():
        loss = model.fit(training.shard(data))
        training.average(model)
        training.log(loss=loss)

Between two epochs the state is saved and reported; there the training stops, goes on or changes
its width when told so. Without a scheduler the same code just trains, alone.
"""

import atexit
import math
import os
from collections.abc import Callable, Generator, Iterator
from functools import partial
from pathlib import Path
from typing import ClassVar, Final, TypeVar, cast

from laxity import names
from laxity.parsing import whole_number
from laxity.stderr import say
from laxity.worker.active_run import ActiveRun
from laxity.worker.chain_link import ChainLink
from laxity.worker.checkpoints.checkpoint import CheckpointError, Checkpoints
from laxity.worker.checkpoints.random_generators import RandomGenerators
from laxity.worker.checkpoints.state import States, check_restorable
from laxity.worker.checkpoints.training_state import TrainingError, TrainingState
from laxity.worker.code.environment import WorkerEnvironment, saving_share, says_resumes
from laxity.worker.code.import_hooks import when_imported
from laxity.worker.data.data_access import DataAccess
from laxity.worker.data.io_meter import Meter
from laxity.worker.epoch_loop import EpochLoop, UnitTime
from laxity.worker.group.membership import GroupError
from laxity.worker.mlflow_tracking import PATIENCE, EpochMetrics, Tracker, logged_number
from laxity.worker.notices import Notices
from laxity.worker.outer_units import OuterUnits
from laxity.worker.reports import ReportChannel
from laxity.worker.roles import Role, take_role
from laxity.worker.sigterm import SigtermHandler, TrainingStopped
from laxity.worker.steps import Steps

__all__ = ["CheckpointError", "GroupError", "Training", "TrainingError", "TrainingStopped"]

Thing = TypeVar("Thing")
Save = Callable[[Path], object]
ALONE_FLUSH_S: Final = 120.0  # nobody waits for its place
RUN_S: Final = 5.0  # the service makes the run within a second of the verdict, or it cannot


class Training(DataAccess, OuterUnits):
    """One worker's view of a training. A worker of a job gets it as a parameter."""

    current: ClassVar["Training | None"] = None  # of this process, for a library's own callbacks

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
        assignment = WorkerEnvironment(
            folder=Path(folder) if folder is not None else None,
            epochs=epochs,
            saving_share=saving_share(os.environ),
            tracking_uri=os.environ.get("MLFLOW_TRACKING_URI", ""),
            resumes=resumes or says_resumes(os.environ),
        )
        self._set_up(assignment, SigtermHandler())
        self._course.link = link
        if save is not None and load is not None:
            self.checkpoint_with(save, load)

    @classmethod
    def of(cls, assignment: WorkerEnvironment, termination: SigtermHandler) -> "Training":
        """The training of one worker process of a job."""
        training = cls.__new__(cls)
        training._set_up(assignment, termination)  # noqa: SLF001 - its own class
        return training

    def _set_up(self, assignment: WorkerEnvironment, termination: SigtermHandler) -> None:
        Training.current = self
        folder = assignment.folder
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        self._course = TrainingState(
            assignment,
            checkpoints=Checkpoints(folder) if folder is not None else None,
            states=States(resumes=assignment.resumes),
            termination=termination,
            total=assignment.epochs or 0,
        )
        self.outbox: ReportChannel | None = None
        self.tracker: Tracker | None = None
        self._active_run: ActiveRun | None = None
        self._role = self._launched = cast("Role | None", None)
        self._unit: int | None = None
        self._inside = False
        self._unit_time = UnitTime()
        self.notices = Notices(self._course)
        if assignment.index == 0:
            if folder is not None:
                self.outbox = ReportChannel.of(assignment, folder)
            self._open_tracker()

    def _open_tracker(self) -> None:
        """Nothing is imported or asked before the first epoch, or the code's own import of MLflow."""
        assignment = self._course.assignment
        if assignment.tracking_uri:
            self.tracker = Tracker(
                assignment.tracking_uri, tags=assignment.run_tags(), given_run_id=self._await_run_id
            )
            if not assignment.job:
                atexit.register(self._finish_late)
        if assignment.job and (uri := os.environ.get("MLFLOW_TRACKING_URI", "")):
            for name, value in PATIENCE.items():
                os.environ.setdefault(name, value)
            self._active_run = ActiveRun(uri, lambda: self.run_id)
            when_imported("mlflow", self._active_run.join)

    # --- where it stands ---

    @property
    def rank(self) -> int:
        """Number of this worker, from 0."""
        return self._course.rank

    @property
    def workers(self) -> int:
        """How many workers train now; may change from one epoch to the next."""
        return self._course.width

    @property
    def epoch(self) -> int:
        """Inside the loop the epoch in flight, counted from 1; outside the epochs done."""
        return self._course.done + self._inside

    @property
    def total_epochs(self) -> int:
        return self._course.total

    @property
    def started(self) -> bool:
        """Whether `epochs()` was ever entered."""
        return self._role is not None

    @property
    def formation(self) -> str:
        """A name for the present group, the same on all its workers; another one after each change."""
        return self._course.formation

    @property
    def done(self) -> bool:
        """Whether no epoch is left to train. After a start, `restore()` must come before."""
        return self._course.is_done

    @property
    def complete(self) -> bool:
        """Whether the loop was entered, and no epoch is left."""
        return self.started and self.done

    @property
    def folder(self) -> Path | None:
        """The training's own folder, the same for all its workers and for a later attempt."""
        return self._course.assignment.folder

    @property
    def run_id(self) -> str:
        """The MLflow run of this training, on worker 0; "" elsewhere and where nothing is tracked.

        The first call may take seconds, and raises what MLflow raises.
        """
        return self.tracker.run_id() if self.tracker is not None else self._await_run_id()

    # --- epochs ---

    def launch(self) -> bool:
        """With a launcher: let the workers meet before the function is called; False if all is over."""
        self._launched = take_role(self._course, self.outbox, self.tracker)
        return self._launched.launch()

    def epochs(self, unit: int | None = None, *, total: int | None = None) -> Iterator[int]:
        """The epochs that are left, counted from 1. An epoch is any equal unit of work.

        With `unit=500` it is 500 steps: `training.steps` then counts them through. `total` is for
        a training that nobody schedules; a job's number of epochs is part of its declaration.
        """
        course, declared = self._course, self._course.assignment.epochs
        if total and declared and total != declared:
            say(f"epochs(total={total}): this job declares {declared} epochs, and trains those")
        course.total = declared or total or 0
        if course.total < 1:
            raise TrainingError(f"how many epochs? Declare epochs=... or set {names.ENV_EPOCHS}")
        if self._role is not None:
            raise TrainingError("epochs() was called twice: one loop holds the whole training")
        if unit is not None and unit < 1:
            raise TrainingError(f"an epoch of {unit} steps: expected 1 or more")
        self._unit = unit
        course.meter = Meter() if unit is None and self.outbox is not None else None
        self._role = self._launched or take_role(self._course, self.outbox, self.tracker)
        return EpochLoop(self._loop_epochs(self._role), self._note_left, total=course.total)

    def _loop_epochs(self, role: Role) -> Generator[int]:
        termination = self._course.termination
        with termination.take_over():
            going = role.begin()
        while going:
            termination.check()
            self._course.loaded = None
            self._course.states.begin_epoch()
            self._inside = self._course.has_trained = True
            if self._active_run is not None:
                self._active_run.offer()
            self._unit_time.begin()
            yield self.epoch
            is_dated = self._course.ended_at is not None
            self._course.is_untrained = not (self._unit_time.end(self._course.metrics) or is_dated)
            if self._course.is_untrained:
                self.notices.skipped(self.epoch)
            self._inside = False
            self.notices.lone_models()
            termination.check()
            with termination.take_over():
                going = role.boundary()
        self._flush_alone()

    def _flush_alone(self, outcome: str = "") -> None:
        if (
            not self._course.assignment.job and self.tracker is not None
        ):  # at the end it is too late
            self.tracker.flush(at_most_s=ALONE_FLUSH_S, outcome=outcome)

    def _note_left(self, by_exception: bool) -> None:  # noqa: FBT001 - a callback
        """The loop is over or was left in an epoch, which a job counts once its function returns."""
        if self._inside:
            self._inside = self._unit_time.leave(self._course.metrics, by_exception=by_exception)
            if not by_exception and not self._course.assignment.job:
                self._end_early()

    def leave(self) -> None:
        """The loop is left, as by `break`: for a library that goes through it step by step."""
        self._note_left(by_exception=False)

    def _end_early(self) -> None:
        """End a training that has epochs left; the one in flight counts if it was trained."""
        role = self._role
        if role is None or self.done:
            return
        counts = self._inside and self._unit_time.leave(self._course.metrics) and not role.void
        self._inside, self._course.left_early = False, True
        if counts:
            role.end_early(self._unit_time.left_at)
        role.end()
        self._flush_alone()

    def _await_run_id(self) -> str:
        """The run that the service made at the verdict; "" if it says none in a few seconds."""
        if self.outbox is None:
            return ""
        if self._course.assignment.url:
            self.outbox.wait_until(lambda now: bool(now.run_id), at_most_s=RUN_S)
        return self.outbox.signal.run_id

    @property
    def steps(self) -> Steps:
        """The steps of this epoch in a loop over `epochs(unit=n)`; `steps(total=, every=)`: all."""
        unit = self._unit if self._inside else None
        first = self._course.done * (unit or 0)
        of_epoch = range(first, first + unit) if unit else None
        return Steps(of_epoch, lambda: self._role, self.epochs, self._course)

    # --- state ---

    def restore(self, *things: object, random: bool = False) -> int:
        """Save these at each boundary from now on, and put them back as last saved, in place.

        The number of epochs that they hold: 0 at the first start. `random`: the random numbers of
        Python, NumPy, PyTorch and CUDA go on, too.
        """
        if self._role is not None:
            raise TrainingError("restore() comes before epochs()")
        for thing in things:
            check_restorable(thing)
        course = self._course
        first = len(course.states.objects)
        course.states.objects += (*things, *([RandomGenerators(self.rank)] if random else ()))
        newest = course.newest_checkpoint()
        if newest is not None:
            course.load(newest, first=first)
        return course.done

    def checkpoint_with(self, save: Save, load: Save) -> None:
        """Callables of your own: `save(path)` makes a file or a folder there, `load(path)` reads it."""
        if self._role is not None:
            raise TrainingError("checkpoint_with() comes before epochs()")
        self._course.states.save, self._course.states.load = save, load
        self._course.loaded = None

    def average(self, thing: Thing, *, weight: float = 1.0) -> Thing:
        """Replace every number of a model or of arrays by its mean over all workers, in place.

        The means are the same bits on all workers. `weight` may be the size of the shard. A plain
        number comes back as its mean.
        """
        if not self._inside or self._role is None:
            raise TrainingError("average() belongs inside the loop over epochs()")
        from laxity.worker.group.averaging import put_means

        self.notices.combines = True
        if not math.isfinite(weight) or weight < 0:
            raise ValueError(f"average(weight={weight}): expected a number, 0 or more")
        return put_means(thing, partial(self._role.average, weight=weight))

    def when_formed(self, call: Callable[[], None]) -> None:
        """Call this whenever the group has formed, before the next epoch: rank and workers hold."""
        self._course.when_formed.append(call)

    # --- what it says ---

    def declare(
        self, *, samples: int | None = None, batch_size: int | None = None, size: int | None = None
    ) -> None:
        """Say what only this code knows: samples of an epoch, global batch, parameters of the net.

        Forecasts follow at once; what is not given stays as it was declared.
        """
        sizes = {"samples": samples, "batch_size": batch_size, "size": size}
        known = {name: _checked_size(name, n) for name, n in sizes.items() if n is not None}
        if self.outbox is not None and known:
            self.outbox.append("declared", **known)

    def log(self, **metrics: float) -> None:
        """Figures of this epoch, for MLflow and the reports; worker 0's count."""
        figures = {name: logged_number(name, value) for name, value in metrics.items()}
        self.notices.odd_figures(figures, self.epoch)
        if self._role is None and self.total_epochs > 1:
            self.notices.no_loop("training.log() came before training.epochs()")
        if self._inside or self._role is None:
            self._course.metrics |= figures
            return
        self._course.last |= figures
        if self.tracker is not None:
            self.tracker.add([EpochMetrics.after(self._course.done, figures)])

    def last(self, name: str) -> float:
        """The latest value logged under this name, also by an earlier start."""
        figures = self._course.last | self._course.metrics
        if name not in figures:
            raise KeyError(f"{name!r} was never logged; logged were {sorted(figures)}")
        return figures[name]

    # --- the end, for whoever runs the training function ---

    def count_whole(self, since: float) -> None:
        """Count a function without a loop, since this monotonic time, as the one declared epoch."""
        if self._course.assignment.epochs == 1 or self.done:  # all were, before it began
            self._course.began_at = since
            for _ in self.epochs():
                self.notices.combines = True

    def finish(self) -> None:
        """The training function has returned: count what it left early, tell the other workers."""
        self._end_early()
        if self._role is not None:
            self._role.end()
        self._flush_alone("FINISHED")

    def _finish_late(self) -> None:
        """At the interpreter's end nothing new can be imported: only what is open is used."""
        if self.tracker is not None and self.tracker.opened:
            ended = "SCHEDULED" if self._course.link_ended else "KILLED"  # the next link goes on
            outcome = "FINISHED" if self.complete else ended
            self.tracker.flush(at_most_s=ALONE_FLUSH_S, outcome=outcome)

    def save_rest(self) -> None:
        """Told to stop: save what the last boundary left unsaved."""
        if self._role is not None:
            self._role.on_sigterm()

    def has_lost_others(self) -> bool:
        """Whether another worker of the group is gone."""
        return self._role is not None and self._role.anyone_gone()


def _checked_size(name: str, number: int) -> int:
    whole = whole_number(number, least=1)
    if whole is None:
        raise ValueError(f"declare({name}={number!r}): expected a whole number, 1 or more")
    return whole
