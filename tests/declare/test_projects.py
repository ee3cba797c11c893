"""A user's project on a real service that was started elsewhere: run, retried, refused, failed."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import acme
from tests.support.local_service import LocalService, local_service

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

FLAKY = """
from pathlib import Path
from laxity import Training, deadline_flow


@deadline_flow(epochs=6, epoch_estimate="1s", model="flaky", deadline="20m", restarts=0)
def train(training: Training, marks: str) -> dict[str, int]:
    state = {"w": 0}
    restored = training.restore(state)
    first = not Path(marks).exists()
    for epoch in training.epochs():
        if first and epoch == 5:
            Path(marks).touch()
            raise ValueError("the loss is gone")
        state["w"] += epoch
    return {"restored": restored, "w": state["w"]}
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalService]:
    with local_service(tmp_path_factory.mktemp("service"), LAXITY_SAVING_SHARE="1") as found:
        yield found


def test_a_worker_runs_in_its_submitters_folder_and_environment(
    served: LocalService, tmp_path: Path
) -> None:
    acme.write(tmp_path)
    submit = ("submit", "acme/flows.py:train", "--name", "acme", "--pass-env", "FOO*", "--follow")

    ran = served.laxity(*submit, cwd=tmp_path, FOO="bar", FOO_TOKEN="t", OMP_NUM_THREADS="3")

    assert ran.returncode == 0, ran.stderr
    assert served.client.job("acme").result == {
        "data": 42,
        "cwd": str(tmp_path),
        "env": {"FOO": "bar", "FOO_TOKEN": None, "OMP_NUM_THREADS": "3"},
    }


def test_show_lists_what_was_taken_along_and_no_values(
    served: LocalService, tmp_path: Path
) -> None:
    acme.write(tmp_path)
    submit = ("submit", "acme.flows:train", "--name", "listed", "--pass-env", "MY_TOKEN")
    served.laxity(*submit, cwd=tmp_path, MY_TOKEN="hidden-value")

    shown = served.laxity("show", "listed", "--json", cwd=tmp_path).stdout

    project = json.loads(shown)["project"]
    assert project["workdir"] == str(tmp_path)
    assert {"MY_TOKEN", "PATH", "PYTHONPATH"} <= {*project["environment"]}
    assert "hidden-value" not in shown
    assert served.ended("listed").state == "finished"


def test_the_services_own_variables_do_not_reach_workers(
    served: LocalService, tmp_path: Path
) -> None:
    code = "import os; print('STORE_PASSWORD' in os.environ, os.getcwd())"
    job = by_hand("outside", [sys.executable, "-c", code])
    (tmp_path / "job.json").write_text(json.dumps(job))

    served.laxity("submit", "job.json", cwd=tmp_path)

    assert served.ended("outside").state == "finished"
    assert served.client.logs("outside").split() == ["False", str(tmp_path)]


def test_the_attempt_after_a_failure_goes_on_from_the_last_finished_epoch(
    served: LocalService, tmp_path: Path
) -> None:
    (tmp_path / "flaky.py").write_text(FLAKY)
    marks = f"marks={tmp_path / 'marks'}"
    submit = ("submit", "flaky.py:train", "--name", "flaky", "--key", "ci-1", "-p", marks)

    failed = served.laxity(*submit, "--follow", cwd=tmp_path)
    again = served.laxity(*submit, "--follow", cwd=tmp_path)

    assert (failed.returncode, again.returncode) == (1, 0), again.stderr
    assert "ValueError: the loss is gone" in failed.stdout + failed.stderr
    first, second = served.client.job("flaky"), served.client.job("flaky-a2")
    assert second.result == {"restored": 4, "w": 21}
    assert (second.attempt, second.epochs_done) == (2, 6)
    assert second.deadline_at == first.deadline_at
    assert served.reported_epochs("flaky") == {
        "reports.jsonl": [1, 2, 3, 4],
        f"reports-{second.uid}.jsonl": [5, 6],
    }


def test_a_fresh_attempt_begins_at_the_first_epoch(served: LocalService, tmp_path: Path) -> None:
    (tmp_path / "flaky.py").write_text(FLAKY)
    marks = f"marks={tmp_path / 'marks'}"
    submit = ("submit", "flaky.py:train", "--name", "anew", "--key", "ci-2", "-p", marks)

    served.laxity(*submit, "--follow", cwd=tmp_path)
    again = served.laxity(*submit, "--fresh", "--follow", cwd=tmp_path)

    assert again.returncode == 0, again.stderr
    assert served.client.job("anew-a2").result == {"restored": 0, "w": 21}


def test_a_refused_key_asks_again_under_its_new_deadline(
    served: LocalService, tmp_path: Path
) -> None:
    acme.write(tmp_path)
    submit = ("submit", "acme/flows.py:train", "--name", "hasty", "--key", "ci-3", "--deadline")

    refused = served.laxity(*submit, "0.5s", cwd=tmp_path)
    promised = served.laxity(*submit, "20m", "--follow", cwd=tmp_path)
    other = served.laxity(*submit, "20m", "--epochs", "3", cwd=tmp_path)

    assert (refused.returncode, promised.returncode) == (3, 0), promised.stderr
    assert served.client.job("hasty").kept is True
    assert other.returncode != 0
    assert "epochs: 2 there, 3 asked for" in other.stderr


def test_a_job_whose_worker_cannot_start_fails_with_its_error(
    served: LocalService, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "laxity.worker", "nomodule:f"]
    (tmp_path / "job.json").write_text(json.dumps(by_hand("unstartable", command, deadline="20m")))

    ran = served.laxity("submit", "job.json", "--follow", cwd=tmp_path)

    job = served.client.job("unstartable")
    assert ran.returncode == 1
    assert (job.state, job.workers) == ("failed", 0)
    assert "No module named 'nomodule'" in job.error
    assert "No module named 'nomodule'" in ran.stdout + ran.stderr


def by_hand(name: str, command: list[str], **said: str) -> dict[str, Any]:
    """A Job as people write it: it counts its failures, and gives up after a thousand."""
    notes = {"epochs": "2", "epoch-estimate": "1s", **said} if said else {}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "annotations": {f"laxity.dev/{key}": value for key, value in notes.items()},
        },
        "spec": {
            "completionMode": "Indexed",
            "parallelism": 1,
            "completions": 1,
            "backoffLimit": 1000,
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [{"name": "train", "command": command}],
                }
            },
        },
    }
