"""What became of each job of a simulated run: one array per field, and rows for those who ask.

Instants are seconds, infinite when they never came to pass.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Final

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.simulated.told_finish import ToldFinish


@dataclass(frozen=True, slots=True)
class Outcome:
    """One job of a run; defaults are those of one to whom nothing happened.

    `refused` is the reason code, or empty.
    """

    id: str
    submitted_at: float = 0.0
    gpus: float = 0.0  # as asked for
    deadline_at: float = math.inf
    ideal_s: float = 0.0  # alone, at the width asked for
    first_start_at: float = math.inf
    finished_at: float = math.inf
    running_s: float = 0.0  # with GPUs, whatever they did
    gpu_s: float = 0.0
    lost_gpu_s: float = 0.0  # what starts, stops, re-formings and redone work took
    preemptions: float = 0.0
    resizes: float = 0.0
    promised_at: float = math.inf  # the P90 finish that was promised
    refused: str = ""


DEFAULTS: Final = {
    part.name: part.default for part in fields(Outcome) if isinstance(part.default, float)
}
FIELDS: Final = tuple(DEFAULTS)
RESULTS: Final = FIELDS[FIELDS.index("first_start_at") :]  # what became of it


def empty_results(count: int) -> Floats:
    """Of so many jobs to which nothing has happened, shape (n, len(RESULTS))."""
    return np.tile([DEFAULTS[name] for name in RESULTS], (count, 1))


@dataclass(slots=True)
class LoanTotals:
    """What an inference fleet of so many GPUs lent, used, lacked and took back in `span_s`."""

    fleet_gpus: int
    span_s: float = 0.0
    lent_gpu_s: float = 0.0
    inference_gpu_s: float = 0.0  # that inference used
    short_gpu_s: float = 0.0  # that it needed and did not have
    longest_short_s: float = 0.0
    lent_servers: int = 0
    reclaimed_servers: int = 0
    preemptions: int = 0  # jobs stopped for nodes that went back
    slots: int = 0
    covered_slots: int = 0  # in which the need stayed within its forecast

    @property
    def forecast_coverage(self) -> float:
        return self.covered_slots / self.slots if self.slots else math.nan


@dataclass(frozen=True)
class Run:
    """A finished simulation: n jobs in order of submission, columns of shape (n,).

    `ape_at`: by per cent of the epochs done, how far the time of the rest was believed from the truth,
    relative, shape (n,). `busy` is allocated GPUs over time as (instant, GPUs) steps; `setting` says what was run.
    `gpus` are those of training; `loans` what was lent, where there were inference nodes. `told` are the
    finishes that jobs were told as they came.
    """

    policy: str
    trace: str
    gpus: int
    ids: Sequence[str]
    columns: Mapping[str, Floats]
    refused: Mapping[int, str]  # reason code by job number
    cpu_s: float = 0.0
    events: int = 0
    decisions_s: Sequence[float] = field(default=())
    dropped: int = 0  # decisions that did not fit the snapshot
    busy: Sequence[tuple[float, int]] = field(default=())
    setting: Mapping[str, object] = field(default_factory=dict)
    ape_at: Mapping[int, Floats] = field(default_factory=dict)
    loans: LoanTotals | None = None
    told: Mapping[str, ToldFinish] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ids)

    def column(self, name: str) -> Floats:
        """One field of all jobs, shape (n,)."""
        return self.columns[name]

    @cached_property
    def outcomes(self) -> list[Outcome]:
        """All jobs as rows."""
        lists = [self.columns[name].tolist() for name in FIELDS]
        rows = zip(self.ids, zip(*lists, strict=True), strict=True)
        return [
            Outcome(
                id=name,
                refused=self.refused.get(number, ""),
                **dict(zip(FIELDS, values, strict=True)),
            )
            for number, (name, values) in enumerate(rows)
        ]


def columns_with_defaults(count: int, **known: Floats) -> dict[str, Floats]:
    """Columns for so many jobs: those given, and for the others what nothing happened means."""
    return {
        name: known[name] if name in known else np.full(count, default)
        for name, default in DEFAULTS.items()
    }
