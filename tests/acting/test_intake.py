"""Manifests from outside: checked, completed, and taken in once per key."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from laxity import names
from laxity.qos import QoS, QoSError
from laxity.spec import TrainingSpec
from laxity_k8s import merge
from laxity_k8s.api import Json
from laxity_k8s.local import open_world, stop_workers
from laxity_k8s.world import LiveCluster
from laxity_scheduler.engine import DuplicateJobError, Report, UnknownJobError

pytestmark = pytest.mark.slow


@pytest.fixture
def world(tmp_path: Path) -> Iterator[LiveCluster]:
    made = open_world(tmp_path, lambda _: Report(), slots=2)
    yield made
    made.close()
    stop_workers(tmp_path)


def manifest(name: str = "train", **more: Any) -> Json:
    spec = TrainingSpec(name=name, qos=QoS.of(deadline="1h"), entry="module:function", **more)
    return spec.to_manifest()


def failed(world: LiveCluster, job: Json) -> None:
    """The Job as if its last worker had failed once too often."""
    conditions = [
        {"type": "Failed", "status": "True", "lastTransitionTime": "2026-11-21T08:00:00Z"}
    ]
    latest = world.api.get("jobs", merge.identity(job))
    world.api.rows.put("jobs", {**latest, "status": {"conditions": conditions}})  # type: ignore[attr-defined]
    while merge.dig(world.job(merge.identity(job)), "status", "conditions", 0, "type") != "Failed":
        assert world.wait(10.0)


def test_a_job_is_taken_in_suspended_labelled_and_with_its_time(world: LiveCluster) -> None:
    made = manifest()
    made["metadata"]["labels"] = {}
    made["spec"]["suspend"] = False
    job = world.submit(made)
    assert job["spec"]["suspend"] is True
    assert merge.labels(job)[names.MANAGED] == "true"
    assert merge.annotations(job)[names.SUBMITTED_AT].endswith("Z")
    assert [row.id for row in world.observe().jobs] == ["default/train"]


def test_what_only_laxity_may_say_is_taken_off(world: LiveCluster) -> None:
    made = manifest()
    made["metadata"]["annotations"] |= dict.fromkeys((*names.OUTPUTS, names.PIN), "forged")
    made["status"] = {"succeeded": 9}
    job = world.submit(made)
    assert not {*names.OUTPUTS, names.PIN} & set(merge.annotations(job))
    assert job["status"] == {}


def test_a_worker_that_asks_for_no_gpu_is_given_one(world: LiveCluster) -> None:
    made = manifest()
    made["spec"]["template"]["spec"]["containers"][0].pop("resources")
    job = world.submit(made)
    container = job["spec"]["template"]["spec"]["containers"][0]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "1"}


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param({}, id="empty"),
        pytest.param({"metadata": 5}, id="metadata is a number"),
        pytest.param({"metadata": {"labels": []}}, id="labels are a list"),
        pytest.param(
            {"metadata": {"name": "x", "annotations": {names.DEADLINE: "soon"}}}, id="words"
        ),
        pytest.param({"spec": "none"}, id="spec is text"),
    ],
)
def test_a_manifest_that_makes_no_sense_is_refused_by_field(
    world: LiveCluster, broken: Json
) -> None:
    with pytest.raises(QoSError):
        world.submit(broken)
    assert world.jobs() == []


def test_a_key_attaches_to_the_living_job_whatever_the_manifest_says_now(
    world: LiveCluster,
) -> None:
    first = world.submit(manifest("one", idempotency_key="k"))
    again = world.submit(manifest("two", idempotency_key="k"))
    assert again["metadata"]["uid"] == first["metadata"]["uid"]


def test_after_a_failure_a_key_begins_the_next_attempt_with_the_first_deadline(
    world: LiveCluster,
) -> None:
    first = world.submit(manifest(idempotency_key="k"))
    failed(world, first)
    second = world.submit(manifest(idempotency_key="k"))
    failed(world, second)
    third = world.submit(manifest(idempotency_key="k"))
    assert [job["metadata"]["name"] for job in (first, second, third)] == [
        "train",
        "train-a2",
        "train-a3",
    ]
    assert merge.annotations(third)[names.ATTEMPT] == "3"
    times = {merge.annotations(job)[names.SUBMITTED_AT] for job in (first, second, third)}
    assert len(times) == 1
    env = third["spec"]["template"]["spec"]["containers"][0]["env"]
    assert {"name": names.ENV_JOB, "value": "default/train-a3"} in env


def test_keys_of_other_namespaces_are_other_keys(world: LiveCluster) -> None:
    one = world.submit(manifest(namespace="a", idempotency_key="k"))
    other = world.submit(manifest(namespace="b", idempotency_key="k"))
    assert one["metadata"]["uid"] != other["metadata"]["uid"]


def test_many_submissions_of_one_key_at_once_are_one_job(world: LiveCluster) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: world.submit(manifest(idempotency_key="k")), range(16)))
    assert len({job["metadata"]["uid"] for job in made}) == 1


def test_a_taken_name_without_a_key_is_a_duplicate(world: LiveCluster) -> None:
    world.submit(manifest())
    with pytest.raises(DuplicateJobError, match="default/train exists already"):
        world.submit(manifest())


def test_unknown_jobs_are_unknown(world: LiveCluster) -> None:
    for ask in (world.job, world.signal):
        with pytest.raises(UnknownJobError):
            ask("default/none")
    with pytest.raises(UnknownJobError):
        world.annotate("default/none", {names.DEADLINE: "1h"})
    world.cancel("default/none")


def test_waiting_ends_with_news_with_a_wake_or_with_its_time(world: LiveCluster) -> None:
    while world.wait(0.0):
        pass
    assert not world.wait(0.0)
    world.wake()
    assert world.wait(10.0)
    world.submit(manifest())
    assert world.wait(10.0)
