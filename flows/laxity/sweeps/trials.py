"""The trials of a sweep: where their parameters come from and where their outcomes go.

A study of Optuna is one source (laxity.sweeps.optuna_study), a grid of parameters the other.
"""

import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal, Protocol

from laxity.api.client import home_folder
from laxity.durable_files import replace_file
from laxity.flow.signature import bind_arguments
from laxity.human_time import format_seconds
from laxity.job.parameters import to_json
from laxity.job.qos import QoSError
from laxity.private_files import private_folder
from laxity.worker.trial import TrialTerms

MOST_TRIALS: Final = 1_000
NOT_STARTED: Final = "not started"  # how the note of a trial begins that had no job
Outcome = Literal["complete", "pruned", "failed", "running"]
Direction = Literal["minimize", "maximize"]


@dataclass(frozen=True, slots=True)
class SweepTrial:
    """One trial. `value` is its objective, None while it has none; `note` says why it ended.

    `share` of its epochs that it has trained; `took_s` from its job's submission to its end.
    """

    number: int
    parameters: Mapping[str, Any] = field(default_factory=dict)
    outcome: Outcome = "running"
    value: float | None = None
    note: str = ""
    job: str = ""
    share: float = 0.0
    took_s: float | None = None

    def to_text(self) -> str:
        value = "-" if self.value is None else f"{self.value:.6g}"
        parameters = ", ".join(f"{name}={_short(value)}" for name, value in self.parameters.items())
        took = format_seconds(self.took_s)
        return f"{self.number:>5}  {self.note or self.outcome:<28}  {value:>12}  {took:>8}  {parameters}"


@dataclass(frozen=True, slots=True)
class SweepRecord:
    """What outlasts the client: `uid` begins the keys of the trials' jobs, `first` is their first number.

    `deadline` is as it was declared: the same one after a restart means the same instant.
    """

    uid: str
    deadline: str
    deadline_at: float
    first: int = 0
    is_over: bool = False

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "SweepRecord | None":
        """What `to_json` wrote; None if it is something else."""
        try:
            return cls(**json.loads(text))
        except (TypeError, ValueError):
            return None

    def goes_on(self, now: float) -> bool:
        """Whether a client that comes back goes on with it."""
        return not self.is_over and now < self.deadline_at


class Trials(Protocol):
    """Asked and told by one client at a time."""

    name: str
    direction: Direction
    is_exhausted: bool  # nothing is left to try

    def read_record(self) -> SweepRecord | None:
        """That of the latest sweep over these trials."""

    def write_record(self, record: SweepRecord) -> None: ...

    def count_all(self) -> int:
        """Trials that there are before a new sweep."""
        ...

    def close(self) -> None:
        """The sweep is over, or its client ends."""

    def ask(self) -> SweepTrial | None:
        """Begin the next one; None if there is none, or none yet."""

    def terms(self, trial: SweepTrial, until: float) -> TrialTerms:
        """What its worker needs to know."""
        ...

    def note_job(self, trial: SweepTrial, job: str) -> None:
        """Keep which job will train it."""

    def tell(self, trial: SweepTrial) -> None:
        """Keep how it ended."""

    def begun(self) -> Sequence[SweepTrial]:
        """All of this sweep that have begun, those that have ended included."""
        ...


class GridTrials:
    """Each combination of the values of some parameters. Its jobs hold the outcomes."""

    def __init__(
        self,
        name: str,
        direction: Direction,
        grid: Mapping[str, Sequence[Any]],
        function: Callable[..., Any],
    ) -> None:
        self.name, self.direction, self.is_exhausted = name, direction, False
        self.points = [_bind_point(function, point) for point in _combine(grid)]
        self._path = record_folder() / f"{name}.json"
        self._trials: dict[int, SweepTrial] = {}

    def read_record(self) -> SweepRecord | None:
        """That of the latest sweep of this name and grid on this machine."""
        try:
            kept = json.loads(self._path.read_text())
        except (OSError, ValueError):
            return None
        return SweepRecord.from_json(kept["record"]) if kept.get("points") == self.points else None

    def write_record(self, record: SweepRecord) -> None:
        kept = {"record": record.to_json(), "points": self.points}
        replace_file(self._path, json.dumps(kept))

    def count_all(self) -> int:
        return 0

    def close(self) -> None:
        """Nothing is open."""

    def ask(self) -> SweepTrial | None:
        number = len(self._trials)
        if number >= len(self.points):
            return None
        self._trials[number] = SweepTrial(number, self.points[number])
        return self._trials[number]

    def terms(self, trial: SweepTrial, until: float) -> TrialTerms:
        return TrialTerms(until)

    def note_job(self, trial: SweepTrial, job: str) -> None:
        self._trials[trial.number] = replace(trial, job=job)

    def tell(self, trial: SweepTrial) -> None:
        self._trials[trial.number] = trial

    def begun(self) -> Sequence[SweepTrial]:
        trials = self._trials.values()
        return [row for row in trials if row.job and not row.note.startswith(NOT_STARTED)]


def _combine(grid: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """All points, the last parameter varying fastest; QoSError for a grid without or with too many."""
    for name, values in grid.items():
        if not isinstance(values, list | tuple) or not values:
            raise QoSError("grid", f"{name}={values!r:.60} is no list of values, as in [0.1, 1.0]")
    points = 1
    for values in grid.values():
        points *= len(values)
    if not grid or points > MOST_TRIALS:
        raise QoSError("grid", f"{points if grid else 0} trials: expected 1 to {MOST_TRIALS}")
    for combination in itertools.product(*grid.values()):
        yield dict(zip(grid, combination, strict=True))


def _bind_point(function: Callable[..., Any], point: Mapping[str, Any]) -> dict[str, Any]:
    """All parameters of a call with these values; QoSError where they do not fit."""
    try:
        return to_json(function, bind_arguments(function, (), point))
    except TypeError as error:
        raise QoSError("grid", f"{function.__name__}: {error}") from None


def record_folder() -> Path:
    return private_folder(home_folder() / "sweeps")


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else f"{value!s:.24}"
