"""The part of a training's run for a loop that somebody else ends, or whose epochs another program trains.

Their ends are known a while later, a stop is taken between them, and where the program began is known
only once it has said something.
"""

import time
from bisect import bisect_right
from dataclasses import replace

from laxity.worker.checkpoints.training_state import Inside, Judge, TrainingState, instant_of
from laxity.worker.leader import Leader
from laxity.worker.reports import ReportChannel
from laxity.worker.roles import Role
from laxity.worker.steps import epoch_ends


class OuterUnits:
    """Used before the loop (`recount`, `explain_no_state`, `begin_anew`) and inside it."""

    state: TrainingState
    role: Role | None
    reports: ReportChannel | None

    @property
    def is_told_to_stop(self) -> bool:
        """Whether the service waits for this training to save and park."""
        return self.reports is not None and self.reports.signal.stop

    @property
    def earlier_epochs(self) -> int:
        """Epochs that an earlier start has reported, whether a checkpoint holds them or not."""
        return self.reports.last_epoch if self.reports is not None else 0

    @property
    def starts(self) -> int:
        """Starts of this job so far, with this one."""
        return len(self.reports.lines("started")) if self.reports is not None else 1

    def date_epoch(self, *, began_at: float | None = None, ended_at: float | None = None) -> None:
        """Say when the epoch in flight really began or ended, in monotonic seconds."""
        state = self.state
        state.began_at = began_at if began_at is not None else state.began_at
        state.ended_at = ended_at

    def park(self) -> None:
        """Report that all is saved, and wait for SIGTERM, which raises, or for another order."""
        if isinstance(self.role, Leader):
            with self.state.termination.take_over():
                self.role.park_while_told()

    @property
    def has_other_width(self) -> bool:
        """Whether the workers of a launcher have to begin again, as more or fewer of them."""
        return isinstance(self.role, Leader) and self.role.has_other_width

    def start_anew(self) -> None:
        """Begin again as the workers that there are now. Does not return."""
        if isinstance(self.role, Leader):
            self.role.start_anew()

    def recount(self, epochs: int, *, since: float | None = None) -> None:
        """Count all the work as so many epochs from this monotonic time on, now by default."""
        state = self.state
        state.environment = replace(state.environment, epochs=epochs)
        state.total = epochs
        if self.reports is not None:
            self.reports.append("declared", epochs=epochs, at=instant_of(since or time.monotonic()))

    def explain_no_state(self, why: str, remedy: str) -> None:
        """Say in the log why a stop loses all, in these words."""
        self.state.no_state, self.state.remedy = why, remedy

    def judge_with(self, judge: Judge) -> None:
        """Let this decide at each epoch's end whether the training ends there."""
        self.state.judge = judge

    @property
    def judged(self) -> bool:
        """Whether the training was ended before its last epoch for its figures or its deadline."""
        return self.state.judged

    def note_judged(self) -> None:
        """Say that it was."""
        self.state.judged = True

    def begin_anew(self) -> None:
        """Give up what earlier starts have trained: the program does not go on from it."""
        state = self.state
        if state.checkpoints is not None:
            state.checkpoints.drop_finished()
        state.states.resumes = False
        state.done, state.loaded, state.inside = 0, None, Inside()

    @property
    def declared_epochs(self) -> int | None:
        """What the job declares; None: nothing."""
        return self.state.environment.epochs

    def steps_done(self, every: int) -> int:
        """Steps that are done, `every` of which are an epoch."""
        return self.state.done * every + self.state.inside.step

    @property
    def ends_epoch(self) -> bool:
        """Whether the step in flight is the last one of its epoch."""
        return self.state.steps_left == 1

    def count_from(self, step: int, *, total: int, every: int | None) -> None:
        """The library goes on after so many of all its steps, whatever was counted before."""
        state = self.state
        epochs = state.environment.epochs or -(-total // (every or 1))
        ends = epoch_ends(total, every, epochs)
        first = ends[state.done - 1] if state.done else 0
        if step == first + state.inside.step:
            return
        if not step:
            self.begin_anew()
            return
        state.done = bisect_right(ends, step)
        first = ends[state.done - 1] if state.done else 0
        steps = ends[min(state.done, epochs - 1)] - first
        state.inside = Inside(step - first, (step - first) / max(1, steps))
