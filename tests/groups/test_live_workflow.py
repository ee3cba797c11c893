"""A workflow of five real trainings keeps its deadline, whoever is killed meanwhile."""

import subprocess
import sys
from pathlib import Path

import httpx
import pytest
import yaml

from laxity import names
from tests.support.local_service import LocalService, local_service
from tests.support.programs import release
from tests.support.waiting import until

PROGRAM = Path(release.__file__)
EPOCHS = {"base": 4, "base-en": 6, "base-de": 6, "base-fr": 6, "evaluate": 2}


def start_release(
    served: LocalService, name: str, deadline: str, *arguments: str
) -> "subprocess.Popen[bytes]":
    command = [sys.executable, str(PROGRAM), *arguments]
    return served.processes.start(name, command, RELEASE_DEADLINE=deadline)


def latest_state(prefect_api: str) -> str:
    """What Prefect's server says of the flow run that began last."""
    latest = {"sort": "START_TIME_DESC", "limit": 1}
    (run,) = httpx.post(f"{prefect_api}/flow_runs/filter", json=latest, timeout=30.0).json()
    return str(run["state"]["name"])


def epochs_of(folder: Path) -> dict[str, list[int]]:
    return {
        path.name: [int(line) for line in path.read_text().split()] for path in folder.iterdir()
    }


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_killed_client_and_service_lose_no_epoch_of_a_workflow(
    tmp_path: Path, prefect_api: str
) -> None:
    evidence = tmp_path / "evidence"
    evidence.mkdir()
    given = {"slots": 3, "prefect_api": prefect_api, "EVIDENCE": str(evidence)}
    with local_service(tmp_path / "home", **given) as served:
        start_release(served, "first", "10m")
        until(lambda: len(epochs_of(evidence)) >= 2, limit_s=180, what="the second step")
        served.processes.running["first"].kill()
        served.kill()
        served.start()
        second = start_release(served, "second", "10m")
        until(lambda: second.poll() is not None, limit_s=240, what="the end of the workflow")
        (name,) = {job.group for job in served.client.jobs()}
        group = served.client.group(name)
        log = served.processes.log("second").read_text()
    assert second.returncode == 0, log[-3000:]
    assert log.strip().splitlines()[-1] == "['base-de', 'base-en', 'base-fr']"
    assert epochs_of(evidence) == {name: list(range(1, n + 1)) for name, n in EPOCHS.items()}
    assert (group["state"], group["verdict"]) == ("finished", "promised")
    assert group["finished_at"] <= group["deadline_at"]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("arguments", [[], ["in-a-loop"]], ids=["sync", "async"])
def test_workflow_that_cannot_be_in_time_is_refused_by_the_name_of_its_step(
    tmp_path: Path, prefect_api: str, arguments: list[str]
) -> None:
    given = {"slots": 3, "prefect_api": prefect_api, "EVIDENCE": str(tmp_path)}
    with local_service(tmp_path / "home", **given) as served:
        flow = start_release(served, "flow", "5s", *arguments)
        until(lambda: flow.poll() is not None, limit_s=180, what="the refusal")
        log = served.processes.log("flow").read_text()
        jobs = served.client.jobs()
    assert flow.returncode != 0
    assert "step finetune takes the most" in log
    assert latest_state(prefect_api) == "Refused"
    assert jobs == []


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_file_of_steps_is_followed_to_its_end_and_no_step_waits_for_the_next_look(
    tmp_path: Path,
) -> None:
    (tmp_path / "train.py").write_text(
        "def train(training):\n    for _ in training.epochs():\n        pass\n"
    )
    template = {
        "restartPolicy": "Never",
        "containers": [
            {"name": "train", "command": [sys.executable, "-m", "laxity.worker", "train.py:train"]}
        ],
    }
    steps = {"first": {}, "second": {names.AFTER: "first"}}
    jobs = [
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "generateName": f"{step}-",
                "annotations": {names.EPOCHS: "1", names.EPOCH_ESTIMATE: "1s", **after},
            },
            "spec": {"completionMode": "Indexed", "template": {"spec": template}},
        }
        for step, after in steps.items()
    ]
    (tmp_path / "release.yaml").write_text(yaml.safe_dump_all(jobs))
    with local_service(tmp_path / "home") as served:
        call = ("submit", "release.yaml", "--deadline", "10m", "--follow")
        followed = served.laxity(*call, cwd=tmp_path)
        views = {job.step: job for job in served.client.jobs()}

    assert followed.returncode == 0, followed.stderr
    assert "attached" not in followed.stderr
    first, second = views["first"], views["second"]
    assert (first.state, second.state) == ("finished", "finished")
    begun_at, ended_at = second.width_history[0][0], first.finished_at
    assert ended_at is not None
    assert begun_at - ended_at < 10.0  # a look without news comes after 30 s
