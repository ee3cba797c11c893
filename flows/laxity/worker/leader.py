"""Worker 0, or a training that runs alone: at each boundary it saves, reports and decides for all.

An epoch counts once it is saved or reported. The order at a boundary is: checkpoint (holding the
reports that are not on the disk yet), then the reports, then what the service wants. So a kill in
between neither loses nor doubles a report, and an epoch trained again is not reported again.
"""

import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from laxity.api.report_lines import ReportKind
from laxity.human_time import count_noun
from laxity.stderr import say
from laxity.worker import launcher
from laxity.worker.chain_link import EXIT_UNFINISHED, LinkEnded
from laxity.worker.checkpoint import Checkpoint
from laxity.worker.checkpoint_contents import NOTE
from laxity.worker.group.membership import GroupServer
from laxity.worker.mlflow_tracking import EpochMetrics, Tracker, finite_numbers
from laxity.worker.reports import Line, ReportChannel
from laxity.worker.sigterm import BeginAnew, Superseded
from laxity.worker.training_state import TrainingState

if TYPE_CHECKING:
    from numpy.typing import NDArray

FIRST_ANSWER_S: Final = 10.0
FIRST_FORM_S: Final = 60.0
FREE_SAVE_S: Final = 0.05  # so short a save never waits
SNAPSHOT_BYTES: Final = 256 << 20  # larger states are not kept in memory between saves
LOOK_S: Final = 3600.0
NO_STATE: Final = "nothing was given to training.restore()"
STOP_LOSES_ALL: Final = (
    f"{NO_STATE}: a stop loses all epochs, and the next start begins at epoch 1. Give it the model "
    "and the optimizer, or declare resumes=True if your code keeps its own state in training.folder"
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
        self._began = 0.0  # the epoch in flight, with the saving before it, monotonic
        self._saved_epoch = -1  # of the newest checkpoint
        self._saved_at = 0.0
        self._save_s = 0.0
        self._saved_bytes = 0
        self._unsaved: bytes | None = None  # the state at the last boundary, if it was not saved
        self._longest_s = 0.0  # of the epochs of this process
        self._records: list[Line] = []  # epoch lines since the last checkpoint
        self._launched = 0  # workers that began together, with a launcher
        self._warned = False  # that a stop loses all

    @property
    def void(self) -> bool:
        return self._group is not None and self._group.void

    def launch(self) -> bool:
        """With a launcher: meet the other workers, before the function is called."""
        assignment, group = self._course.assignment, self._group
        self._gather_workers()
        self._launched, port = self._reachable_width(), launcher.free_port()
        host = assignment.host or "127.0.0.1"
        if group is not None:
            group.launch(self._launched, host=host, port=port)
        launcher.set_variables(
            rank=0, width=self._launched, host=host, port=port, run=assignment.training
        )
        return True

    def begin(self) -> bool:
        """Load, form, and be ready for the next epoch; False if all epochs are done."""
        course = self._course
        newest = self._newest_checkpoint()
        if newest is not None and course.loaded != newest.epoch:
            course.load(newest)
        if newest is not None:
            course.check_complete(newest)
            if self._outbox is not None:
                self._outbox.append_missing(newest.note.get("records", ()))
        else:
            self._forget_earlier_starts()
        self._track(self._outbox.lines("epoch") if self._outbox is not None else ())
        if self._is_over():
            return False
        self._end_link_in_time()
        self._form_first()
        if newest is not None:
            self._append_report("resumed", epoch=course.done, load_s=course.load_s or 0.0)
        self._park_while_told()
        self._watch_reading()
        return True

    def _forget_earlier_starts(self) -> None:
        """No checkpoint holds what they have trained: this one trains all of it again."""
        if self._course.checkpoints is not None:
            self._course.checkpoints.drop_finished()
        lost = self._outbox.last_epoch if self._outbox is not None else 0
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
            self._complete_epoch(others_read)
            if self._is_over():
                return False
            self._end_link_in_time()
            self._park_while_told()
            self._reform_or_go()
        return True

    def _leave_to_another(self) -> None:
        if self._group is not None and self._group.is_superseded():
            self._unsaved, self._course.termination.asked = None, True
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
            say(f"{count_noun(course.done, 'epoch')} of this process are lost: {NO_STATE}")
        superseded = self._group is not None and self._group.is_superseded()
        if self._unsaved is not None and not superseded:
            self._save_checkpoint(self._unsaved)

    def end(self) -> None:
        """The training function is done: nobody need wait for another epoch."""
        if self._group is not None:
            self._group.end()
            self._group = None

    def _is_over(self) -> bool:
        if self._course.done < self._course.total:
            return False
        self._ensure_saved()
        if self._course.link is not None:
            self._course.link.note_trained()
        self.end()
        return True

    # --- completing an epoch ---

    def _complete_epoch(self, others_read: int) -> None:
        course = self._course
        now = time.monotonic()
        epoch_s, self._began = now - self._began, now
        if self._outbox is not None:
            self._outbox.epoch_ended = now
        self._longest_s = max(self._longest_s, epoch_s)
        ended = course.epoch_over()
        line = {
            "kind": "epoch",
            "at": time.time(),
            "epoch": course.done + 1,
            "epoch_s": epoch_s,
            "width": course.width,
            "bytes": ended["bytes"] + others_read,
            "warmup": course.warmup,
            "metrics": finite_numbers(ended["metrics"]),
        }
        with course.termination.defer():
            course.last |= ended["metrics"]
            course.done += 1
            course.warmup = False
            self._note_stateless(line)
            if self._outbox is not None and course.done <= self._outbox.furthest_epoch:
                line["again"] = True
            if self._outbox is None or self._outbox.last_epoch < course.done:
                self._records.append(line)
            self._save_if_due()
            self._send_records()

    def _note_stateless(self, line: Line) -> None:
        """Report with each epoch that a stop loses it, and say so once."""
        course = self._course
        if course.holds_state or course.checkpoints is None:
            return
        line["holds_state"] = False
        if not self._warned and course.done < course.total:
            self._warned = True
            say(STOP_LOSES_ALL)

    def _save_if_due(self) -> None:
        """Every epoch, unless saving would cost more than its share; always after the last one."""
        if not self._saves:
            return
        share = self._course.assignment.saving_share
        pause_s = self._save_s * (1 / share - 1) if self._save_s > FREE_SAVE_S else 0.0
        last = self._course.done >= self._course.total
        if last or time.monotonic() - self._saved_at >= pause_s:
            self._save_checkpoint()
        elif self._course.states.save is None and self._saved_bytes < SNAPSHOT_BYTES:
            self._unsaved = self._course.states.pack()

    def _send_records(self) -> None:
        records, self._records = self._records, []
        if self._outbox is not None and records:
            self._outbox.append_all(records)
        self._track(records)

    def _track(self, lines: Sequence[Line]) -> None:
        """Log these epochs to MLflow, each once: not what is trained again."""
        if self._tracker is not None:
            self._tracker.add([EpochMetrics.of(line) for line in lines if not line.get("again")])

    # --- saving and loading ---

    @property
    def _saves(self) -> bool:
        """Whether a checkpoint is of use: one of the untrained state shows others what is given."""
        course = self._course
        return course.checkpoints is not None and (course.holds_state or not course.done)

    def _newest_checkpoint(self) -> Checkpoint | None:
        if self._course.checkpoints is None:
            return None
        self._course.checkpoints.sweep()
        newest = self._course.newest_checkpoint()
        self._saved_epoch = newest.epoch if newest else -1
        return newest

    def _ensure_saved(self) -> None:
        if self._saves and self._saved_epoch != self._course.done:
            self._save_checkpoint()

    def _save_checkpoint(self, packed: bytes | None = None) -> None:
        """Write a checkpoint of the last boundary, from the objects or from bytes kept of them."""
        course = self._course
        if course.checkpoints is None:
            return
        began = time.monotonic()
        fill = partial(course.states.fill, packed=packed)
        contents = course.states.contents.to_json()
        note = {"records": self._records, "last": finite_numbers(course.last), NOTE: contents}
        with course.termination.defer():
            written = course.checkpoints.write(course.done, fill=fill, note=note)
            self._saved_at = time.monotonic()
            self._save_s = self._saved_at - began
            self._saved_epoch, self._saved_bytes, self._unsaved = course.done, written, None
            self._send_records()
            self._append_report("saved", epoch=course.done, save_s=self._save_s, bytes=written)

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
        if width > 1:
            self._ensure_saved()
        if self._group is not None:
            self._group.form(width, epoch=course.done, load=load)
        course.set_width(width, formation=self._group.round if self._group else "")
        self._append_report("formed", width=width, epoch=course.done)
        self._began = time.monotonic()

    def _reform_or_go(self) -> None:
        if self._group is None:
            return
        width = self._reachable_width()
        if width != self._course.width:
            if self._launched:
                self._ensure_saved()
                self._start_anew(f"{self._course.width} -> {count_noun(width, 'worker')}")
            self._require_state(f"{count_noun(width, 'worker')} instead of {self._course.width}")
            self._form_group(width, load=False)
        else:
            self._group.go()

    def _fall_back(self) -> None:
        """A worker is gone: all go back to the last checkpoint and do the rest again."""
        if self._launched:
            self._start_anew("a worker is gone")
        self._require_state("a worker is gone")
        self._course.epoch_over()
        newest = self._newest_checkpoint()
        if newest is not None:
            self._course.load(newest)
        self._unsaved = None
        self._form_group(self._reachable_width(), load=True)

    def _require_state(self, change: str) -> None:
        """BeginAnew where the workers change and none can take over what the others have trained."""
        course = self._course
        if not course.holds_state:
            course.termination.asked = True
            raise BeginAnew(f"{change}, and {NO_STATE}: all workers begin again at epoch 1")

    # --- the end of a link, and being told to stop ---

    def _end_link_in_time(self) -> None:
        """Save and end this process where another epoch would not fit before its time limit."""
        link, course = self._course.link, self._course
        if link is None:
            return
        link.require_progress(course.done)
        if self._longest_s and not link.has_time_for(self._longest_s, self._save_s):
            self._ensure_saved()
            course.link_ended = True
            then = "the next one goes on"
            if not course.holds_state:
                then = f"{NO_STATE}: the next one begins at epoch 1"
            say(f"link {link.number} ends in time after epoch {course.done}; {then}")
            raise LinkEnded(EXIT_UNFINISHED)

    def _park_while_told(self) -> None:
        """Save, say so and wait: for SIGTERM, which raises, or until the order is withdrawn.

        A stop that is told anew (by a service started again, or with the run that there is by now)
        is answered anew: who reads the log looks for what he has told last.
        """
        outbox = self._outbox
        if outbox is None or not outbox.signal.stop:
            return
        self._ensure_saved()
        self._append_report("parked", epoch=self._course.done)
        if self._tracker is not None:
            self._tracker.flush(at_most_s=0.0)
        waits = True
        while waits:
            generation = outbox.say_parked(self._course.done)
            while (now := outbox.wait_for_another(generation, at_most_s=LOOK_S)) is None:
                self._course.termination.check()
            waits = now.stop
        self._append_report("formed", width=self._course.width, epoch=self._course.done)
        self._began = time.monotonic()

    def _append_report(self, kind: ReportKind, **fields: Any) -> None:
        if self._outbox is not None:
            with self._course.termination.defer():
                self._outbox.append(kind, **fields)
