"""Manifests from outside: checked, completed, and taken in once per key."""

import copy
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from laxity import json_tree, names
from laxity.instants import format_rfc3339
from laxity.job.qos import QoS, QoSError
from laxity.job.spec import TrainingSpec
from laxity_k8s.act.job_submission import submit_job
from laxity_k8s.cluster_api import Json
from laxity_k8s.live_cluster import LiveCluster
from laxity_k8s.local.local_cluster import open_world, stop_workers
from laxity_k8s.objects.attempts import Origin, origin_of
from laxity_k8s.objects.status_annotation import verdict_text
from laxity_profiler.estimate import Progress
from laxity_scheduler.live import DuplicateJobError, Report, UnknownJobError
from laxity_scheduler.model.job import Refusal
from laxity_scheduler.model.reasons import reason

pytestmark = pytest.mark.slow
reached: dict[str, int] = {}  # epochs that the workers of a Job have reported, by its uid


@pytest.fixture
def world(tmp_path: Path) -> Iterator[LiveCluster]:
    reached.clear()
    made = open_world(
        tmp_path, lambda uid: Report(Progress(epochs_done=reached.get(uid, 0))), slots=2
    )
    yield made
    made.close()
    stop_workers(tmp_path)


def manifest(name: str = "train", **more: Any) -> Json:
    qos = {key: more.pop(key) for key in ("deadline", "workers", "service_class") if key in more}
    said: dict[str, Any] = {"entry": "module:function", **more}
    return TrainingSpec(name=name, qos=QoS.of(**{"deadline": "1h", **qos}), **said).to_manifest()


def failed(world: LiveCluster, job: Json) -> None:
    """The Job as if its last worker had failed once too often."""
    ended(world, job, "Failed")


def ended(world: LiveCluster, job: Json, how: str) -> None:
    now = format_rfc3339(int(time.time()))  # what ended a week ago is forgotten
    conditions = [{"type": how, "status": "True", "lastTransitionTime": now}]
    latest = world.api.get("jobs", json_tree.object_id(job))
    world.api.rows.put("jobs", {**latest, "status": {"conditions": conditions}})  # type: ignore[attr-defined]
    while (
        json_tree.get_in(world.job(json_tree.object_id(job)), "status", "conditions", 0, "type")
        != how
    ):
        assert world.wait(10.0)


def test_a_job_is_taken_in_suspended_labelled_and_with_its_time(world: LiveCluster) -> None:
    made = manifest()
    made["metadata"]["labels"] = {}
    made["spec"]["suspend"] = False
    job = world.submit(made)
    assert job["spec"]["suspend"] is True
    assert json_tree.labels_of(job)[names.MANAGED] == "true"
    assert json_tree.annotations_of(job)[names.SUBMITTED_AT].endswith("Z")
    assert [row.id for row in world.observe().jobs] == ["default/train"]


def test_a_function_without_an_image_is_refused_where_workers_run_on_other_machines() -> None:
    elsewhere: Any = SimpleNamespace(
        is_local=False
    )  # an API whose workers are no processes of this machine

    with pytest.raises(QoSError, match="give an image that holds the project"):
        submit_job(elsewhere, (), manifest(), reports=lambda _: Report(), now=0.0)


def test_what_only_laxity_may_say_is_taken_off(world: LiveCluster) -> None:
    made = manifest()
    made["metadata"]["annotations"] |= dict.fromkeys((*names.OUTPUTS, names.PIN), "forged")
    made["status"] = {"succeeded": 9}
    job = world.submit(made)
    assert not {*names.OUTPUTS, names.PIN} & set(json_tree.annotations_of(job))
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


def test_a_key_attaches_to_the_living_job_under_any_name_and_in_any_checkout(
    world: LiveCluster,
) -> None:
    first = world.submit(manifest("one", entry="/ci/1/train.py:fit", idempotency_key="k"))
    again = world.submit(manifest("two", entry="/ci/2/train.py:fit", idempotency_key="k"))
    assert again["metadata"]["uid"] == first["metadata"]["uid"]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        pytest.param({"entry": "other:function"}, "entry: module:function there", id="entry"),
        pytest.param({"model": "large"}, "model: small there, large asked for", id="model"),
        pytest.param({"epochs": 5}, "epochs: 3 there, 5 asked for", id="epochs"),
        pytest.param({"image": "train:2"}, "image: laxity-worker:latest there", id="image"),
        pytest.param({"parameters": {"lr": 2}}, "parameter lr: 1 there, 2 asked", id="parameters"),
        pytest.param({"workers": (1, 2)}, "workers: auto there, 1,2 asked for", id="widths"),
        pytest.param({"deadline": "2h"}, "deadline: 1h there, 2h asked for", id="deadline"),
        pytest.param({"deadline": "2h"}, "laxity amend default/train", id="the way to amend"),
        pytest.param({"service_class": "soft"}, "class: hard there, soft asked for", id="class"),
    ],
)
def test_a_key_of_another_declaration_is_an_error_that_says_what_differs(
    world: LiveCluster, changes: dict[str, Any], problem: str
) -> None:
    said: dict[str, Any] = {"model": "small", "epochs": 3, "parameters": {"lr": 1}}
    world.submit(manifest(idempotency_key="k", **said))

    with pytest.raises(DuplicateJobError, match=problem):
        world.submit(manifest(idempotency_key="k", **{**said, **changes}))


def test_jobs_that_run_something_else_differ_in_their_commands(world: LiveCluster) -> None:
    made = manifest(idempotency_key="k")
    made["metadata"]["annotations"].pop(names.ENTRY)
    other = copy.deepcopy(made)
    other["spec"]["template"]["spec"]["containers"][0]["command"] = ["python", "other.py"]
    world.submit(made)

    with pytest.raises(DuplicateJobError, match=r"command: .* there, python other.py asked"):
        world.submit(other)


def test_a_job_amended_since_is_attached_to_by_its_first_terms_and_by_those_of_now(
    world: LiveCluster,
) -> None:
    first = world.submit(manifest(idempotency_key="k"))
    terms = json.dumps({names.DEADLINE: "1h", names.CLASS: "hard", names.WIDTHS: "1"})
    amended = {names.DEADLINE: "2h", names.CLASS: "soft", names.FIRST_TERMS: terms}
    world.annotate("default/train", amended)

    as_first = world.submit(manifest(idempotency_key="k"))
    as_now = world.submit(manifest(deadline="2h", service_class="soft", idempotency_key="k"))

    assert {job["metadata"]["uid"] for job in (as_first, as_now)} == {first["metadata"]["uid"]}
    with pytest.raises(DuplicateJobError, match="deadline: 2h there, 3h asked for"):
        world.submit(manifest(deadline="3h", idempotency_key="k"))


def test_a_finished_job_is_attached_to_whatever_its_deadline_was(world: LiveCluster) -> None:
    first = world.submit(manifest(idempotency_key="k"))
    ended(world, first, "Complete")

    again = world.submit(manifest(deadline="2h", idempotency_key="k"))

    assert again["metadata"]["uid"] == first["metadata"]["uid"]


def test_after_a_refusal_a_key_asks_again_with_what_is_declared_now(world: LiveCluster) -> None:
    first = world.submit(manifest(idempotency_key="k"))
    refused = {names.VERDICT: verdict_text(Refusal(reason("deadline_in_the_past", ago_s=1.0)))}
    world.annotate("default/train", refused)

    again = world.submit(manifest(deadline="3h", epochs=2, idempotency_key="k"))

    said = json_tree.annotations_of(again)
    assert again["metadata"]["uid"] != first["metadata"]["uid"]
    assert (again["metadata"]["name"], said[names.DEADLINE], said[names.EPOCHS]) == (
        "train",
        "3h",
        "2",
    )
    assert names.VERDICT not in said
    assert [json_tree.object_id(job) for job in world.jobs()] == ["default/train"]


def test_a_job_that_takes_a_refused_ones_name_tells_its_workers_that_name(
    world: LiveCluster,
) -> None:
    world.submit(manifest(name="before", idempotency_key="k"))
    refused = {names.VERDICT: verdict_text(Refusal(reason("deadline_in_the_past", ago_s=1.0)))}
    world.annotate("default/before", refused)
    again = world.submit(manifest(name="renamed", idempotency_key="k"))
    env = again["spec"]["template"]["spec"]["containers"][0]["env"]
    told = [row["value"] for row in env if row["name"] == names.ENV_JOB]
    assert (again["metadata"]["name"], told) == ("before", ["default/before"])


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
    assert json_tree.annotations_of(third)[names.ATTEMPT] == "3"
    times = {json_tree.annotations_of(job)[names.SUBMITTED_AT] for job in (first, second, third)}
    assert len(times) == 1
    env = third["spec"]["template"]["spec"]["containers"][0]["env"]
    assert {"name": names.ENV_JOB, "value": "default/train-a3"} in env


def test_the_next_attempt_goes_on_in_the_folder_of_the_first(world: LiveCluster) -> None:
    made = manifest(
        epochs=8, env={names.ENV_CHECKPOINTS: "/ck/$(LAXITY_JOB_UID)"}, idempotency_key="k"
    )
    first = world.submit(made)
    failed(world, first)
    reached[first["metadata"]["uid"]] = 5
    second = world.submit(made)
    failed(world, second)  # before it has formed
    third = world.submit(made)

    uid = first["metadata"]["uid"]
    assert [origin_of(job) for job in (second, third)] == [Origin("train", uid, 5)] * 2
    env = third["spec"]["template"]["spec"]["containers"][0]["env"]
    assert env[0] == {"name": names.ENV_TRAINING, "value": uid}
    assert {"name": names.ENV_CHECKPOINTS, "value": "/ck/$(LAXITY_TRAINING)"} in env
    folders = {world.api.config.checkpoint_folder(job) for job in (first, second, third)}  # type: ignore[attr-defined]
    assert [path.name for path in folders] == [f"train-{uid[:8]}"]


def test_what_the_first_attempt_has_done_is_not_predicted_again(world: LiveCluster) -> None:
    first = world.submit(manifest(epochs=8, idempotency_key="k"))
    failed(world, first)
    reached[first["metadata"]["uid"]] = 5
    world.submit(manifest(epochs=8, idempotency_key="k"))

    (row,) = world.observe().jobs
    assert row.progress.epochs_done == 5


def test_an_attempt_passes_by_the_name_of_anothers_job(world: LiveCluster) -> None:
    failed(world, world.submit(manifest(idempotency_key="k")))
    other = world.submit(manifest("train-a2"))

    second = world.submit(manifest(idempotency_key="k"))

    env = second["spec"]["template"]["spec"]["containers"][0]["env"]
    assert second["metadata"]["name"] == "train-a2-2"
    assert {"name": names.ENV_JOB, "value": "default/train-a2-2"} in env
    assert world.job("default/train-a2")["metadata"]["uid"] == other["metadata"]["uid"]


def test_a_cancelled_attempt_whose_name_is_taken_goes_on_by_another(world: LiveCluster) -> None:
    failed(world, world.submit(manifest(idempotency_key="k")))
    second = world.submit(manifest(idempotency_key="k"))
    world.cancel("default/train-a2")
    world.submit(manifest("train-a2"))

    again = world.submit(manifest(idempotency_key="k"), [second])

    number = json_tree.annotations_of(again)[names.ATTEMPT]
    assert (again["metadata"]["name"], number) == ("train-a2-2", "2")


def test_an_attempt_that_begins_anew_has_a_folder_of_its_own(world: LiveCluster) -> None:
    first = world.submit(manifest(epochs=8, idempotency_key="k"))
    failed(world, first)
    reached[first["metadata"]["uid"]] = 5

    anew = world.submit(manifest(epochs=9, fresh=True, idempotency_key="k"))

    assert anew["metadata"]["name"] == "train-a2"
    assert origin_of(anew) == Origin("train-a2", anew["metadata"]["uid"], 0)
    assert next(iter(world.observe().jobs)).progress.epochs_done == 0


def test_a_failed_training_of_another_declaration_goes_on_only_anew(world: LiveCluster) -> None:
    failed(world, world.submit(manifest(epochs=8, idempotency_key="k")))

    with pytest.raises(DuplicateJobError, match=r"epochs: 8 there, 9 asked for.*--fresh"):
        world.submit(manifest(epochs=9, idempotency_key="k"))


def test_nobody_else_may_name_the_folder_of_a_training(world: LiveCluster) -> None:
    made = manifest()
    said = {"name": "other", "uid": "0" * 8, "epochs": 1}
    made["metadata"]["annotations"] |= {names.TRAINING: json.dumps(said)}

    assert origin_of(world.submit(made)).name == "train"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("{", id="half an object"),
        pytest.param('{"name": "../../etc", "uid": "1", "epochs": 0}', id="a path"),
        pytest.param('{"name": "a", "uid": "../1", "epochs": 0}', id="a path as uid"),
        pytest.param('{"name": "a", "uid": "1", "epochs": -1}', id="less than no epoch"),
        pytest.param('{"name": "a"}', id="a field is missing"),
    ],
)
def test_an_origin_that_makes_no_sense_is_the_job_itself(text: str) -> None:
    job = {"metadata": {"name": "own", "uid": "u", "annotations": {names.TRAINING: text}}}

    assert origin_of(job) == Origin("own", "u")


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
