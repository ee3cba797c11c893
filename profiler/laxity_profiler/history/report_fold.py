"""What a job's workers have said so far, folded line by line into one report.

Lines may come twice, out of order, or be nonsense; clocks may jump. Each line counts once (by its
`seq`), an older one never overwrites what a newer one said, and what cannot be believed is set
aside with a reason. Instants of the worker's clock are moved to ours (`behind_s`). Every number is
read with `laxity.parsing`, every text is one that a database takes, and a result is one that orjson
writes, as whoever shows it does. No line raises. Pure: the database is elsewhere (history.py).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, Self

from laxity.api.report_lines import REPORT_KINDS
from laxity.instants import LAST_AT
from laxity.parsing import finite_number
from laxity.safe_text import without_secrets
from laxity_profiler.estimate import NO_PROGRESS, Progress, Workload
from laxity_profiler.history.observations import Epoch, Stop
from laxity_profiler.history.report_values import (
    LONGEST_S,
    SHORTEST_S,
    InvalidReportError,
    bytes_in,
    clean_text,
    count_in,
    is_number,
    readable_result,
    reading_in,
    seconds_in,
    seq_of,
    share_in,
    shorten_line,
    sizes_in,
    text_of,
    width_in,
)
from laxity_profiler.model.traffic import Reading

EPOCHS_KEPT: Final = 20
CLOCK_SLACK_S: Final = 5.0  # two clocks may differ by so much and still be believed
LONGEST_STOP_S: Final = 21_600.0  # six hours: beyond, a clock was set or a machine slept
MOST_AHEAD: Final = 1_000  # lines beyond a gap; then the gap is given up
MOST_SKIPPED: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Report:
    """What a job's workers last said of themselves (zeros before they said anything)."""

    progress: Progress = NO_PROGRESS
    since: float = 0.0
    epoch_started_at: float | None = None
    formed: int = 0
    parked_epoch: int | None = None
    failed: str = ""
    result: Any = None
    epoch_ended_at: float | None = None
    finished: bool = False  # the training function has returned, and nothing has begun since
    started_at: float | None = None  # when worker 0 began, the last time
    silent_since: float | None = None  # its last line before that
    holds_state: bool | None = None  # whether a start goes on from the last one; None: nobody said
    furthest_epoch: int = 0  # however often it began anew
    advanced_at: float | None = None  # when that one ended
    finished_epochs: int | None = None  # trained when the function returned, if it said so
    saved_epoch: int | None = None  # where the newest state cannot be written: of the last one
    save_error: str = ""
    code_changed: str = ""  # files of the training code that are others than at its first start
    declared: tuple[tuple[str, int], ...] = ()  # sizes of its workload, as its code said them
    saved_part: float = 0.0  # of the next epoch, where it was saved inside; 0 while it trains
    stops_anywhere: bool = False  # it can save after any step

    def refine(self, workload: Workload) -> Workload:
        """The workload with what its code said of it."""
        return workload.refined(dict(self.declared)) if self.declared else workload


NO_REPORT: Final = Report()


@dataclass(slots=True)
class FoldResult:
    """What new lines came to: rows to keep."""

    epochs: list[Epoch] = field(default_factory=list)
    stops: list[Stop] = field(default_factory=list)
    rejected: list[tuple[str, str]] = field(default_factory=list)  # (reason, line)


@dataclass(slots=True)
class ReportState:
    """The state of the folding. `acked`: every line up to this seq was taken."""

    acked: int = 0
    ahead: set[int] = field(default_factory=set)
    newest: int = 0
    first_at: float | None = None
    at: float = 0.0
    epochs_done: int = 0
    epoch_s: list[float] = field(default_factory=list)
    widths: list[int] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)  # of the epochs that these are of
    epoch_started_at: float | None = None
    epoch_ended_at: float | None = None  # the latest
    formed: int = 0
    training: bool = False
    warms_up: bool = False  # the first epoch since the workers have formed
    parked_epoch: int | None = None
    failed: str = ""
    result: Any = None
    finished: bool = False
    started_at: float | None = None
    silent_since: float | None = None
    holds_state: bool | None = None
    furthest_epoch: int = 0
    advanced_at: float | None = None
    reading: dict[str, Any] | None = None  # of the first epoch, until there is one
    behind_s: float = 0.0  # how far the worker's clock is behind ours
    finishing_s: float | None = None  # from the last epoch to the result, as the worker timed it
    finished_at: float = 0.0
    finished_epochs: int | None = None
    judged: bool = False  # its number of epochs tells nothing of later runs
    saved_epoch: int | None = None
    save_error: str = ""
    code_changed: str = ""
    declared: dict[str, int] = field(default_factory=dict)
    saved_part: float = 0.0
    stops_anywhere: bool = False
    script: dict[str, Any] = field(default_factory=dict)  # laxity_profiler.history.script_posts
    gpu_type: str = ""  # of the GPUs that `epoch_s` was measured on

    def report(self) -> Report:
        epoch_s, widths = tuple(self.epoch_s), tuple(self.widths)
        done, numbers = self.epochs_done, tuple(self.numbers)
        return Report(
            Progress(done, epoch_s, widths, self.warms_up, numbers, self.gpu_type),
            self.at,
            self.epoch_started_at,
            self.formed,
            self.parked_epoch,
            self.failed,
            self.result,
            self.epoch_ended_at,
            self.finished,
            self.started_at,
            self.silent_since,
            self.holds_state,
            self.furthest_epoch,
            self.advanced_at,
            self.finished_epochs if self.finished else None,
            self.saved_epoch,
            self.save_error,
            self.code_changed,
            tuple(sorted(self.declared.items())),
            self.saved_part,
            self.stops_anywhere,
        )

    def first_reading(self) -> Reading | None:
        """What the first epoch has read so far, while it lasts."""
        if self.reading is None:
            return None
        lists = {name: tuple(self.reading[name]) for name in ("read_s", "read_bytes")}
        return Reading(**self.reading | lists)

    def to_json(self) -> str:
        fields = {name: getattr(self, name) for name in self.__slots__}
        return json.dumps(fields | {"ahead": sorted(self.ahead)}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """What `to_json` wrote, by any laxity; ValueError if nobody wrote that."""
        document = json.loads(text) if text else {}
        if not isinstance(document, dict):
            raise ValueError(f"{text[:80]!r} is no folded report")  # noqa: TRY004 - as bad JSON is
        values = {
            field.name: document[field.name] for field in fields(cls) if field.name in document
        }
        state = cls(**values | {"ahead": set(values.get("ahead", ()))})
        state.failed = clean_text(state.failed)
        state._keep_result(state.result)
        return state

    def fold(
        self,
        lines: Sequence[object],
        *,
        epochs: int,
        received_at: float,
        behind_s: float | None = None,
    ) -> FoldResult:
        """Take the lines that are new. `epochs` is the job's total; `behind_s` None: as before."""
        folded = FoldResult()
        if behind_s is not None:
            self._compare_clocks(behind_s, folded)
        for line in sorted(lines, key=seq_of):
            if not isinstance(line, Mapping) or not seq_of(line):
                folded.rejected.append(
                    ("no seq from 1 up: it cannot be told from others", shorten_line(line))
                )
            elif line["seq"] > max(self.acked, self.newest) + MOST_SKIPPED:
                folded.rejected.append((f"seq jumps from {self.newest}", shorten_line(line)))
            elif self._is_new(line):
                self._fold_line(line, folded, epochs=epochs, received_at=received_at)
        return folded

    def _compare_clocks(self, behind_s: float, folded: FoldResult) -> None:
        """Note how far the worker's clock is from ours, where that is no delay on the way."""
        behind_s = finite_number(behind_s) or 0.0
        behind_s = behind_s if abs(behind_s) > CLOCK_SLACK_S else 0.0
        if abs(behind_s - self.behind_s) > CLOCK_SLACK_S or not behind_s:
            self.behind_s = behind_s
            if behind_s:
                side = "behind" if behind_s > 0.0 else "ahead"
                reason = (
                    f"the worker's clock is {abs(behind_s):.0f} s {side}: its instants are moved"
                )
                folded.rejected.append((reason, ""))

    def _is_new(self, line: Mapping[str, Any]) -> bool:
        """Not taken before. A first line of another instant is a new outbox: the folder was lost."""
        seq = int(line["seq"])
        if seq == 1 and self.first_at is not None and line.get("at") != self.first_at:
            self.acked, self.ahead, self.newest = 0, set(), 0
        return seq > self.acked and seq not in self.ahead

    def _fold_line(
        self, line: Mapping[str, Any], folded: FoldResult, *, epochs: int, received_at: float
    ) -> None:
        seq = int(line["seq"])
        if seq == 1:
            self.first_at = line["at"] if is_number(line.get("at")) else None
        self._acknowledge_seq(seq, folded)
        event_at, doubt = self._event_time(line.get("at"), received_at)
        if doubt:
            folded.rejected.append((doubt, shorten_line(line)))
        try:
            total = self.declared.get("epochs", epochs)
            self._apply_line(line, folded, at=event_at, epochs=total)
        except InvalidReportError as error:
            folded.rejected.append((str(error), shorten_line(line)))
        if seq >= self.newest:
            self.newest, self.at = seq, event_at

    def _acknowledge_seq(self, seq: int, folded: FoldResult) -> None:
        if seq == self.acked + 1 and not self.ahead:
            self.acked = seq
            return
        self.ahead.add(seq)
        if len(self.ahead) > MOST_AHEAD:
            first = min(self.ahead)
            folded.rejected.append((f"lines {self.acked + 1} to {first - 1} never came", ""))
            self.acked = first - 1
        while self.acked + 1 in self.ahead:
            self.acked += 1
            self.ahead.remove(self.acked)

    def _event_time(self, value: object, received_at: float) -> tuple[float, str]:
        """When it happened by our clock: not in the future, and not before the line before."""
        event_at = finite_number(value, least=0.0, most=LAST_AT)
        if event_at is None:
            arrived = max(self.at, received_at)
            return arrived, f"at {shorten_line(value, 40)} is no instant; the arrival counts"
        event_at += self.behind_s
        if event_at > received_at + CLOCK_SLACK_S:
            late = event_at - received_at
            return received_at, f"the worker's clock is {late:.0f} s ahead; the arrival counts"
        if event_at < self.at - CLOCK_SLACK_S:
            back = self.at - event_at
            return self.at, f"the worker's clock went back by {back:.0f} s; the line before counts"
        return max(event_at, self.at), ""

    def _apply_line(
        self, line: Mapping[str, Any], folded: FoldResult, *, at: float, epochs: int
    ) -> None:
        kind = line.get("kind")
        current = int(line["seq"]) >= self.newest  # else something newer was said already
        if kind == "epoch":
            self._note_epoch(line, folded, at=at, epochs=epochs, current=current)
        elif kind in ("saved", "resumed"):
            self._note_checkpoint(line, folded, at=at, epochs=epochs, current=current)
        elif kind == "formed":
            self._note_formed(line, folded, at=at, epochs=epochs, current=current)
        elif kind == "read":
            self._note_reading(line, current=current)
        elif kind == "declared":
            self.declared = (self.declared | sizes_in(line)) if current else self.declared
        elif not isinstance(kind, str) or kind not in REPORT_KINDS:
            raise InvalidReportError(f"kind {shorten_line(kind, 40)} is none that laxity knows")
        elif current:
            self._note_state(line, folded, at=at, epochs=epochs)

    def _note_epoch(
        self, line: Mapping[str, Any], folded: FoldResult, *, at: float, epochs: int, current: bool
    ) -> None:
        epoch = count_in(line, "epoch")
        if epoch > epochs:
            raise InvalidReportError(f"epoch {epoch} of {epochs}: beyond the total")
        is_untrained = line.get("untrained") is True
        if current:
            self.epoch_started_at = self.epoch_ended_at = at
            self.epochs_done, self.failed, self.training = epoch, "", True
            self.warms_up, self.saved_part = self.warms_up and is_untrained, 0.0
            self.reading = self.parked_epoch = None
            self.holds_state = line.get("holds_state") is not False
            self.save_error = without_secrets(text_of(line.get("save_error")))
            self.saved_epoch = count_in(line, "saved_epoch", least=0) if self.save_error else None
            if epoch > self.furthest_epoch:
                self.furthest_epoch, self.advanced_at = epoch, at
        width, seconds = width_in(line), seconds_in(line, "epoch_s", least=SHORTEST_S)
        warmup = line.get("warmup") is True
        if not is_untrained:
            folded.epochs.append(Epoch(epoch, width, seconds, bytes_in(line) or 0, warmup, at))
        if current:
            self.formed = width
        if current and not warmup and not is_untrained:
            self.epoch_s = [*self.epoch_s, seconds][-EPOCHS_KEPT:]
            self.widths = [*self.widths, width][-EPOCHS_KEPT:]
            self.numbers = [*self.numbers, epoch][-EPOCHS_KEPT:]

    def _note_checkpoint(
        self, line: Mapping[str, Any], folded: FoldResult, *, at: float, epochs: int, current: bool
    ) -> None:
        """A checkpoint was written (`saved`) or read (`resumed`)."""
        resumed = line["kind"] == "resumed"
        if resumed and current:
            self.epochs_done = min(epochs, count_in(line, "epoch", least=0))
            self.epoch_started_at, self.parked_epoch, self.failed = at, None, ""
        if current:
            self.saved_epoch, self.save_error = None, ""
            self.saved_part = self.saved_part if resumed else share_in(line)
            self.code_changed = text_of(line.get("code_changed")) or self.code_changed
        seconds = seconds_in(line, "load_s" if resumed else "save_s")
        kind = "load" if resumed else "save"
        folded.stops.append(Stop(kind, max(1, self.formed), seconds, at, bytes_in(line)))

    def _note_formed(
        self, line: Mapping[str, Any], folded: FoldResult, *, at: float, epochs: int, current: bool
    ) -> None:
        width, done = width_in(line), min(epochs, count_in(line, "epoch", least=0))
        if not current:
            return
        took_s = max(0.0, at - self.at)
        reforms = self.training and self.parked_epoch is None and width != self.formed
        if reforms and took_s <= LONGEST_STOP_S:
            folded.stops.append(Stop("reform", width, took_s, at))
        self.formed, self.epochs_done = width, done
        spent_s = seconds_in(line, "spent_s") if "spent_s" in line else 0.0
        self.epoch_started_at, self.parked_epoch, self.failed = at - spent_s, None, ""
        self.saved_part, self.stops_anywhere = 0.0, line.get("stops") == "anywhere"
        self.training = self.warms_up = True

    def _note_reading(self, line: Mapping[str, Any], *, current: bool) -> None:
        """What was read so far in an epoch; each line holds all of it."""
        reading = reading_in(line)
        if current and not self.epochs_done:
            self.reading = {"width": width_in(line), **reading}

    def _note_state(
        self, line: Mapping[str, Any], folded: FoldResult, *, at: float, epochs: int
    ) -> None:
        """started, parked, stopped, finished, failed: nothing trains from these to the next `formed`."""
        kind = line["kind"]
        self.epoch_started_at, self.training, self.warms_up = None, False, False
        if kind == "finished" and not self.finished:  # a second one has what MLflow did not take
            self.finished_at = at
            self.finishing_s = finite_number(line.get("finishing_s"), least=0.0, most=LONGEST_S)
        self.finished = kind == "finished"
        if self.finished and "epochs_done" in line:
            self.finished_epochs = count_in(line, "epochs_done", least=0)
            self.judged = line.get("judged") is True
        if kind == "started":
            self.formed, self.parked_epoch, self.failed = 0, None, ""
            self.started_at, self.silent_since = at, self.at or None
            if self.holds_state is False:
                self.epochs_done = 0  # it begins anew
        elif kind == "parked":
            self.parked_epoch = min(epochs, count_in(line, "epoch", least=0))
            self.epochs_done, self.saved_part = self.parked_epoch, share_in(line)
        elif kind == "failed":
            self.failed = without_secrets(text_of(line.get("error"))) or "failed without saying why"
            self._keep_result(line.get("result"))
        elif kind == "stopped":
            return
        elif problem := self._keep_result(line.get("result")):
            folded.rejected.append((problem, shorten_line(line)))

    def _keep_result(self, result: object) -> str:
        """Why the result cannot be kept, "" if it is: the training is finished all the same."""
        self.result, problem = readable_result(result)
        self.failed = self.failed or problem
        return problem
