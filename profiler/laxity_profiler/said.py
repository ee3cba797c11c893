"""What a job's workers have said so far, folded line by line into one report.

Lines may come twice, out of order, or be nonsense; clocks may jump. Each line counts once (by its
`seq`), an older one never overwrites what a newer one said, and what cannot be believed is set
aside with a reason. Pure: the database is elsewhere (history.py).
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, Self, TypeGuard

from laxity_profiler.estimate import NO_PROGRESS, Progress
from laxity_profiler.traffic import Reading

EPOCHS_KEPT: Final = 20
LONGEST_S: Final = 1e8  # three years: no epoch and no stop takes so long
CLOCK_SLACK_S: Final = 5.0  # two clocks may differ by so much and still be believed
MOST_AHEAD: Final = 1_000  # lines beyond a gap; then the gap is given up
MOST_SKIPPED: Final = 1_000_000
MOST_READINGS: Final = 1_000
TEXT_LIMIT: Final = 8_000
RESULT_LIMIT: Final = 262_144
KINDS: Final = frozenset(
    {"started", "formed", "resumed", "read", "epoch", "saved", "parked", "finished", "failed"}
)


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


NOTHING_SAID: Final = Report()


@dataclass(frozen=True, slots=True)
class Epoch:
    """One epoch as it was trained. `nodes`: on so many its workers lay, None if nobody knows."""

    epoch: int
    width: int
    epoch_s: float
    bytes: int = 0
    warmup: bool = False
    at: float = 0.0
    nodes: int | None = None


@dataclass(frozen=True, slots=True)
class Stop:
    """One save, load, re-forming, suspend or resume; `bytes` of the checkpoint, if known."""

    kind: str
    workers: int
    seconds: float
    at: float
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class StopSeen:
    """One observed stop with the model it belongs to."""

    model: str
    kind: str
    workers: int
    seconds: float
    bytes: int | None
    at: float = 0.0


@dataclass(slots=True)
class Folded:
    """What new lines came to: rows to keep."""

    epochs: list[Epoch] = field(default_factory=list)
    stops: list[Stop] = field(default_factory=list)
    aside: list[tuple[str, str]] = field(default_factory=list)  # (reason, line)


class BeliefError(ValueError):
    """A field of a line cannot be true; the message says which and why."""


@dataclass(slots=True)
class Said:
    """The state of the folding. `acked`: every line up to this seq was taken."""

    acked: int = 0
    ahead: set[int] = field(default_factory=set)
    newest: int = 0
    first_at: float | None = None
    at: float = 0.0
    epochs_done: int = 0
    epoch_s: list[float] = field(default_factory=list)
    widths: list[int] = field(default_factory=list)
    epoch_started_at: float | None = None
    epoch_ended_at: float | None = None  # the latest
    formed: int = 0
    training: bool = False
    parked_epoch: int | None = None
    failed: str = ""
    result: Any = None
    reading: dict[str, Any] | None = None  # of the first epoch, until there is one

    def report(self) -> Report:
        return Report(
            Progress(self.epochs_done, tuple(self.epoch_s), tuple(self.widths)),
            self.at,
            self.epoch_started_at,
            self.formed,
            self.parked_epoch,
            self.failed,
            self.result,
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
        fields = json.loads(text) if text else {}
        return cls(**fields | {"ahead": set(fields.get("ahead", ()))})

    def fold(self, lines: Sequence[object], *, epochs: int, received_at: float) -> Folded:
        """Take the lines that are new. `epochs` is the job's total."""
        folded = Folded()
        for line in sorted(lines, key=_order):
            if not isinstance(line, Mapping) or not _is_count(line.get("seq")):
                folded.aside.append(
                    ("no seq from 1 up: it cannot be told from others", _short(line))
                )
            elif line["seq"] > max(self.acked, self.newest) + MOST_SKIPPED:
                folded.aside.append((f"seq jumps from {self.newest}", _short(line)))
            elif self._is_new(line):
                self._take(line, folded, epochs=epochs, received_at=received_at)
        return folded

    def _is_new(self, line: Mapping[str, Any]) -> bool:
        """Not taken before. A first line of another instant is a new outbox: the folder was lost."""
        seq = int(line["seq"])
        if seq == 1 and self.first_at is not None and line.get("at") != self.first_at:
            self.acked, self.ahead, self.newest = 0, set(), 0
        return seq > self.acked and seq not in self.ahead

    def _take(
        self, line: Mapping[str, Any], folded: Folded, *, epochs: int, received_at: float
    ) -> None:
        seq = int(line["seq"])
        if seq == 1:
            self.first_at = line["at"] if _is_number(line.get("at")) else None
        self._mark(seq, folded)
        at, doubt = self._instant(line.get("at"), received_at)
        if doubt:
            folded.aside.append((doubt, _short(line)))
        try:
            self._believe(line, folded, at=at, epochs=epochs)
        except BeliefError as error:
            folded.aside.append((str(error), _short(line)))
        if seq >= self.newest:
            self.newest, self.at = seq, at

    def _mark(self, seq: int, folded: Folded) -> None:
        if seq == self.acked + 1 and not self.ahead:
            self.acked = seq
            return
        self.ahead.add(seq)
        if len(self.ahead) > MOST_AHEAD:
            first = min(self.ahead)
            folded.aside.append((f"lines {self.acked + 1} to {first - 1} never came", ""))
            self.acked = first - 1
        while self.acked + 1 in self.ahead:
            self.acked += 1
            self.ahead.remove(self.acked)

    def _instant(self, said: object, received_at: float) -> tuple[float, str]:
        """When it happened, by a clock that does not go back and is not ahead of ours."""
        if not _is_number(said):
            return max(
                self.at, received_at
            ), f"at {_short(said, 40)} is no instant; the arrival counts"
        at = float(said)
        if at > received_at + CLOCK_SLACK_S:
            late = at - received_at
            return received_at, f"the worker's clock is {late:.0f} s ahead; the arrival counts"
        if at < self.at - CLOCK_SLACK_S:
            back = self.at - at
            return self.at, f"the worker's clock went back by {back:.0f} s; the line before counts"
        return max(at, self.at), ""

    def _believe(self, line: Mapping[str, Any], folded: Folded, *, at: float, epochs: int) -> None:
        kind = line.get("kind")
        current = int(line["seq"]) >= self.newest  # else something newer was said already
        if kind == "epoch":
            self._epoch(line, folded, at=at, epochs=epochs, current=current)
        elif kind in ("saved", "resumed"):
            self._moved(line, folded, at=at, current=current)
        elif kind == "formed":
            self._form(line, folded, at=at, current=current)
        elif kind == "read":
            self._read(line, current=current)
        elif kind not in KINDS:
            raise BeliefError(f"kind {_short(kind, 40)} is none that laxity knows")
        elif current:
            self._note(line)

    def _epoch(
        self, line: Mapping[str, Any], folded: Folded, *, at: float, epochs: int, current: bool
    ) -> None:
        epoch = _count(line, "epoch")
        if epoch > epochs:
            raise BeliefError(f"epoch {epoch} of {epochs}: beyond the total")
        if current:
            self.epochs_done, self.epoch_started_at, self.reading = epoch, at, None
            self.epoch_ended_at = at
            self.parked_epoch, self.failed, self.training = None, "", True
        width, seconds = _count(line, "width"), _seconds(line, "epoch_s")
        warmup = line.get("warmup") is True
        folded.epochs.append(Epoch(epoch, width, seconds, _bytes(line) or 0, warmup, at))
        if not current:
            return
        self.formed = width
        if not warmup:
            self.epoch_s = [*self.epoch_s, seconds][-EPOCHS_KEPT:]
            self.widths = [*self.widths, width][-EPOCHS_KEPT:]

    def _moved(self, line: Mapping[str, Any], folded: Folded, *, at: float, current: bool) -> None:
        """A checkpoint was written (`saved`) or read (`resumed`)."""
        resumed = line["kind"] == "resumed"
        if resumed and current:
            self.epochs_done = _count(line, "epoch", least=0)
            self.epoch_started_at, self.parked_epoch, self.failed = at, None, ""
        seconds = _seconds(line, "load_s" if resumed else "save_s", least=0.0)
        kind = "load" if resumed else "save"
        folded.stops.append(Stop(kind, max(1, self.formed), seconds, at, _bytes(line)))

    def _form(self, line: Mapping[str, Any], folded: Folded, *, at: float, current: bool) -> None:
        width = _count(line, "width")
        if not current:
            return
        if self.training and self.parked_epoch is None and width != self.formed:
            folded.stops.append(Stop("reform", width, max(0.0, at - self.at), at))
        self.formed, self.epochs_done = width, _count(line, "epoch", least=0)
        self.epoch_started_at, self.parked_epoch, self.failed = at, None, ""
        self.training = True

    def _read(self, line: Mapping[str, Any], *, current: bool) -> None:
        """What was read so far in an epoch; each line holds all of it."""
        seconds, read = line.get("read_s"), line.get("read_bytes")
        if not _grows(seconds, _is_number) or not _grows(read, _is_size, strictly=False):
            raise BeliefError("read_s and read_bytes are no lists of numbers that grow")
        if len(seconds) != len(read) or not 2 <= len(read) <= MOST_READINGS:
            raise BeliefError(f"{len(seconds)} seconds and {len(read)} readings do not go together")
        if current and not self.epochs_done:
            self.reading = {
                "width": _count(line, "width"),
                "read_s": seconds,
                "read_bytes": read,
                "by": _short(line.get("by"), 20).strip('"'),
                "file_bytes": line["file_bytes"] if _is_size(line.get("file_bytes")) else 0,
                "storage_bytes": (
                    line["storage_bytes"] if _is_size(line.get("storage_bytes")) else None
                ),
            }

    def _note(self, line: Mapping[str, Any]) -> None:
        """started, parked, finished, failed: nothing trains between these and the next `formed`."""
        kind = line["kind"]
        self.epoch_started_at, self.training = None, False
        if kind == "started":
            self.formed, self.parked_epoch, self.failed = 0, None, ""
        elif kind == "parked":
            self.parked_epoch = _count(line, "epoch", least=0)
            self.epochs_done = self.parked_epoch
        elif kind == "failed":
            self.failed = str(line.get("error") or "failed without saying why")[:TEXT_LIMIT]
        else:
            self.result = _json_value(line.get("result"))


def _order(line: object) -> int:
    seq = line.get("seq") if isinstance(line, Mapping) else None
    return seq if _is_count(seq) else 0


def _is_number(value: object) -> TypeGuard[float]:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return False
    return -1e300 < value < 1e300  # not NaN, and not without end


def _is_count(value: object, least: int = 1) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value < 2**31


def _is_size(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _grows(
    values: object, is_one: Callable[[object], bool], *, strictly: bool = True
) -> TypeGuard[list[Any]]:
    if not isinstance(values, list) or not all(is_one(value) for value in values):
        return False
    return all(b > a or (b == a and not strictly) for a, b in pairwise(values))


def _count(line: Mapping[str, Any], name: str, *, least: int = 1) -> int:
    value = line.get(name)
    if not _is_count(value, least):
        raise BeliefError(f"{name} {_short(value, 40)} is no whole number from {least} up")
    return value


def _seconds(line: Mapping[str, Any], name: str, *, least: float = 1e-9) -> float:
    value = line.get(name)
    if not _is_number(value) or not least <= value < LONGEST_S:
        raise BeliefError(f"{name} {_short(value, 40)} is no believable number of seconds")
    return float(value)


def _json_value(value: object) -> object:
    """A result that can be kept: JSON, and not without end."""
    try:
        size = len(json.dumps(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise BeliefError(f"the result is no JSON: {type(error).__name__}") from error
    if size > RESULT_LIMIT:
        raise BeliefError(f"the result has {size} characters; {RESULT_LIMIT} are kept at most")
    return value


def _bytes(line: Mapping[str, Any]) -> int | None:
    value = line.get("bytes")
    return int(value) if _is_number(value) and 0 <= value < 2**63 else None


def _short(line: object, limit: int = 500) -> str:
    """A line as text; one that is no JSON as Python shows it. Never fails."""
    try:
        text = json.dumps(line, default=str)
    except (TypeError, ValueError, RecursionError):
        text = f"a {type(line).__name__} that cannot be written"
    return text[:limit]
