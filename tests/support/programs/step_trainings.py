"""Trainings by steps that stop anywhere, as a user would write them; each step waits at its gate."""

from typing import Any

from laxity import Training
from tests.support.programs.trainings import note, wait_at_gate

EVERY = 10


def by_steps(training: Training, gates: str) -> dict[str, Any]:
    """Two epochs of ten steps; the figure of an epoch is made of all its steps."""
    numbers: list[int] = []
    training.restore(numbers)
    for step in training.steps(total=2 * EVERY, every=EVERY, stops="anywhere"):
        note(gates, training, "step", step=step)
        wait_at_gate(gates, step)
        numbers.append(step)
        if step % EVERY == 0:
            training.log(first=step)
    return {"numbers": numbers, "first": training.last("first")}
