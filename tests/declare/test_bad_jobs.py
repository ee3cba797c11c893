"""Bad input gets a clear answer on that job alone: a service with real workers goes on beside it."""

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from laxity.job.qos import QoS
from laxity.job.spec import TrainingSpec
from tests.support.builders import bearer
from tests.support.mlflow_store import copy_store
from tests.support.stage import Stage, stage
from tests.support.waiting import until

pytestmark = pytest.mark.slow

Manifest = dict[str, Any]
TRAININGS = Path(__file__).parents[1] / "support/programs/failing.py"
GPU = "nvidia.com/gpu"


@pytest.fixture(scope="module")
def there(blank_mlflow: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    home = tmp_path_factory.mktemp("bad-input")
    copy_store(blank_mlflow, home)
    with stage(home, prefect_api="") as opened:
        until(opened.client.alive, limit_s=60, what="the service")
        yield opened


def said(name: str, value: str | None) -> Callable[[Manifest], None]:
    """Another value of one annotation, or none."""

    def change(manifest: Manifest) -> None:
        annotations = manifest["metadata"]["annotations"]
        annotations.pop(f"laxity.dev/{name}", None)
        if value is not None:
            annotations[f"laxity.dev/{name}"] = value

    return change


def put(*path: str | int, value: Any) -> Callable[[Manifest], None]:
    """Another value somewhere in the manifest; None takes it away."""

    def change(manifest: Manifest) -> None:
        place: Any = manifest
        for step in path[:-1]:
            place = place[step]
        if value is None:
            del place[path[-1]]
        else:
            place[path[-1]] = value

    return change


LIMITS = ("spec", "template", "spec", "containers", 0, "resources", "limits")
RESOURCES = "spec.template.spec.containers[0].resources"
AT_THE_DOOR = [
    pytest.param(said("deadline", "nan"), "deadline", "is no deadline", id="deadline not a number"),
    pytest.param(said("deadline", "inf"), "deadline", "is no deadline", id="endless deadline"),
    pytest.param(said("deadline", "tomorrow"), "deadline", "write 90s", id="deadline in words"),
    pytest.param(said("deadline", "2027-01-01T00:00:00"), "deadline", "time zone", id="naive time"),
    pytest.param(said("deadline", "40000d"), "deadline", "ten years", id="deadline in a century"),
    pytest.param(said("deadline", None), "deadline", "needs one", id="hard without a deadline"),
    pytest.param(said("class", "gold"), "class", "none of hard, soft", id="unknown class"),
    pytest.param(said("widths", "4..1"), "widths", "backwards", id="most below least"),
    pytest.param(said("widths", "-1,2"), "widths", "no worker count", id="negative width"),
    pytest.param(said("widths", "1..1000000000"), "widths", "worker count", id="a billion workers"),
    pytest.param(said("epochs", "0"), "epochs", "from 1 to", id="no epochs"),
    pytest.param(said("epochs", "10000000"), "epochs", "from 1 to", id="ten million epochs"),
    pytest.param(said("epoch-estimate", "-5s"), "epoch-estimate", "duration", id="negative epoch"),
    pytest.param(
        said("wall-limit", "0.1s"), "wall-limit", "shorter than one epoch", id="links too short"
    ),
    pytest.param(said("preemptible", "maybe"), "preemptible", "'true' nor", id="no yes or no"),
    pytest.param(said("on-miss", "explode"), "on-miss", "continue, stop", id="unknown on-miss"),
    pytest.param(said("parameters", "{nope"), "parameters", "", id="parameters that are no JSON"),
    pytest.param(
        said("entry", "no-colon"), "entry", "module:function", id="entry without function"
    ),
    pytest.param(said("deadlin", "2h"), "deadlin", "laxity.dev/deadline", id="misspelt annotation"),
    pytest.param(said("model", "x" * 100_000), "model", "64 KiB", id="annotation of 100 kB"),
    pytest.param(said("model", "a\0b"), "model", "cannot be printed", id="control characters"),
    pytest.param(put("kind", value="Pod"), "kind", "not batch/v1 Job", id="a Pod"),
    pytest.param(put("metadata", "name", value=None), "name", "DNS label", id="no name"),
    pytest.param(put("metadata", "name", value="Hello_World"), "name", "DNS label", id="bad name"),
    pytest.param(put("metadata", "name", value="a" * 300), "name", "1 to 63", id="long name"),
    pytest.param(
        put("metadata", "namespace", value="No NS"), "namespace", "DNS", id="bad namespace"
    ),
    pytest.param(
        put("metadata", "labels", value=[1]), "metadata.labels", "mapping", id="label list"
    ),
    pytest.param(
        put("metadata", "labels", "kueue.x-k8s.io/queue-name", value="q"),
        "metadata.labels",
        "Kueue",
        id="a Job of Kueue",
    ),
    pytest.param(
        put("metadata", "annotations", "laxity.dev/epochs", value=3),
        "epochs",
        "quotes",
        id="a number where text is due",
    ),
    pytest.param(put("spec", value=[]), "spec", "no mapping", id="spec is a list"),
    pytest.param(
        put("spec", "template", "spec", "containers", value=[]),
        "spec.template.spec.containers",
        "one container",
        id="no container",
    ),
    pytest.param(put(*LIMITS, GPU, value="0"), "resources", "from 1", id="no GPUs"),
    pytest.param(put(*LIMITS, GPU, value="abc"), RESOURCES, "whole", id="GPUs in letters"),
]


@pytest.mark.parametrize(("change", "field", "words"), AT_THE_DOOR)
def test_what_cannot_be_meant_is_turned_away_by_field(
    there: Stage, change: Callable[[Manifest], None], field: str, words: str
) -> None:
    made = manifest("never-made")
    change(made)
    status, answer = post(there, json.dumps(made).encode())
    assert (status, answer["error"]["code"]) == (422, "invalid")
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
def test_a_training_that_fails_says_why_on_its_job(there: Stage, function: str, words: str) -> None:
    job = submit(there, f"fails-{function.replace('_', '-')}", function)
    until(lambda: there.client.job(job).state == "failed", limit_s=60, what="the failure")
    assert words in there.client.job(job).error


def test_a_training_without_an_epochs_end_can_be_cancelled_and_one_that_is_starting_too(
    there: Stage,
) -> None:
    endless = submit(there, "endless", "endless")
    until(lambda: there.client.job(endless).workers > 0, limit_s=30, what="its start")
    starting = submit(there, "starting", "endless")
    for job in (starting, endless):
        there.client.cancel(job)
        until(lambda job=job: there.client.job(job).state == "cancelled", limit_s=40, what=job)  # type: ignore[misc]
    until(lambda: not there.workers(), limit_s=60, what="their workers to be gone")


def test_a_good_job_beside_all_this_is_promised_and_kept(there: Stage) -> None:
    job = submit(there, "good", "good")
    until(lambda: there.client.job(job).ended, limit_s=60, what="its end")
    ended = there.client.job(job)
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


def submit(there: Stage, name: str, function: str) -> str:
    return there.client.submit(manifest(name, function)).id


def post(there: Stage, body: bytes, path: str = "/v1/jobs") -> tuple[int, Any]:
    request = urllib.request.Request(  # noqa: S310 - loopback
        f"{there.url}{path}", data=body, headers={"Content-Type": "application/json", **bearer()}
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as reply:  # noqa: S310
            return reply.status, json.loads(reply.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())
