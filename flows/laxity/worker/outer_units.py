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

    course: TrainingState
    role: Role | None
    outbox: ReportChannel | None

    @property
    def is_told_to_stop(self) -> bool:
        """Whether the service waits for this training to save and park."""
        return self.outbox is not None and self.outbox.signal.stop

    @property
    def earlier_epochs(self) -> int:
        """Epochs that an earlier start has reported, whether a checkpoint holds them or not."""
        return self.outbox.last_epoch if self.outbox is not None else 0

    @property
    def starts(self) -> int:
        """Starts of this job so far, with this one."""
        return len(self.outbox.lines("started")) if self.outbox is not None else 1

    def date_epoch(self, *, began_at: float | None = None, ended_at: float | None = None) -> None:
        """Say when the epoch in flight really began or ended, in monotonic seconds."""
        course = self.course
        course.began_at = began_at if began_at is not None else course.began_at
        course.ended_at = ended_at

    def park(self) -> None:
        """Report that all is saved, and wait for SIGTERM, which raises, or for another order."""
        if isinstance(self.role, Leader):
            with self.course.termination.take_over():
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
        course = self.course
        course.assignment = replace(course.assignment, epochs=epochs)
        course.total = epochs
        if self.outbox is not None:
            self.outbox.append("declared", epochs=epochs, at=instant_of(since or time.monotonic()))

    def explain_no_state(self, why: str, remedy: str) -> None:
        """Say in the log why a stop loses all, in these words."""
        self.course.no_state, self.course.remedy = why, remedy

    def judge_with(self, judge: Judge) -> None:
        """Let this decide at each epoch's end whether the training ends there."""
        self.course.judge = judge

    @property
    def judged(self) -> bool:
        """Whether the training was ended before its last epoch for its figures or its deadline."""
        return self.course.judged

    def note_judged(self) -> None:
        """Say that it was."""
        self.course.judged = True

    def begin_anew(self) -> None:
        """Give up what earlier starts have trained: the program does not go on from it."""
        course = self.course
        if course.checkpoints is not None:
            course.checkpoints.drop_finished()
        course.states.resumes = False
        course.done, course.loaded, course.inside = 0, None, Inside()

    @property
    def declared_epochs(self) -> int | None:
        """What the job declares; None: nothing."""
        return self.course.assignment.epochs

    def steps_done(self, every: int) -> int:
        """Steps that are done, `every` of which are an epoch."""
        return self.course.done * every + self.course.inside.step

    @property
    def ends_epoch(self) -> bool:
        """Whether the step in flight is the last one of its epoch."""
        return self.course.steps_left == 1

    def count_from(self, step: int, *, total: int, every: int | None) -> None:
        """The library goes on after so many of all its steps, whatever was counted before."""
        course = self.course
        epochs = course.assignment.epochs or -(-total // (every or 1))
        ends = epoch_ends(total, every, epochs)
        first = ends[course.done - 1] if course.done else 0
        if step == first + course.inside.step:
            return
        if not step:
            self.begin_anew()
            return
        course.done = bisect_right(ends, step)
        first = ends[course.done - 1] if course.done else 0
        steps = ends[min(course.done, epochs - 1)] - first
        course.inside = Inside(step - first, (step - first) / max(1, steps))
