"""Worker 0, or a training that runs alone: at each boundary it saves, reports and decides for all.

An epoch counts once it is saved or reported. The order at a boundary is: checkpoint (holding the
reports that are not on the disk yet), then the reports, then what the service wants. So a kill in
between neither loses nor doubles a report, and an epoch trained again is not reported again.
"""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from laxity.human_time import count_noun
from laxity.stderr import say
from laxity.worker import launcher
from laxity.worker.chain_link import EXIT_UNFINISHED, LinkEnded
from laxity.worker.checkpoints.checkpoint import CheckpointNotWrittenError
from laxity.worker.checkpoints.saving import Saver
from laxity.worker.checkpoints.training_state import Inside, TrainingState, instant_of
from laxity.worker.code.code_digest import note_code, tell_changed_files
from laxity.worker.group.membership import GroupServer
from laxity.worker.mlflow_tracking import Tracker, finite_numbers
from laxity.worker.reports import Line, ReportChannel
from laxity.worker.sigterm import BeginAnew, Superseded

if TYPE_CHECKING:
    from numpy.typing import NDArray

FIRST_ANSWER_S: Final = 10.0
FIRST_FORM_S: Final = 60.0
LOOK_S: Final = 3600.0
STOP_LOSES_ALL: Final = (
    "{0.no_state}: a stop loses all epochs, and the next start begins at epoch 1. {0.remedy}"
)


class Leader:
    """The boundary as worker 0 sees it. Each part may be missing: a laptop has none of them."""

    def __init__(
        self,
        course: TrainingState,
        *,
        group: GroupServer | None = None,
        outbox: ReportChannel | None = None,
        tracker: Tracker | None = None,
    ) -> None:
        self._course = course
        self._group = group
        self._outbox = outbox
        self._tracker = tracker
        self._saver = Saver(course, outbox=outbox, tracker=tracker)
        self._began = 0.0  # the epoch in flight, with the saving before it, monotonic
        self._longest_s = 0.0  # of the epochs of this process
        self._step_at, self._longest_step_s = 0.0, 0.0  # where it can stop between steps
        self._launched = 0  # workers that began together, with a launcher
        self._warned = False  # that a stop loses all

    @property
    def void(self) -> bool:
        return self._group is not None and self._group.void

    def launch(self) -> bool:
        """With a launcher: meet the other workers, before the function is called."""
        assignment, group = self._course.assignment, self._group
        self._gather_workers()
        self._launched = self._course.width = self._reachable_width()
        host, port = assignment.host or "127.0.0.1", launcher.free_port()
        if group is not None:
            group.launch(self._launched, host=host, port=port)
        launcher.set_variables(
            rank=0, width=self._launched, host=host, port=port, run=assignment.training
        )
        return True

    def begin(self) -> bool:
        """Load, form, and be ready for the next epoch; False if all epochs are done."""
        course = self._course
        newest = self._saver.find_newest()
        if newest is not None and course.loaded != newest.epoch:
            course.load(newest)
        if newest is not None:
            course.check_complete(newest)
            if self._outbox is not None:
                self._outbox.append_missing(newest.note.get("records", ()))
        else:
            self._forget_earlier_starts()
        self._saver.track(self._outbox.lines("epoch") if self._outbox is not None else [])
        if self._is_over():
            return False
        self._end_link_in_time()
        self._form_first()
        if newest is not None:
            load_s, files = course.load_s or 0.0, tell_changed_files(course.assignment.folder)
            self._saver.append_report(
                "resumed", epoch=course.done, load_s=load_s, code_changed=files
            )
        self.park_while_told()
        self._watch_reading()
        return True

    def _forget_earlier_starts(self) -> None:
        """No checkpoint holds what they have trained: this one trains all of it again."""
        if self._course.assignment.folder is not None:
            note_code(self._course.assignment.folder)
        if self._course.checkpoints is not None:
            self._course.checkpoints.drop_finished()
        self._course.lost = lost = self._outbox.last_epoch if self._outbox is not None else 0
        if lost:
            epochs = count_noun(lost, "epoch")
            say(f"it begins at epoch 1: no checkpoint holds the {epochs} of an earlier start")

    def boundary(self) -> bool:
        """An epoch is done; False if it was the last one. Superseded: it does not count here."""
        self._leave_to_another()
        if self._course.meter is not None:
            self._course.meter.end()
        others_read = self._group.gather_boundary() if self._group else 0
        if self.void:
            self._fall_back()
        else:
            is_dated = self._course.ended_at is not None
            self._complete_epoch(others_read, now=self._course.ended_at or time.monotonic())
            if self._is_over():
                return False
            if is_dated:  # the next epoch may have ended, too
                self._go()
            else:
                self._end_link_in_time()
                self.park_while_told()
                self._reform_or_go()
        return True

    def between_steps(self, step: int, steps: int) -> None:
        """So many steps of the epoch in flight are done: save them and stop where that is ordered."""
        course, now = self._course, time.monotonic()
        since = max(self._step_at, self._began)
        self._longest_step_s, self._step_at = max(self._longest_step_s, now - since), now
        is_told = self._outbox is not None and self._outbox.signal.stop
        is_ordered = is_told or course.termination.asked or self._link_is_over()
        if not (is_ordered and course.may_stop_inside):
            return
        self._leave_to_another()
        course.inside = Inside(step, step / steps, now - self._began)
        with course.termination.take_over():
            self._end_link_in_time()
            if not is_told:
                self._saver.ensure_saved()
                self._saver.require_saved()
            self.park_while_told()
            course.termination.check()

    def _leave_to_another(self) -> None:
        if self._group is not None and self._group.is_superseded():
            self._saver.forget_unsaved()
            self._course.termination.asked = True
            raise Superseded("another worker 0 of this job has begun: this one leaves")

    def _watch_reading(self) -> None:
        """The first epoch is told of while it reads; later ones are known by those before."""
        meter, outbox, course = self._course.meter, self._outbox, self._course
        if meter is None or outbox is None or course.done > 0:
            return
        now = {"epoch": 1, "width": course.width}
        meter.watch(lambda fields: outbox.append("read", **now, **fields))

    def average(
        self, arrays: "Sequence[NDArray[Any]]", names: Sequence[str], weight: float
    ) -> "Sequence[NDArray[Any]] | None":
        """The means over all workers; alone, the arrays themselves."""
        if self._group is None or self._course.width == 1:
            return None
        return self._group.average(arrays, names, weight)

    def anyone_gone(self) -> bool:
        return self._group is not None and self._group.anyone_gone()

    def on_sigterm(self) -> None:
        """SIGTERM: what was trained since the last checkpoint is saved, up to the last boundary."""
        course = self._course
        if course.done and course.checkpoints is not None and not course.holds_state:
            say(f"{count_noun(course.done, 'epoch')} of this process are lost: {course.no_state}")
        superseded = self._group is not None and self._group.is_superseded()
        if not superseded:
            self._saver.save_unsaved()
            self._saver.require_saved()

    def end(self) -> None:
        """No epoch is left, or the training function is done: nobody need wait for another."""
        if self._course.left_early:
            self._saver.save_unsaved()
        if self._course.link is not None and self._course.is_done:
            self._course.link.note_trained()
        if self._group is not None:
            self._group.end()
            self._group = None

    def end_early(self, left_at: float) -> None:
        """Count the epoch in which the loop was left, at this monotonic time, and save it."""
        course = self._course
        self._leave_to_another()
        if course.meter is not None:
            course.meter.end()
        try:
            self._complete_epoch(0, now=left_at)
            self._saver.ensure_saved()
        except Exception as error:  # noqa: BLE001 - a save of the user's; the training is done
            say(f"epoch {course.done} counts, but its state was not saved: {error}")
            self._saver.send_records()

    def _is_over(self) -> bool:
        if not self._course.is_done:
            return False
        self._saver.ensure_saved()
        self.end()
        return True

    # --- completing an epoch ---

    def _complete_epoch(self, others_read: int, *, now: float) -> None:
        course = self._course
        epoch_s, self._began = now - self._began, now
        self._longest_s = max(self._longest_s, epoch_s)
        ended = course.epoch_over()
        if self._outbox is not None:
            self._outbox.epoch_ended = None if ended["untrained"] else now
        line = {
            "kind": "epoch",
            "at": instant_of(now),
            "epoch": course.done + 1,
            "epoch_s": epoch_s,
            "width": course.width,
            "bytes": ended["bytes"] + others_read,
            "warmup": course.warmup,
            **({"untrained": True} if ended["untrained"] else {}),
            "metrics": finite_numbers(ended["metrics"]),
        }
        with course.termination.defer():
            course.last |= ended["metrics"]
            course.done += 1
            course.warmup = course.warmup and ended["untrained"]
            self._note_stateless(line)
            self._saver.complete_epoch(line)
        if course.judge is not None and not course.left_early:
            course.left_early = course.judge(course.done, ended["metrics"], epoch_s)

    def _note_stateless(self, line: Line) -> None:
        """Report with each epoch that a stop loses it, and say so once."""
        course = self._course
        if course.holds_state or course.checkpoints is None:
            return
        line["holds_state"] = False
        if not self._warned and course.done < course.total:
            self._warned = True
            say(STOP_LOSES_ALL.format(course))

    # --- the group ---

    def _target_width(self) -> int:
        """How many workers there should be: what the service says, else all that are here."""
        width = self._outbox.signal.workers if self._outbox is not None else None
        if width is not None:
            return max(1, width)
        return self._group.reachable() if self._group is not None else 1

    def _reachable_width(self) -> int:
        return min(self._target_width(), self._group.reachable()) if self._group is not None else 1

    def _form_first(self) -> None:
        if self._launched and self.anyone_gone():
            self._start_anew("a worker is gone")
        if not self._launched:
            self._gather_workers()
        self._form_group(self._launched or self._reachable_width(), load=True)

    def _gather_workers(self) -> None:
        """Wait until as many workers are here as the service says, at most for a while."""
        if self._outbox is not None:
            self._outbox.first_answer(at_most_s=FIRST_ANSWER_S)
        if self._group is not None:
            self._group.wait_for(self._target_width, at_most_s=FIRST_FORM_S)

    def _start_anew(self, why: str) -> None:
        """With a launcher a group of another width is one of other processes."""
        if self._group is not None:
            self._group.disband()
        launcher.start_anew(why)

    def _form_group(self, width: int, *, load: bool) -> None:
        """With others there must be a checkpoint to start from, the untrained state included."""
        course = self._course
        if width > 1 and not self._saver.ensure_saved():
            raise CheckpointNotWrittenError(self._saver.error)
        if self._group is not None:
            self._group.form(width, epoch=course.done, load=load)
        course.set_width(width, formation=self._group.round if self._group else "")
        self._began, course.began_at = course.began_at or time.monotonic(), None
        self._report_formed()

    def _report_formed(self) -> None:
        """The workers train from `_began` on. Steps that are done count as trained before it."""
        course = self._course
        place = {"width": course.width, "epoch": course.done, "at": instant_of(self._began)}
        stops = {"stops": "anywhere"} if course.may_stop_inside else {}
        self._saver.append_report("formed", **place, **stops, **course.inside.report())
        self._began -= course.inside.spent_s

    def _reform_or_go(self) -> None:
        if self._group is None:
            return
        width = self._reachable_width()
        if width != self._course.width and self._saver.ensure_saved():
            if self._launched:
                self.start_anew()
            self._require_state(f"{count_noun(width, 'worker')} instead of {self._course.width}")
            self._form_group(width, load=False)
        else:
            self._go()

    def _go(self) -> None:
        if self._group is not None:
            self._group.go()

    @property
    def has_other_width(self) -> bool:
        """Whether other workers of a launcher are here than train, as the service wants it."""
        return bool(self._launched) and self._reachable_width() != self._course.width

    def start_anew(self) -> None:
        """With a launcher: begin again as the workers that are here now. Does not return."""
        width = self._reachable_width()
        self._start_anew(f"{self._course.width} -> {count_noun(width, 'worker')}")

    def _fall_back(self) -> None:
        """A worker is gone: all go back to the last checkpoint and do the rest again."""
        if self._launched:
            self._start_anew("a worker is gone")
        self._require_state("a worker is gone")
        self._course.epoch_over()
        newest = self._saver.find_newest()
        if newest is not None:
            self._course.load(newest)
        self._saver.forget_unsaved()
        self._form_group(self._reachable_width(), load=True)

    def _require_state(self, change: str) -> None:
        """BeginAnew where the workers change and none can take over what the others have trained."""
        course = self._course
        if not course.holds_state:
            course.termination.asked = True
            raise BeginAnew(f"{change}, and {course.no_state}: all workers begin again at epoch 1")

    # --- the end of a link, and being told to stop ---

    def _end_link_in_time(self) -> None:
        """Save and end this process where another epoch would not fit before its time limit."""
        link, course = self._course.link, self._course
        if link is None:
            return
        link.require_progress(course.done + bool(course.inside.step))
        if self._link_is_over():
            self._saver.ensure_saved()
            self._saver.require_saved()
            course.link_ended = True
            then = "the next one goes on"
            if not course.holds_state:
                then = f"{course.no_state}: the next one begins at epoch 1"
            say(f"link {link.number} ends in time after epoch {course.done}; {then}")
            raise LinkEnded(EXIT_UNFINISHED)

    def _link_is_over(self) -> bool:
        """Whether it has no time for as much as is trained between two places to stop at."""
        longest_s = self._longest_step_s if self._course.stops_anywhere else self._longest_s
        link = self._course.link
        if link is None or not longest_s:
            return False
        return not link.has_time_for(longest_s, self._saver.save_s)

    def park_while_told(self) -> None:
        """Save, say so and wait: for SIGTERM, which raises, or until the order is withdrawn.

        A stop that is told anew (by a service started again, or with the run that there is by now)
        is answered anew: who reads the log looks for what he has told last.
        """
        outbox = self._outbox
        if outbox is None or not outbox.signal.stop:
            return
        self._saver.ensure_saved()
        self._saver.require_saved()
        inside = {} if self._saver.error else self._course.inside.report()
        self._saver.append_report("parked", epoch=self._saver.safe_epoch, **inside)
        if self._tracker is not None:
            self._tracker.flush(at_most_s=0.0)
        waits = True
        while waits:
            generation = outbox.say_parked(self._saver.safe_epoch)
            while (now := outbox.wait_for_another(generation, at_most_s=LOOK_S)) is None:
                self._course.termination.check()
            waits = now.stop
        self._began = self._step_at = time.monotonic()
        self._report_formed()
