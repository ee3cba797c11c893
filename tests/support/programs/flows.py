"""Flows that tests call. Imported only where a Prefect API is there; also run as a script."""

import sys

from laxity import Training, deadline_flow

HEARD: list[str] = []


def hear(flow: object, flow_run: object, state: object) -> None:
    HEARD.append(str(getattr(state, "name", state)))


@deadline_flow(deadline="20m", workers=(1, 2, 4), model="mlp", epochs=3, tags=("nightly",))
def train_digits(training: Training, hidden: int = 64, *, name: str = "x") -> float:
    """Learn the digits."""
    total = 0.0
    for epoch in training.epochs():
        total += epoch * hidden
        training.log(loss=total)
    return total


train_digits_overnight = train_digits.with_qos(deadline="8h", workers=2)
train_digits_weekend: object = train_digits.with_qos(deadline="2d")


@deadline_flow(deadline="1h", epochs=2, retries=1, on_failure=[hear], on_completion=[hear])
def train_again(training: Training) -> int:
    return training.total_epochs


@deadline_flow(
    epochs=2,
    idempotency_key="nightly-{seed}",
    name="train by seed",
    on_cancellation=[hear],
    on_running=[hear],
    on_crashed=[hear],
)
def train_by_seed(training: Training, seed: int) -> int:
    return seed


@deadline_flow(epochs=2)
def train_until(training: Training, deadline: str) -> str:
    return deadline


if __name__ == "__main__":
    train_by_seed(int(sys.argv[1]))
