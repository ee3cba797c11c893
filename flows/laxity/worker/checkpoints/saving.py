"""What a training keeps at a boundary: its checkpoint, and the epoch lines that are not on the disk yet.

A checkpoint holds the reports since the one before. So a kill between checkpoint and reports neither
loses nor doubles an epoch.
"""

import time
from dataclasses import asdict
from functools import partial
from typing import Any, Final

from laxity.api.report_lines import ReportKind
from laxity.stderr import say
from laxity.worker.checkpoints.checkpoint import Checkpoint, CheckpointNotWrittenError
from laxity.worker.checkpoints.checkpoint_contents import NOTE
from laxity.worker.checkpoints.training_state import TrainingState
from laxity.worker.mlflow_tracking import EpochMetrics, Tracker, finite_numbers
from laxity.worker.reports import ReportChannel, ReportLine

FREE_SAVE_S: Final = 0.05  # so short a save never waits
SNAPSHOT_BYTES: Final = 256 << 20  # larger states are not kept in memory between saves


class Saver:
    """Writes checkpoints and reports of worker 0. Each part may be missing."""

    def __init__(
        self, state: TrainingState, *, reports: ReportChannel | None, tracker: Tracker | None
    ) -> None:
        self.error = ""  # why the state of the last boundary could not be written
        self.epoch, self._step = -1, 0  # of the newest checkpoint
        self.save_s = 0.0  # that the last one took
        self._state = state
        self._reports = reports
        self._tracker = tracker
        self._saved_at = 0.0
        self._saved_bytes = 0
        self._unsaved: bytes | None = None  # the state at the last boundary, if it was not saved
        self._records: list[ReportLine] = []  # epoch lines since the last checkpoint

    @property
    def safe_epoch(self) -> int:
        """The epoch that the next start goes on after."""
        return self.epoch if self.error else self._state.done

    def find_newest(self) -> Checkpoint | None:
        """The newest checkpoint that a start can go on from; remains of others are removed."""
        if self._state.checkpoints is None:
            return None
        self._state.checkpoints.sweep()
        newest = self._state.newest_checkpoint()
        self.epoch = newest.epoch if newest else -1
        self._step = newest.step if newest else 0
        return newest

    def complete_epoch(self, line: ReportLine) -> None:
        """Save the epoch of this line if it is time to, and report it."""
        if self._reports is not None and self._state.done <= self._reports.furthest_epoch:
            line["again"] = True
        if self._reports is None or self._reports.last_epoch < self._state.done:
            self._records.append(line)
        self._save_if_due()
        if self.error:
            line |= {"saved_epoch": max(0, self.epoch), "save_error": self.error}
        self.send_records()

    def _save_if_due(self) -> None:
        """Every epoch, unless saving would cost more than its share; always after the last one."""
        if not self._is_of_use:
            return
        share = self._state.environment.saving_share
        pause_s = self.save_s * (1 / share - 1) if self.save_s > FREE_SAVE_S else 0.0
        last = self._state.done >= self._state.total
        if last or self.error or time.monotonic() - self._saved_at >= pause_s:
            self._save()
        else:
            self._unsaved = self._keep_in_memory()

    def ensure_saved(self) -> bool:
        """Save what the last boundary left unsaved; whether all of it is saved."""
        state = self._state
        if self._is_of_use and (self.epoch, self._step) != (state.done, state.inside.step):
            self._save()
        return not self.error

    def save_unsaved(self) -> None:
        """Save the last boundary as it was, where an epoch is in flight."""
        if self._unsaved is not None:
            self._save(self._unsaved)

    def require_saved(self) -> None:
        """Told to stop: go with what is saved. CheckpointNotWrittenError where nothing is."""
        if not self.error:
            return
        if self.epoch < 0:
            raise CheckpointNotWrittenError(self.error)
        say(f"it stops, and the next start begins after epoch {self.epoch}")

    def forget_unsaved(self) -> None:
        """What was not saved is given up: it is trained again, or by another process."""
        self._unsaved, self.error = None, ""

    def send_records(self) -> None:
        """Report the epochs since the last checkpoint."""
        records, self._records = self._records, []
        if self._reports is not None and records:
            self._reports.append_all(records)
        self.track(records)

    def track(self, lines: list[ReportLine]) -> None:
        """Log these epochs to MLflow, each once: not what is trained again."""
        if self._tracker is not None:
            self._tracker.add([EpochMetrics.of(line) for line in lines if not line.get("again")])

    def append_report(self, kind: ReportKind, **fields: Any) -> None:
        """Report something else; a SIGTERM meanwhile waits."""
        if self._reports is not None:
            with self._state.termination.defer():
                self._reports.append(kind, **fields)

    @property
    def _is_of_use(self) -> bool:
        """Whether a checkpoint is: one of the untrained state shows others what is given."""
        state = self._state
        is_first = not state.done and not state.inside.step
        return state.checkpoints is not None and (state.holds_state or is_first)

    def _save(self, packed: bytes | None = None) -> None:
        """Write a checkpoint of the last boundary, from the objects or from bytes kept of them.

        What the file system does not take now is tried again at the next boundary.
        """
        try:
            self._write(packed)
        except CheckpointNotWrittenError as error:
            if not self.error:
                say(f"{error}; the training goes on, and tries again at each boundary")
            self.error = str(error)
            self._unsaved = packed or self._keep_in_memory()
        else:
            self.error = ""

    def _keep_in_memory(self) -> bytes | None:
        """The state, where that is small."""
        states = self._state.states
        small = states.save is None and self._saved_bytes < SNAPSHOT_BYTES
        return states.pack() if small else None

    def _write(self, packed: bytes | None) -> None:
        state, inside = self._state, self._state.inside
        if state.checkpoints is None:
            return
        began = time.monotonic()
        fill = partial(state.states.fill, packed=packed)
        contents = state.states.contents.to_json()
        note = {"records": self._records, "last": finite_numbers(state.last), NOTE: contents}
        if inside.step:
            note |= {"inside": asdict(inside), "metrics": finite_numbers(state.metrics)}
        with state.termination.defer():
            written = state.checkpoints.write(state.done, fill=fill, note=note, step=inside.step)
            self._saved_at = time.monotonic()
            self.save_s = self._saved_at - began
            self.epoch, self._saved_bytes, self._unsaved = state.done, written, None
            self._step = inside.step
            self.send_records()
            line = {"epoch": state.done, "save_s": self.save_s, "bytes": written}
            self.append_report("saved", **line, **inside.report())
