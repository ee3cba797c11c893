"""Bad input gets a clear answer on that job alone: a service with real workers goes on beside it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from laxity.job.qos import QoS
from laxity.job.spec import TrainingSpec
from tests.support.local_service import LocalService, local_service
from tests.support.mlflow_store import copy_store
from tests.support.waiting import until

pytestmark = pytest.mark.slow

Manifest = dict[Any, Any]
TRAININGS = Path(__file__).parents[1] / "support/programs/failing.py"


@pytest.fixture(scope="module")
def there(blank_mlflow: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalService]:
    home = tmp_path_factory.mktemp("bad-input")
    with local_service(home, slots=3, tracking_uri=copy_store(blank_mlflow, home)) as opened:
        yield opened


ANNOTATIONS = ("metadata", "annotations")
LIMITS = ("spec", "template", "spec", "containers", 0, "resources", "limits")


@pytest.mark.parametrize(
    ("path", "value", "field", "words"),
    [
        (("kind",), "Pod", "kind", "not batch/v1 Job"),
        (("spec",), [], "spec", "no mapping"),
        ((*ANNOTATIONS, "laxity.dev/wall-limit"), "0.1s", "wall-limit", "shorter than one epoch"),
        ((*ANNOTATIONS, "laxity.dev/model"), "x" * 100_000, "model", "64 KiB"),
        (("metadata", "labels", "kueue.x-k8s.io/queue-name"), "q", "metadata.labels", "Kueue"),
        ((*LIMITS, "nvidia.com/gpu"), "0", "resources", "from 1"),
    ],
    ids=["a Pod", "spec is a list", "links too short", "100 kB", "a Job of Kueue", "no GPUs"],
)
def test_what_cannot_be_meant_is_turned_away_by_field(
    there: LocalService, path: tuple[str | int, ...], value: object, field: str, words: str
) -> None:
    """tests/declare/test_bad_input.py has what else cannot be meant."""
    made = place = manifest("never-made")
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    reply = there.ask("POST", "/v1/jobs", made)
    answer = reply.json()
    assert (reply.status_code, answer["error"]["code"]) == (422, "invalid")
    assert answer["error"]["field"] == field
    assert words in answer["error"]["message"]
    assert "never-made" not in {job.id.partition("/")[2] for job in there.client.jobs()}


@pytest.mark.parametrize(
    ("function", "words"),
    [
        pytest.param("raises", "ValueError: the loss is gone", id="a function that raises"),
        pytest.param("nowhere", "nowhere", id="a function that is not there"),
        pytest.param("never_enters", "without entering", id="a function without epochs"),
        pytest.param("leaves", "none of its 3 epochs", id="os._exit(0) before the first epoch"),
        pytest.param("leaves_midway", "before the last epoch's end", id="os._exit(0) in an epoch"),
    ],
)
def test_a_training_that_fails_says_why_on_its_job(
    there: LocalService, function: str, words: str
) -> None:
    job = submit(there, f"fails-{function.replace('_', '-')}", function)
    assert words in there.until(job, lambda view: view.state == "failed").error


def test_a_training_without_an_epochs_end_can_be_cancelled_and_one_that_is_starting_too(
    there: LocalService,
) -> None:
    endless = submit(there, "endless", "endless")
    there.until(endless, lambda view: view.workers > 0)
    starting = submit(there, "starting", "endless")
    for job in (starting, endless):
        there.client.cancel(job)
        there.until(job, lambda view: view.state == "cancelled")
    until(lambda: not there.workers(), limit_s=60, what="their workers to be gone")


def test_a_good_job_beside_all_this_is_promised_and_kept(there: LocalService) -> None:
    job = submit(there, "good", "good")
    ended = there.ended(job)
    assert (ended.state, ended.verdict, ended.kept) == ("finished", "promised", True)
    assert ended.result == {"epochs": 3}


def manifest(name: str, function: str = "good", *, model: str = "bad-input") -> Manifest:
    spec = TrainingSpec(
        name=name,
        qos=QoS.of(deadline="20m", epoch_estimate="1s"),
        model=model,
        epochs=3,
        entry=f"{TRAININGS}:{function}",
        idempotency_key=name,
    )
    copied: Manifest = json.loads(json.dumps(spec.to_manifest()))
    return copied


def submit(there: LocalService, name: str, function: str) -> str:
    return there.client.submit(manifest(name, function)).id
