"""An urgent job takes the GPU of a training in the middle of its epoch: with a real service."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.local_service import LocalService, local_service

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
FLOWS = """
import time
from laxity import Training, deadline_flow

@deadline_flow(deadline="1h", model="long", epochs=2, epoch_estimate="1m")
def long(training: Training) -> list[int]:
    numbers = []
    training.restore(numbers)
    for step in training.steps(total=240, every=120, stops="anywhere"):
        time.sleep(0.2 if step < 60 else 0.01)
        numbers.append(step)
    return numbers

@deadline_flow(deadline="40s", model="hot", epochs=1, epoch_estimate="1s")
def hot(training: Training) -> int:
    for _ in training.epochs():
        time.sleep(0.5)
    return 1
"""


@pytest.fixture
def live(tmp_path: Path) -> Iterator[LocalService]:
    (tmp_path / "flows.py").write_text(FLOWS)
    with local_service(tmp_path, slots=1) as started:
        yield started


def test_urgent_job_runs_before_the_epoch_of_another_ends(live: LocalService) -> None:
    file = live.home / "flows.py"
    live.laxity("submit", f"{file}:long", "--name", "long")
    live.until("long", lambda job: job.formed > 0)

    done = live.laxity("submit", f"{file}:hot", "--name", "hot", "--follow")

    assert done.returncode == 0, done.stdout + done.stderr
    stopped = live.client.job("long")
    assert (stopped.epochs_done, stopped.preemptions) == (0, 1)
    assert live.ended("long").result == list(range(240))
    reasons = [str(row["reason"]) for row in live.client.explain("long")["chain"]]
    assert any("saved inside epoch 1" in text for text in reasons)
