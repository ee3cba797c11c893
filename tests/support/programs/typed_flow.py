"""A training whose parameters are of many types; its result says which types arrived."""

from dataclasses import asdict, dataclass, field
from datetime import date
from enum import Enum
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from laxity import Training, deadline_flow


class Schedule(Enum):
    FAST = "fast"
    SLOW = "slow"


@dataclass
class Optimizer:
    lr: float = 0.1
    schedule: Schedule = Schedule.SLOW
    folders: tuple[Path, ...] = ()


class Data(BaseModel):
    rows: int
    since: date = date(2026, 1, 1)
    tags: set[str] = {"a"}


@dataclass
class Score:
    """A result: also the parameter of the next flow."""

    loss: float
    of: Optimizer = field(default_factory=Optimizer)


@deadline_flow(epochs=1, epoch_estimate="0.1s", model="typed")
def train(
    training: Training,
    *,
    optimizer: Optimizer = Optimizer(),  # noqa: B008 - a default that nobody changes
    data: Data | None = None,
    out: Path = Path("out"),
    schedule: Schedule = Schedule.SLOW,
    before: Score | None = None,
    kinds: frozenset[int] = frozenset({1}),
) -> dict[str, Any]:
    for _ in training.epochs():
        pass
    arrived = (optimizer, data, out, schedule, before, kinds)
    return {"types": [type(value).__name__ for value in arrived], "score": Score(0.5, optimizer)}


def as_result(score: Score) -> dict[str, Any]:
    """A score as it comes back from a worker."""
    return {
        "loss": score.loss,
        "of": asdict(score.of) | {"schedule": score.of.schedule.value, "folders": []},
    }
