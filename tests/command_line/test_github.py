"""GitHub Actions reads what a step writes: its summary, its outputs and its annotations."""

import os
import subprocess
from pathlib import Path
from typing import Final

import pytest
import yaml

from laxity import names
from tests.support.command_line import CommandLine
from tests.support.http_service import Service, job
from tests.support.job_answers import answer_job
from tests.support.processes import run_command

ROOT: Final = Path(__file__).parents[2]


@pytest.fixture
def github(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A step's environment; the folder of its files."""
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary"))
    monkeypatch.setenv("GITHUB_OUTPUT", str(tmp_path / "output"))
    return tmp_path


def outputs(github: Path) -> dict[str, str]:
    lines = (github / "output").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines)


def test_a_kept_promise_is_summed_up_and_gives_its_run_to_later_steps(
    answering: Service, file: str, github: Path, laxity: CommandLine
) -> None:
    answer_job(answering, job(state="finished", deadline_at=20.0, finished_at=10.0, run_id="r1"))

    assert laxity("submit", file, "--follow") == 0

    assert "# default/train: kept" in (github / "summary").read_text()
    assert (outputs(github)["standing"], outputs(github)["mlflow-run"]) == ("kept", "r1")


def test_a_refusal_is_an_annotation_with_its_offers(
    answering: Service, file: str, github: Path, laxity: CommandLine
) -> None:
    offers = [{"kind": "soft"}]
    fields = {"verdict": "refused", "reason": "100 % full\nset-output", "reason_code": "busy"}
    answer_job(answering, job(state="refused", offers=offers, **fields))

    assert laxity("submit", file) == 3

    printed = [line for line in laxity.read_errors().splitlines() if line.startswith("::")]
    assert len(printed) == 1
    assert printed[0].startswith("::error title=laxity%3A default/train::")
    assert "100 %25 full%0Aset-output%0A  offer 1: class soft" in printed[0]
    assert outputs(github)["reason-code"] == "busy"


def test_a_refused_group_is_summed_up_and_annotated(
    answering: Service, github: Path, laxity: CommandLine
) -> None:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "i"}]}}
    documents = [
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"completionMode": "Indexed", "template": template},
        }
        for name, annotations in (("base", {}), ("tune", {names.AFTER: "base"}))
    ]
    (github / "release.yaml").write_text(yaml.safe_dump_all(documents))
    refused = {
        "id": "default/release", "kind": "workflow", "state": "refused", "verdict": "refused",
        "reason": "its P90 finish is too late", "reason_code": "group_too_slow", "steps": [],
        "offers": [{"text": "deadline 18:00"}], "deadline_at": 2e9, "finished_at": None, "p90_at": 2e9,
    }  # fmt: skip
    answering.answers["POST /v1/groups"] = (201, refused)

    assert laxity("submit", str(github / "release.yaml"), "--deadline", "8h") == 3

    (printed,) = [line for line in laxity.read_errors().splitlines() if line.startswith("::")]
    assert printed.startswith("::error title=laxity%3A default/release::")
    assert "its P90 finish is too late" in printed
    assert outputs(github)["reason-code"] == "group_too_slow"
    assert "- deadline 18:00" in (github / "summary").read_text()


@pytest.mark.parametrize("variable", ["GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT"])
def test_a_file_of_the_step_that_cannot_be_written_is_a_warning(
    variable: str, answering: Service, file: str, github: Path, laxity: CommandLine
) -> None:
    place = Path(os.environ[variable])
    place.mkdir()
    answer_job(answering, job(state="finished", deadline_at=20.0, finished_at=10.0))

    assert laxity("submit", file, "--follow") == 0

    (warning,) = [line for line in laxity.read_errors().splitlines() if line.startswith("::")]
    assert warning.startswith(f"::warning title=laxity::{variable}: {place} cannot be written")
    (other,) = {github / "summary", github / "output"} - {place}
    assert other.read_text()


def test_an_error_of_the_command_is_an_annotation(github: Path, laxity: CommandLine) -> None:
    assert laxity("submit", "train.py") == 2

    assert "::error title=laxity::'train.py' names no function" in laxity.read_errors()


def test_following_ends_at_its_timeout_with_a_code_of_its_own(
    answering: Service, file: str, github: Path, laxity: CommandLine
) -> None:
    answer_job(answering, job(state="running", workers=1))

    code = laxity("submit", file, "--follow", "--timeout", "0.1s")

    assert code == 7
    assert "stopped following default/train at --timeout: it goes on" in laxity.read_errors()
    assert outputs(github)["state"] == "running"


def test_the_action_hands_its_inputs_on_and_runs_none_of_them(tmp_path: Path) -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    step = action["runs"]["steps"][-1]
    tool = tmp_path / "laxity"
    tool.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    tool.chmod(0o700)
    inputs = {
        "SOURCE": "$(touch hacked).yaml",
        "DEADLINE": "2h",
        "KEY": "a b",
        "FOLLOW": "true",
        "TIMEOUT": "",
        "ARGS": "--class=soft\n--name=it's",
        "LAXITY_URL": "http://laxity.example",
        "LAXITY_TOKEN": "a-token",
    }

    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
        env=inputs | {"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.splitlines() == [
        "submit",
        "$(touch hacked).yaml",
        "--deadline=2h",
        "--key=a b",
        "--follow",
        "--class=soft",
        "--name=it's",
    ]
    assert not (tmp_path / "hacked").exists()
    assert "${{" not in step["run"]
    assert set(inputs) <= set(step["env"])


@pytest.mark.parametrize("missing", ["url", "token"])
def test_the_action_says_which_of_its_secrets_is_empty(missing: str, tmp_path: Path) -> None:
    step = yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"][-1]
    inputs = {"LAXITY_URL": "http://laxity.example", "LAXITY_TOKEN": "a-token"}

    done = run_command(
        "bash",
        "--noprofile",
        "--norc",
        "-eo",
        "pipefail",
        "-c",
        step["run"],
        env=inputs | {f"LAXITY_{missing.upper()}": "", "PATH": os.environ["PATH"]},
        cwd=tmp_path,
    )

    assert done.returncode == 2
    assert done.stdout.startswith(f"::error title=laxity::the input {missing} is empty")
