"""The address to which scripts in pods without laxity post: whose progress counts, and what is said."""

from pathlib import Path
from typing import Any

import pytest

from laxity import names
from laxity_profiler.history.script_posts import ScriptPod
from laxity_scheduler.http.tokens import worker_token
from tests.support.builders import SECRET, bearer
from tests.support.memory_world import MemoryWorld
from tests.support.services import Stage, staged

Json = dict[str, Any]
SAID = {"trainerStatus": {"progressPercentage": 40}}


def script(stage: Stage, name: str) -> Json:
    """A running Job with a command of its own, in pod NAME-0."""
    container = {
        "name": "train",
        "image": "mine:1",
        "command": ["bash", "train.sh"],
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
    }
    metadata = {
        "name": name,
        "namespace": "default",
        "labels": {names.MANAGED: "true"},
        "annotations": {names.CLASS: "best_effort", names.MODEL: "m"},
    }
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {"template": template},
    }
    answer = stage.http.post("/v1/jobs", json=job)
    assert answer.status_code == 201, answer.text
    view = stage.until(f"default/{name}", lambda view: view["workers"] > 0, "running")
    stage.world.script_pods[view["id"]] = ScriptPod(f"{name}-0", view["submitted_at"])
    return view


def post(stage: Stage, view: Json, pod: str, body: Any = SAID) -> Any:
    token = bearer(worker_token(SECRET, view["uid"]))
    return stage.http.post(f"/v1/progress/{pod}", json=body, headers=token)


def test_progress_of_a_script_is_that_of_its_job(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(1)) as stage:
        view = script(stage, "a")
        answers = [post(stage, view, "a-0"), post(stage, view, "a-0")]
        stage.until("default/a", lambda view: view["epochs_done"] == 40, "at 40 %")
        stage.world.finished("default/a")
        ended = stage.until("default/a", lambda view: view["state"] == "finished", "finished")
    assert [answer.status_code for answer in answers] == [200, 200]
    assert (ended["epochs"], ended["epochs_done"], ended["finished_early"]) == (100, 40, True)
    assert ended["result"] == {"progress_percent": 40.0}
    assert stage.world.told == []


def test_pod_of_one_job_cannot_speak_for_another(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(2)) as stage:
        mine, theirs = script(stage, "mine"), script(stage, "theirs")
        post(stage, mine, "theirs-0")
        post(stage, theirs, "theirs-0", {"trainerStatus": {"progressPercentage": 7}})
        stage.until("default/theirs", lambda view: view["epochs_done"] == 7, "at 7 %")
        reports = [stage.history.report(view["uid"]) for view in (mine, theirs)]
    assert [report.progress.epochs_done for report in reports] == [0, 7]


@pytest.mark.parametrize("body", [[], {}, {"trainerStatus": {"progressPercentage": 101}}])
def test_what_is_no_progress_is_told_and_changes_nothing(tmp_path: Path, body: Any) -> None:
    with staged(tmp_path, MemoryWorld(1)) as stage:
        view = script(stage, "a")
        answer = post(stage, view, "a-0", body)
        report = stage.history.report(view["uid"])
    assert answer.status_code == 400
    assert "expected" in answer.json()["error"]["message"]
    assert report.since == 0.0


def test_job_that_counts_its_epochs_itself_is_told_so(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(1)) as stage:
        view = stage.run("trains", widths="1")
        answer = post(stage, view, "trains-0")
    assert answer.status_code == 409
    assert "default/trains counts its epochs itself" in answer.json()["error"]["message"]


def test_token_of_a_user_posts_no_progress(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(1)) as stage:
        script(stage, "a")
        answer = stage.http.post("/v1/progress/a-0", json=SAID)
    assert answer.status_code == 403


def test_script_that_posted_nothing_is_told_so_at_its_first_run(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(1)) as stage:
        for name in ("a", "b"):
            view = script(stage, name)
            stage.world.finished(view["id"])
            ended = stage.until(view["id"], lambda view: view["state"] == "finished", "finished")
            assert (ended["epochs"], ended["epochs_done"]) == (1, 1)
            assert ended["result"] == {"progress_percent": None}
        told = [(job, notice.code) for job, notice in stage.world.told]
    assert told == [("default/a", "no_progress")]
