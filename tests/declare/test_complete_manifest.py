"""A Job written by hand is completed before it is created: its workers know what they work on."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from laxity import names
from laxity.job import signal
from laxity.job.complete_manifest import WORKER_SECRET, complete_manifest
from laxity.job.qos import QoS
from laxity.job.spec import TrainingSpec
from laxity.worker.code import environment
from laxity.worker.code.environment import WorkerEnvironment, WorkerEnvironmentError
from tests.support.processes import run_command

Json = dict[str, Any]
TOLD = {
    names.ENV_JOB: "team/nightly",
    names.ENV_EPOCHS: "90",
    names.ENV_MODEL: "resnet$$50",
    names.ENV_PARAMETERS: '{"rate": 0.1}',
}


def by_hand(**container: Any) -> Json:
    return {
        "metadata": {
            "name": "nightly",
            "namespace": "team",
            "annotations": {
                names.EPOCHS: "90",
                names.MODEL: "resnet$50",
                names.PARAMETERS: '{"rate": 0.1}',
            },
        },
        "spec": {
            "completionMode": "Indexed",
            "template": {"spec": {"containers": [{"name": "train", **container}]}},
        },
    }


def completed(job: Json) -> Json:
    complete_manifest(job)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    found: Json = container
    return found


def literals(container: Json) -> dict[str, str]:
    return {row["name"]: row["value"] for row in container["env"] if "value" in row}


def test_its_workers_are_told_the_job_its_epochs_model_and_parameters() -> None:
    job = by_hand()
    container = completed(job)

    assert literals(container) == TOLD
    fields = {row["name"]: row["valueFrom"] for row in container["env"] if "valueFrom" in row}
    assert set(fields) == {names.ENV_JOB_UID, names.ENV_POD_IP, names.ENV_TOKEN}
    assert container["envFrom"] == [{"secretRef": {"name": WORKER_SECRET, "optional": True}}]
    (mount,) = container["volumeMounts"]
    (volume,) = job["spec"]["template"]["spec"]["volumes"]
    assert (mount["mountPath"], mount["name"]) == (signal.FOLDER, volume["name"])


def test_the_users_own_lines_stay_and_may_refer_to_laxitys() -> None:
    folder = {"name": names.ENV_CHECKPOINTS, "value": f"/data/$({names.ENV_JOB_UID})"}
    url = {"name": names.ENV_URL, "value": "http://here"}
    container = completed(by_hand(env=[folder, url], volumeMounts=[{"mountPath": "/data"}]))

    assert container["env"][-2:] == [folder, url], "after what they refer to"
    assert "envFrom" not in container, "it says itself where the service is"
    assert container["volumeMounts"][0] == {"mountPath": "/data"}


def test_what_a_copied_file_says_of_another_job_is_corrected() -> None:
    stale = [
        {"name": names.ENV_JOB, "value": "default/other"},
        {"name": names.ENV_EPOCHS, "value": "3"},
    ]
    assert literals(completed(by_hand(env=stale))) == TOLD


def test_to_complete_twice_is_to_complete_once() -> None:
    job = by_hand()
    complete_manifest(job)
    once = repr(job)
    complete_manifest(job)
    assert repr(job) == once


def test_a_flows_own_job_keeps_its_lines() -> None:
    spec = TrainingSpec(
        name="flow", qos=QoS(), entry="m:f", epochs=3, env={names.ENV_URL: "http://here"}
    )
    job = spec.to_manifest()
    before = repr(job)
    complete_manifest(job)
    assert repr(job) == before


@pytest.mark.parametrize(
    ("path", "value"),
    [
        pytest.param(("spec", "completionMode"), "NonIndexed", id="not Indexed"),
        pytest.param(("spec", "template", "spec", "containers"), [], id="no container"),
        pytest.param(("spec", "template", "spec", "containers"), "x", id="no list"),
        pytest.param(("metadata",), 7, id="no metadata"),
        pytest.param(("spec",), None, id="no spec"),
    ],
)
def test_a_job_that_is_no_training_is_left_alone(path: tuple[str, ...], value: object) -> None:
    job = by_hand()
    inner = job
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    before = repr(job)
    complete_manifest(job)
    assert repr(job) == before


def test_a_volume_at_the_usual_place_holds_the_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = {names.ENV_JOB: "team/nightly", names.ENV_JOB_UID: "u-1"}
    monkeypatch.setattr(environment, "CHECKPOINTS", tmp_path)
    assert WorkerEnvironment.of(told).folder == tmp_path / "u-1"
    own = WorkerEnvironment.of(told | {names.ENV_CHECKPOINTS: "/data"}).folder
    assert own == Path("/data")

    monkeypatch.setattr(environment, "CHECKPOINTS", tmp_path / "absent")
    with pytest.raises(WorkerEnvironmentError, match="no volume at"):
        WorkerEnvironment.of(told)
    assert WorkerEnvironment.of({}).folder is None, "a training that nobody schedules needs none"


@pytest.mark.slow
def test_a_pod_of_a_job_that_is_not_told_which_says_so_and_trains_alone(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("def alone(training): return [*training.epochs(total=2)]\n")
    there = {name: value for name, value in os.environ.items() if not name.startswith("LAXITY_")}
    done = run_command(
        sys.executable,
        "-m",
        "laxity.worker",
        f"{tmp_path}/train.py:alone",
        env=there | {names.ENV_INDEX: "1"},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert f"{names.ENV_JOB} is not set" in done.stdout + done.stderr


def test_a_pod_that_fails_tells_its_last_lines_unless_its_writer_says_otherwise() -> None:
    mine, theirs = by_hand(), by_hand(terminationMessagePolicy="File")
    for made in (mine, theirs):
        complete_manifest(made)
    policies = [
        made["spec"]["template"]["spec"]["containers"][0]["terminationMessagePolicy"]
        for made in (mine, theirs)
    ]
    assert policies == ["FallbackToLogsOnError", "File"]


def test_script_is_told_where_to_post_and_nothing_else_of_its_job() -> None:
    job = by_hand(command=["bash", "train.sh"], env=[{"name": "MINE", "value": "1"}])
    job["metadata"]["annotations"] = {names.DEADLINE: "2h"}

    container = completed(job)

    assert literals(container) == {
        names.ENV_PROGRESS_URL: "$(LAXITY_URL)/v1/progress/$(LAXITY_POD)",
        names.ENV_PROGRESS_TOKEN: "/run/laxity/token",
        "MINE": "1",
    }
    assert container["env"][0]["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.name"}}
    assert container["envFrom"] == [{"secretRef": {"name": WORKER_SECRET, "optional": True}}]
    (volume,) = job["spec"]["template"]["spec"]["volumes"]
    path = f"metadata.annotations['{names.WORKER_TOKEN}']"
    assert volume["downwardAPI"]["items"] == [{"path": "token", "fieldRef": {"fieldPath": path}}]
    assert container["volumeMounts"] == [
        {"name": volume["name"], "mountPath": signal.FOLDER, "readOnly": True}
    ]


def test_job_that_runs_a_worker_of_laxity_is_no_script() -> None:
    job = by_hand(command=["python", "-m", "laxity.worker", "train:main"])
    job["metadata"]["annotations"] = {names.DEADLINE: "2h"}

    assert "env" not in completed(job)
