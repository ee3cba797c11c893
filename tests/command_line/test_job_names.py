"""A beginning that only one job has names it; Tab completes jobs and values."""

import time

import pytest

from laxity.cli.job_names import complete_job
from tests.support.command_line import CommandLine
from tests.support.http_service import Service, job


@pytest.fixture
def two_jobs(answering: Service) -> Service:
    views = [job("train-38c75c49061a"), job("train-9f00aa11bb22")]
    answering.answers["GET /v1/jobs"] = (200, {"jobs": views})
    for view in views:
        answering.answers[f"GET /v1/jobs/{view['id']}"] = (200, view)
        answering.answers[f"DELETE /v1/jobs/{view['id']}"] = (200, {"state": "running"})
        answering.answers[f"GET /v1/jobs/{view['id']}/logs"] = (200, {"text": "epoch 1"})
        answering.answers[f"GET /v1/jobs/{view['id']}/explain"] = (200, {"job": view})
    return answering


@pytest.mark.parametrize("command", ["show", "logs", "explain", "cancel"])
@pytest.mark.parametrize("name", ["train-3", "default/train-3", "train-38c75c49061a"])
def test_a_unique_beginning_names_a_job(
    command: str, name: str, two_jobs: Service, laxity: CommandLine
) -> None:
    assert laxity(command, name) == 0
    assert "default/train-38c75c49061a" in two_jobs.asked[-1].path


@pytest.mark.parametrize("name", ["train-", "other"])
def test_a_beginning_of_several_jobs_or_none_changes_nothing(
    name: str, two_jobs: Service, laxity: CommandLine
) -> None:
    assert laxity("cancel", name) == 4
    deleted = [one.path for one in two_jobs.asked if one.method == "DELETE"]
    assert deleted == [f"/v1/jobs/default/{name}"]


def test_decisions_of_a_job_are_found_by_its_beginning(
    two_jobs: Service, laxity: CommandLine
) -> None:
    two_jobs.answers["GET /v1/decisions"] = lambda asked: (
        200,
        {"decisions": [{"job": "default/train-38c75c49061a"}] if "061a" in asked.path else []},
    )
    assert laxity("decisions", "--job", "train-3") == 0
    assert "061a" in two_jobs.asked[-1].path


@pytest.mark.usefixtures("two_jobs")
def test_tab_offers_jobs_without_the_default_namespace() -> None:
    assert complete_job("train-3") == ["train-38c75c49061a"]
    assert len(complete_job("")) == 2


def test_tab_offers_nothing_where_no_service_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAXITY_URL", "http://127.0.0.1:9")
    began = time.monotonic()
    assert complete_job("") == []
    assert time.monotonic() - began < 5.0


@pytest.mark.usefixtures("two_jobs")
@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        pytest.param("laxity show train-3", "train-38c75c49061a", id="a job"),
        pytest.param("laxity submit a.yaml --class s", "soft", id="a class"),
        pytest.param("laxity simulate --policy pick", "pickyman_blind", id="a policy to simulate"),
        pytest.param("laxity up --policy elas", "elasticflow", id="a policy of the service"),
        pytest.param("laxity simulate --admission gr", "greedy", id="an admission"),
        pytest.param("laxity simulate --trace itp/", "itp/195job.csv", id="a trace"),
    ],
)
def test_the_shell_is_given_values(
    typed: str, offered: str, monkeypatch: pytest.MonkeyPatch, laxity: CommandLine
) -> None:
    monkeypatch.setenv("_LAXITY_COMPLETE", "complete_zsh")
    monkeypatch.setenv("_TYPER_COMPLETE_ARGS", typed)
    laxity()
    assert offered in laxity.read()
