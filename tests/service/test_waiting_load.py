"""A real service with 2,000 waiting Jobs: what it holds in memory."""

import json
from pathlib import Path

import pytest

from laxity import names
from tests.support.attacked import Attacked, attacked
from tests.support.services import manifest
from tests.support.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

WAITING = 2000
MOST_MEGABYTES = 430  # 350 to 390 were seen; 700 with a heap for each thread
CLASSES = ("hard", "soft", "best_effort")


def test_2000_waiting_jobs_take_at_most_430_megabytes(tmp_path: Path) -> None:
    with attacked(tmp_path / "home") as service:
        for number in range(WAITING):
            status, answer, _ = service.ask("POST", "/v1/jobs", waiting(number))
            assert status == 201, answer
        until(lambda: has_verdict(service, WAITING - 1), "the last Job has a verdict")
        assert service.megabytes() < MOST_MEGABYTES


def has_verdict(service: Attacked, number: int) -> bool:
    status, answer, _ = service.ask("GET", f"/v1/jobs/default/w{number}")
    return status == 200 and json.loads(answer)["verdict"] != "none"


def waiting(number: int) -> bytes:
    """A Job of twenty minutes: hard, soft or best effort, of one of 20 models."""
    job = manifest(f"w{number}")
    qos_class = CLASSES[number % 3]
    terms = {
        names.CLASS: qos_class,
        names.EPOCHS: "20",
        names.EPOCH_ESTIMATE: "60s",
        names.MODEL: f"m{number % 20}",
    }
    deadline = {} if qos_class == "best_effort" else {names.DEADLINE: "72h"}
    job["metadata"]["annotations"] = terms | deadline
    return json.dumps(job).encode()
