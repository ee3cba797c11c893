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
from laxity.worker.reports import ReportChannel, ReportLine
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
        state: TrainingState,
        *,
        group: GroupServer | None = None,
        reports: ReportChannel | None = None,
        tracker: Tracker | None = None,
    ) -> None:
        self._state = state
        self._group = group
        self._reports = reports
        self._tracker = tracker
        self._saver = Saver(state, reports=reports, tracker=tracker)
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
        environment, group = self._state.environment, self._group
        self._gather_workers()
        self._launched = self._state.width = self._reachable_width()
        host, port = environment.host or "127.0.0.1", launcher.free_port()
        if group is not None:
            group.launch(self._launched, host=host, port=port)
        launcher.set_variables(
            rank=0, width=self._launched, host=host, port=port, run=environment.training
        )
        return True

    def begin(self) -> bool:
        """Load, form, and be ready for the next epoch; False if all epochs are done."""
        state = self._state
        newest = self._saver.find_newest()
        if newest is not None and state.loaded != newest.epoch:
            state.load(newest)
        if newest is not None:
            state.check_complete(newest)
            if self._reports is not None:
                self._reports.append_missing(newest.note.get("records", ()))
        else:
            self._forget_earlier_starts()
        self._saver.track(self._reports.lines("epoch") if self._reports is not None else [])
        if self._is_over():
            return False
        self._end_link_in_time()
        self._form_first()
        if newest is not None:
            load_s, files = state.load_s or 0.0, tell_changed_files(state.environment.folder)
            self._saver.append_report(
                "resumed", epoch=state.done, load_s=load_s, code_changed=files
            )
        self.park_while_told()
        self._watch_reading()
        return True

    def _forget_earlier_starts(self) -> None:
        """No checkpoint holds what they have trained: this one trains all of it again."""
        if self._state.environment.folder is not None:
            note_code(self._state.environment.folder)
        if self._state.checkpoints is not None:
            self._state.checkpoints.drop_finished()
        self._state.lost = lost = self._reports.last_epoch if self._reports is not None else 0
        if lost:
            epochs = count_noun(lost, "epoch")
            say(f"it begins at epoch 1: no checkpoint holds the {epochs} of an earlier start")

    def boundary(self) -> bool:
        """An epoch is done; False if it was the last one. Superseded: it does not count here."""
        self._leave_to_another()
        if self._state.meter is not None:
            self._state.meter.end()
        others_read = self._group.gather_boundary() if self._group else 0
        if self.void:
            self._fall_back()
        else:
            is_dated = self._state.ended_at is not None
            self._complete_epoch(others_read, now=self._state.ended_at or time.monotonic())
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
        state, now = self._state, time.monotonic()
        since = max(self._step_at, self._began)
        self._longest_step_s, self._step_at = max(self._longest_step_s, now - since), now
        is_told = self._reports is not None and self._reports.signal.stop
        is_ordered = is_told or state.termination.asked or self._link_is_over()
        if not (is_ordered and state.may_stop_inside):
            return
        self._leave_to_another()
        state.inside = Inside(step, step / steps, now - self._began)
        with state.termination.take_over():
            self._end_link_in_time()
            if not is_told:
                self._saver.ensure_saved()
                self._saver.require_saved()
            self.park_while_told()
            state.termination.check()

    def _leave_to_another(self) -> None:
        if self._group is not None and self._group.is_superseded():
            self._saver.forget_unsaved()
            self._state.termination.asked = True
            raise Superseded("another worker 0 of this job has begun: this one leaves")

    def _watch_reading(self) -> None:
        """The first epoch is told of while it reads; later ones are known by those before."""
        meter, reports, state = self._state.meter, self._reports, self._state
        if meter is None or reports is None or state.done > 0:
            return
        now = {"epoch": 1, "width": state.width}
        meter.watch(lambda fields: reports.append("read", **now, **fields))

    def average(
        self, arrays: "Sequence[NDArray[Any]]", names: Sequence[str], weight: float
    ) -> "Sequence[NDArray[Any]] | None":
        """The means over all workers; alone, the arrays themselves."""
        if self._group is None or self._state.width == 1:
            return None
        return self._group.average(arrays, names, weight)

    def anyone_gone(self) -> bool:
        return self._group is not None and self._group.anyone_gone()

    def on_sigterm(self) -> None:
        """SIGTERM: what was trained since the last checkpoint is saved, up to the last boundary."""
        state = self._state
        if state.done and state.checkpoints is not None and not state.holds_state:
            say(f"{count_noun(state.done, 'epoch')} of this process are lost: {state.no_state}")
        superseded = self._group is not None and self._group.is_superseded()
        if not superseded:
            self._saver.save_unsaved()
            self._saver.require_saved()

    def end(self) -> None:
        """No epoch is left, or the training function is done: nobody need wait for another."""
        if self._state.left_early:
            self._saver.save_unsaved()
        if self._state.link is not None and self._state.is_done:
            self._state.link.note_trained()
        if self._group is not None:
            self._group.end()
            self._group = None

    def end_early(self, left_at: float) -> None:
        """Count the epoch in which the loop was left, at this monotonic time, and save it."""
        state = self._state
        self._leave_to_another()
        if state.meter is not None:
            state.meter.end()
        try:
            self._complete_epoch(0, now=left_at)
            self._saver.ensure_saved()
        except Exception as error:  # noqa: BLE001 - a save of the user's; the training is done
            say(f"epoch {state.done} counts, but its state was not saved: {error}")
            self._saver.send_records()

    def _is_over(self) -> bool:
        if not self._state.is_done:
            return False
        self._saver.ensure_saved()
        self.end()
        return True

    # --- completing an epoch ---

    def _complete_epoch(self, others_read: int, *, now: float) -> None:
        state = self._state
        epoch_s, self._began = now - self._began, now
        self._longest_s = max(self._longest_s, epoch_s)
        ended = state.epoch_over()
        if self._reports is not None:
            self._reports.epoch_ended = None if ended["untrained"] else now
        line = {
            "kind": "epoch",
            "at": instant_of(now),
            "epoch": state.done + 1,
            "epoch_s": epoch_s,
            "width": state.width,
            "bytes": ended["bytes"] + others_read,
            "warmup": state.warmup,
            **({"untrained": True} if ended["untrained"] else {}),
            "metrics": finite_numbers(ended["metrics"]),
        }
        with state.termination.defer():
            state.last |= ended["metrics"]
            state.done += 1
            state.warmup = state.warmup and ended["untrained"]
            self._note_stateless(line)
            self._saver.complete_epoch(line)
        if state.judge is not None and not state.left_early:
            state.left_early = state.judge(state.done, ended["metrics"], epoch_s)

    def _note_stateless(self, line: ReportLine) -> None:
        """Report with each epoch that a stop loses it, and say so once."""
        state = self._state
        if state.holds_state or state.checkpoints is None:
            return
        line["holds_state"] = False
        if not self._warned and state.done < state.total:
            self._warned = True
            say(STOP_LOSES_ALL.format(state))

    # --- the group ---

    def _target_width(self) -> int:
        """How many workers there should be: what the service says, else all that are here."""
        width = self._reports.signal.workers if self._reports is not None else None
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
        if self._reports is not None:
            self._reports.first_answer(at_most_s=FIRST_ANSWER_S)
        if self._group is not None:
            self._group.wait_for(self._target_width, at_most_s=FIRST_FORM_S)

    def _start_anew(self, why: str) -> None:
        """With a launcher a group of another width is one of other processes."""
        if self._group is not None:
            self._group.disband()
        launcher.start_anew(why)

    def _form_group(self, width: int, *, load: bool) -> None:
        """With others there must be a checkpoint to start from, the untrained state included."""
        state = self._state
        if width > 1 and not self._saver.ensure_saved():
            raise CheckpointNotWrittenError(self._saver.error)
        if self._group is not None:
            self._group.form(width, epoch=state.done, load=load)
        state.set_width(width, formation=self._group.round if self._group else "")
        self._began, state.began_at = state.began_at or time.monotonic(), None
        self._report_formed()

    def _report_formed(self) -> None:
        """The workers train from `_began` on. Steps that are done count as trained before it."""
        state = self._state
        place = {"width": state.width, "epoch": state.done, "at": instant_of(self._began)}
        stops = {"stops": "anywhere"} if state.may_stop_inside else {}
        self._saver.append_report("formed", **place, **stops, **state.inside.report())
        self._began -= state.inside.spent_s

    def _reform_or_go(self) -> None:
        if self._group is None:
            return
        width = self._reachable_width()
        if width != self._state.width and self._saver.ensure_saved():
            if self._launched:
                self.start_anew()
            self._require_state(f"{count_noun(width, 'worker')} instead of {self._state.width}")
            self._form_group(width, load=False)
        else:
            self._go()

    def _go(self) -> None:
        if self._group is not None:
            self._group.go()

    @property
    def has_other_width(self) -> bool:
        """Whether other workers of a launcher are here than train, as the service wants it."""
        return bool(self._launched) and self._reachable_width() != self._state.width

    def start_anew(self) -> None:
        """With a launcher: begin again as the workers that are here now. Does not return."""
        width = self._reachable_width()
        self._start_anew(f"{self._state.width} -> {count_noun(width, 'worker')}")

    def _fall_back(self) -> None:
        """A worker is gone: all go back to the last checkpoint and do the rest again."""
        if self._launched:
            self._start_anew("a worker is gone")
        self._require_state("a worker is gone")
        self._state.epoch_over()
        newest = self._saver.find_newest()
        if newest is not None:
            self._state.load(newest)
        self._saver.forget_unsaved()
        self._form_group(self._reachable_width(), load=True)

    def _require_state(self, change: str) -> None:
        """BeginAnew where the workers change and none can take over what the others have trained."""
        state = self._state
        if not state.holds_state:
            state.termination.asked = True
            raise BeginAnew(f"{change}, and {state.no_state}: all workers begin again at epoch 1")

    # --- the end of a link, and being told to stop ---

    def _end_link_in_time(self) -> None:
        """Save and end this process where another epoch would not fit before its time limit."""
        link, state = self._state.link, self._state
        if link is None:
            return
        link.require_progress(state.done + bool(state.inside.step))
        if self._link_is_over():
            self._saver.ensure_saved()
            self._saver.require_saved()
            state.link_ended = True
            then = "the next one goes on"
            if not state.holds_state:
                then = f"{state.no_state}: the next one begins at epoch 1"
            say(f"link {link.number} ends in time after epoch {state.done}; {then}")
            raise LinkEnded(EXIT_UNFINISHED)

    def _link_is_over(self) -> bool:
        """Whether it has no time for as much as is trained between two places to stop at."""
        longest_s = self._longest_step_s if self._state.stops_anywhere else self._longest_s
        link = self._state.link
        if link is None or not longest_s:
            return False
        return not link.has_time_for(longest_s, self._saver.save_s)

    def park_while_told(self) -> None:
        """Save, say so and wait: for SIGTERM, which raises, or until the order is withdrawn.

        A stop that is told anew (by a service started again, or with the run that there is by now)
        is answered anew: who reads the log looks for what he has told last.
        """
        reports = self._reports
        if reports is None or not reports.signal.stop:
            return
        self._saver.ensure_saved()
        self._saver.require_saved()
        inside = {} if self._saver.error else self._state.inside.report()
        self._saver.append_report("parked", epoch=self._saver.safe_epoch, **inside)
        if self._tracker is not None:
            self._tracker.flush(at_most_s=0.0)
        waits = True
        while waits:
            generation = reports.say_parked(self._saver.safe_epoch)
            while (now := reports.wait_for_another(generation, at_most_s=LOOK_S)) is None:
                self._state.termination.check()
            waits = now.stop
        self._began = self._step_at = time.monotonic()
        self._report_formed()
