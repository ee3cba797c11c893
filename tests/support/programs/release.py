"""A workflow of five trainings, one of them twice as slow as predicted; each epoch leaves a line."""

import asyncio
import os
import sys
import time
from pathlib import Path

from laxity import Training, deadline_flow, deadline_workflow, parallel


def train(training: Training, name: str, epoch_s: float) -> str:
    for epoch in training.epochs():
        time.sleep(epoch_s)
        with (Path(os.environ["EVIDENCE"]) / name).open("a") as lines:
            lines.write(f"{epoch}\n")
    return name


@deadline_flow(epochs=4, epoch_estimate="1s", pass_env=["EVIDENCE"])
def pretrain(training: Training) -> str:
    return train(training, "base", 1.0)


@deadline_flow(epochs=6, epoch_estimate="1s", pass_env=["EVIDENCE"])
def finetune(training: Training, base: str, language: str) -> str:
    return train(training, f"{base}-{language}", 2.0 if language == "de" else 1.0)


@deadline_flow(epochs=2, epoch_estimate="1s", pass_env=["EVIDENCE"])
def evaluate(training: Training, models: list[str]) -> list[str]:
    train(training, "evaluate", 1.0)
    return sorted(models)


@deadline_workflow(
    deadline=os.environ.get("RELEASE_DEADLINE", "1h"),
    steps=[pretrain, parallel(finetune, 3), evaluate],
    idempotency_key="tests",
)
def release(languages: list[str]) -> list[str]:
    base = pretrain()
    return evaluate([finetune.submit(base, language) for language in languages])


@deadline_workflow(deadline="5s", steps=[pretrain, parallel(finetune, 3), evaluate])
async def release_in_a_loop(languages: list[str]) -> list[str]:
    return languages


if __name__ == "__main__" and "in-a-loop" in sys.argv:
    asyncio.run(release_in_a_loop(["en"]))
elif __name__ == "__main__":
    sys.stdout.write(f"{release(['en', 'de', 'fr'])}\n")
