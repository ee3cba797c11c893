"""What a sweep came to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from laxity.sweeps.trials import Direction, SweepTrial
from laxity.worded_error import WordedError


class SweepFailed(WordedError, RuntimeError):  # noqa: N818 - beside TrainingFailed
    """No trial of the sweep has reached full length. `trials` are those that began."""

    def __init__(self, message: str, trials: Sequence[SweepTrial] = ()) -> None:
        self.trials = tuple(trials)
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class SweepResult:
    """`best` has the best value of the trials that reached full length; `verdict` is the first one."""

    name: str
    direction: Direction
    verdict: str
    trials: tuple[SweepTrial, ...]

    @property
    def best(self) -> SweepTrial:
        best = best_of(self.trials, self.direction)
        assert best is not None  # noqa: S101 - a sweep without one raises
        return best

    @property
    def best_value(self) -> float:
        value = self.best.value
        assert value is not None  # noqa: S101 - it is complete
        return value

    @property
    def best_params(self) -> Mapping[str, Any]:
        return self.best.parameters

    def __str__(self) -> str:
        """A table, the best trial first."""
        sign = -1.0 if self.direction == "maximize" else 1.0
        rows = sorted(
            self.trials,
            key=lambda trial: (
                trial.outcome != "complete",
                trial.value is None,
                sign * (trial.value or 0.0),
            ),
        )
        head = f"{'trial':>5}  {'outcome':<28}  {'value':>12}  {'took':>8}  parameters"
        return "\n".join([head, *(trial.to_text() for trial in rows)])


def best_of(trials: Sequence[SweepTrial], direction: Direction) -> SweepTrial | None:
    """Of those that reached full length."""
    whole = [trial for trial in trials if trial.outcome == "complete" and trial.value is not None]
    choose = max if direction == "maximize" else min
    return choose(whole, key=lambda trial: trial.value or 0.0, default=None)
