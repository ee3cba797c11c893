"""The run behind a `Training`: what laxity's own modules call, and user code does not.

It holds the state, the reports, MLflow's points and the role of one worker; `Training` is its face.
"""

import atexit
import os
from collections.abc import Callable, Generator, Iterator
from typing import Final, cast

from laxity import names
from laxity.stderr import say
from laxity.worker.active_run import ActiveRun
from laxity.worker.checkpoints.checkpoint import Checkpoints
from laxity.worker.checkpoints.state import States
from laxity.worker.checkpoints.training_state import TrainingError, TrainingState
from laxity.worker.code.environment import WorkerEnvironment
from laxity.worker.code.import_hooks import when_imported
from laxity.worker.data.io_meter import Meter
from laxity.worker.epoch_loop import EpochLoop, UnitTime
from laxity.worker.mlflow_tracking import PATIENCE, Tracker
from laxity.worker.notices import Notices
from laxity.worker.outer_units import OuterUnits
from laxity.worker.reports import ReportChannel
from laxity.worker.roles import Role, take_role
from laxity.worker.sigterm import SigtermHandler
from laxity.worker.steps import Steps

ALONE_FLUSH_S: Final = 120.0  # nobody waits for its place
RUN_S: Final = 5.0  # the service makes the run within a second of the verdict, or it cannot


class WorkerRun(OuterUnits):
    """One worker's training, from its first line to the end of its function."""

    def __init__(self, environment: WorkerEnvironment, termination: SigtermHandler) -> None:
        folder = environment.folder
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        self.state = TrainingState(
            environment,
            checkpoints=Checkpoints(folder) if folder is not None else None,
            states=States(resumes=environment.resumes),
            termination=termination,
            total=environment.epochs or 0,
        )
        self.reports: ReportChannel | None = None
        self.tracker: Tracker | None = None
        self._active_run: ActiveRun | None = None
        self.role = self._launched = cast("Role | None", None)
        self._unit: int | None = None
        self.is_inside = False
        self._unit_time = UnitTime()
        self.notices = Notices(self.state)
        if environment.index == 0:
            if folder is not None:
                self.reports = ReportChannel.of(environment, folder)
            self._open_tracker()

    def _open_tracker(self) -> None:
        """Nothing is imported or asked before the first epoch, or the code's own import of MLflow."""
        environment = self.state.environment
        if environment.tracking_uri:
            self.tracker = Tracker(
                environment.tracking_uri,
                tags=environment.run_tags(),
                given_run_id=self._await_run_id,
            )
            if not environment.job:
                atexit.register(self._finish_late)
        if environment.job and (uri := os.environ.get("MLFLOW_TRACKING_URI", "")):
            for name, value in PATIENCE.items():
                os.environ.setdefault(name, value)
            self._active_run = ActiveRun(uri, lambda: self.run_id)
            when_imported("mlflow", self._active_run.join)

    # --- where it stands ---

    @property
    def epoch(self) -> int:
        """Inside the loop the epoch in flight, counted from 1; outside the epochs done."""
        return self.state.done + self.is_inside

    @property
    def started(self) -> bool:
        """Whether `epochs()` was ever entered."""
        return self.role is not None

    @property
    def formation(self) -> str:
        """A name for the present group, the same on all its workers; another one after each change."""
        return self.state.formation

    @property
    def complete(self) -> bool:
        """Whether the loop was entered, and no epoch is left."""
        return self.started and self.state.is_done

    @property
    def run_id(self) -> str:
        """The MLflow run; "" where there is none. May wait, and raises what MLflow raises."""
        return self.tracker.run_id() if self.tracker is not None else self._await_run_id()

    def _await_run_id(self) -> str:
        """The run that the service made at the verdict; "" if it says none in a few seconds."""
        if self.reports is None:
            return ""
        if self.state.environment.url:
            self.reports.wait_until(lambda now: bool(now.run_id), at_most_s=RUN_S)
        return self.reports.signal.run_id

    def when_formed(self, call: Callable[[], None]) -> None:
        """Call this whenever the group has formed, before the next epoch: rank and workers hold."""
        self.state.when_formed.append(call)

    # --- epochs ---

    def launch(self) -> bool:
        """With a launcher: let the workers meet before the function is called; False if all is over."""
        self._launched = take_role(self.state, self.reports, self.tracker)
        return self._launched.launch()

    def epochs(self, unit: int | None = None, *, total: int | None = None) -> Iterator[int]:
        """The loop over the epochs that are left, `unit` steps each."""
        state, declared = self.state, self.state.environment.epochs
        if total and declared and total != declared:
            say(f"epochs(total={total}): this job declares {declared} epochs, and trains those")
        state.total = declared or total or 0
        if state.total < 1:
            raise TrainingError(f"how many epochs? Declare epochs=... or set {names.ENV_EPOCHS}")
        if self.role is not None:
            raise TrainingError("epochs() was called twice: one loop holds the whole training")
        if unit is not None and unit < 1:
            raise TrainingError(f"an epoch of {unit} steps: expected 1 or more")
        self._unit = unit
        state.meter = Meter() if unit is None and self.reports is not None else None
        self.role = self._launched or take_role(self.state, self.reports, self.tracker)
        return EpochLoop(self._loop_epochs(self.role), self._note_left, total=state.total)

    def _loop_epochs(self, role: Role) -> Generator[int]:
        termination = self.state.termination
        with termination.take_over():
            going = role.begin()
        while going:
            termination.check()
            self.state.loaded = None
            self.state.states.begin_epoch()
            self.is_inside = self.state.has_trained = True
            if self._active_run is not None:
                self._active_run.offer()
            self._unit_time.begin()
            yield self.epoch
            is_dated = self.state.ended_at is not None
            self.state.is_untrained = not (self._unit_time.end(self.state.metrics) or is_dated)
            if self.state.is_untrained:
                self.notices.skipped(self.epoch)
            self.is_inside = False
            self.notices.lone_models()
            termination.check()
            with termination.take_over():
                going = role.boundary()
        self._flush_alone()

    def _flush_alone(self, outcome: str = "") -> None:
        if not self.state.environment.job and self.tracker is not None:  # at the end it is too late
            self.tracker.flush(at_most_s=ALONE_FLUSH_S, outcome=outcome)

    def _note_left(self, by_exception: bool) -> None:  # noqa: FBT001 - a callback
        """The loop is over or was left in an epoch, which a job counts once its function returns."""
        if self.is_inside:
            self.is_inside = self._unit_time.leave(self.state.metrics, by_exception=by_exception)
            if not by_exception and not self.state.environment.job:
                self._end_early()

    def leave(self) -> None:
        """The loop is left, as by `break`: for a library that goes through it step by step."""
        self._note_left(by_exception=False)

    def _end_early(self) -> None:
        """End a training that has epochs left; the one in flight counts if it was trained."""
        role = self.role
        if role is None or self.state.is_done:
            return
        counts = self.is_inside and self._unit_time.leave(self.state.metrics) and not role.void
        self.is_inside, self.state.left_early = False, True
        if counts:
            role.end_early(self._unit_time.left_at)
        role.end()
        self._flush_alone()

    @property
    def steps(self) -> Steps:
        """The steps of the epoch in flight, if the loop counts steps; called, they are the loop."""
        unit = self._unit if self.is_inside else None
        first = self.state.done * (unit or 0)
        of_epoch = range(first, first + unit) if unit else None
        return Steps(of_epoch, lambda: self.role, self.epochs, self.state)

    # --- the end ---

    def count_whole(self, since: float) -> None:
        """Count a function without a loop, since this monotonic time, as the one declared epoch."""
        if self.state.environment.epochs == 1 or self.state.is_done:  # all were, before it began
            self.state.began_at = since
            for _ in self.epochs():
                self.notices.combines = True

    def finish(self) -> None:
        """The training function has returned: count what it left early, tell the other workers."""
        self._end_early()
        if self.role is not None:
            self.role.end()
        self._flush_alone("FINISHED")

    def _finish_late(self) -> None:
        """At the interpreter's end nothing new can be imported: only what is open is used."""
        if self.tracker is not None and self.tracker.opened:
            ended = "SCHEDULED" if self.state.link_ended else "KILLED"  # the next link goes on
            outcome = "FINISHED" if self.complete else ended
            self.tracker.flush(at_most_s=ALONE_FLUSH_S, outcome=outcome)

    def save_rest(self) -> None:
        """Told to stop: save what the last boundary left unsaved."""
        if self.role is not None:
            self.role.on_sigterm()

    def has_lost_others(self) -> bool:
        """Whether another worker of the group is gone."""
        return self.role is not None and self.role.anyone_gone()
