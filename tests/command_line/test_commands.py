import json
import os
from pathlib import Path
from typing import Any

import pytest

from laxity import names
from laxity.flow.signature import ENV_ALONE
from tests.support.command_line import CommandLine
from tests.support.http_service import Service, job
from tests.support.job_answers import OFFER, REFUSED, answer_job


def test_a_job_is_released_and_taken_back(answering: Service, laxity: CommandLine) -> None:
    answering.answers["POST /v1/jobs/default/train/release"] = (200, {"released": "default/train"})
    answering.answers["DELETE /v1/jobs/default/train/release"] = (
        200,
        {"taken_back": "default/train"},
    )

    assert laxity("release", "train") == 0
    assert laxity("release", "train", "--undo", "--json") == 0
    released, taken_back = laxity.read().splitlines()
    assert "never resized or stopped; laxity release train --undo takes that back" in released
    assert json.loads(taken_back) == {"taken_back": "default/train"}


def test_jobs_that_could_not_be_released_are_named_with_the_cause(
    answering: Service, laxity: CommandLine
) -> None:
    refused = {"b/two": "no rights in b", "b/one": "no rights in b", "c/three": "denied"}
    answering.answers["POST /v1/release"] = (
        200, {"released": 1, "suspended": [], "refused": refused},
    )  # fmt: skip
    assert laxity("release", "--all") == 1
    out, err = laxity.read_output()
    assert out == "released: 1 job\n"
    assert "not released, and managed as before: 3 jobs" in err
    assert err.splitlines()[1:] == ["  b/one, b/two: no rights in b", "  c/three: denied"]


def test_lent_nodes_that_could_not_be_given_back_are_named_with_the_cause(
    answering: Service, laxity: CommandLine
) -> None:
    answering.answers["POST /v1/release"] = (
        200,
        {"released": 1, "suspended": [], "refused": {}, "nodes_refused": {"gpu-2": "forbidden"}},
    )
    assert laxity("release", "--all") == 1
    lines = laxity.read_errors().splitlines()
    assert "not given back, and still labelled as lent: 1 node" in lines[0]
    assert lines[1:] == ["  gpu-2: forbidden"]


def test_a_pinned_job_is_listed_and_shown_as_pinned_until_it_ends(
    answering: Service, laxity: CommandLine
) -> None:
    ended = job("gone", pinned=True, state="finished", finished_at=1_999_999_999.0)
    views = [job(pinned=True), job("other"), ended]
    answering.answers["GET /v1/jobs"] = (200, {"jobs": views})
    answering.answers["GET /v1/jobs/default/train"] = (200, views[0])

    assert laxity("ls", "--all") == 0
    _, pinned, other, gone = laxity.read().splitlines()
    assert laxity("show", "train") == 0
    assert "running, promised, pinned" in pinned
    assert "pinned" not in other + gone
    assert "running, promised, pinned: counted, never resized or stopped" in laxity.read()


@pytest.mark.parametrize(
    ("arguments", "path", "content"),
    [
        pytest.param(("ls",), "/v1/jobs", {"jobs": [job()]}, id="ls"),
        pytest.param(("show", "train"), "/v1/jobs/default/train", job(), id="show"),
        pytest.param(
            ("explain", "train"), "/v1/jobs/default/train/explain", {"chain": []}, id="explain"
        ),
        pytest.param(("cluster",), "/v1/cluster", {"nodes": [], "total_gpus": 4}, id="cluster"),
        pytest.param(
            ("decisions",), "/v1/decisions", {"decisions": [{"cycle": 1}]}, id="decisions"
        ),
    ],
)
def test_every_reading_command_gives_the_services_json(
    arguments: tuple[str, ...],
    path: str,
    content: dict[str, Any],
    answering: Service,
    laxity: CommandLine,
) -> None:
    answering.answers[f"GET {path}"] = (200, content)

    code = laxity(*arguments, "--json")

    assert code == 0
    assert json.loads(laxity.read()) == content


def test_jobs_are_listed_with_what_a_person_wants_to_know(
    answering: Service, laxity: CommandLine
) -> None:
    ended = job("old", state="finished", finished_at=1_999_999_999.0)
    lapsed = job("lapsed", state="refused", verdict="refused", deadline_at=1.0)
    answering.answers["GET /v1/jobs"] = (200, {"jobs": [job(), ended, lapsed]})

    laxity("ls")
    shown = laxity.read()

    assert "train" in shown
    assert "promised" in shown
    assert "3/10" in shown
    assert "1m40s" in shown  # laxity
    assert "old" not in shown
    assert "lapsed" not in shown


def test_a_refusal_is_shown_with_its_code_and_its_offers(
    answering: Service, laxity: CommandLine
) -> None:
    answer_job(answering, REFUSED)

    laxity("show", "train")
    shown = laxity.read()

    assert "deadline_before_fastest_finish" in shown
    assert "1. a deadline of" in shown
    assert "laxity accept train" in shown


def test_an_offer_whose_deadline_has_passed_is_not_offered(
    answering: Service, laxity: CommandLine
) -> None:
    past = {**OFFER, "deadline_at": 1_000.0}
    soft = {**OFFER, "kind": "soft", "deadline_at": 1_000.0}
    answer_job(answering, {**REFUSED, "offers": [past, soft]})
    laxity("show", "train")
    shown = laxity.read()
    assert "1. a deadline of" not in shown
    assert "2. class soft" in shown

    answer_job(answering, {**REFUSED, "offers": [past]})
    laxity("show", "train")
    shown = laxity.read()
    assert "Take one with" not in shown
    assert "Its offers have expired" in shown


def test_whatif_shows_the_effect_on_others_and_submits_nothing(
    answering: Service, file: str, laxity: CommandLine
) -> None:
    effect = {"job": "default/other", "p90_before": 2_000_000_000.0, "p90_after": 2_000_000_060.0}
    verdict = {
        "verdict": "refused",
        "reason_code": "capacity_promised_to_others",
        "effects": [effect, effect | {"job": "default/still", "p90_after": 2_000_000_000.1}],
        "offers": [OFFER],
    }
    answering.answers["POST /v1/whatif"] = (200, verdict)

    code = laxity("whatif", file)

    assert code == 3
    shown = laxity.read()
    assert "(1m00s later)" in shown
    assert "default/still" not in shown
    assert "Nothing was submitted" in shown
    assert "laxity accept" not in shown
    assert [row.path for row in answering.asked] == ["/v1/whatif"]


def test_accepting_names_the_offer_and_shows_the_new_verdict(
    answering: Service, laxity: CommandLine
) -> None:
    answer_job(answering, job())

    code = laxity("accept", "train", "2")

    assert code == 0
    assert answering.asked[0].body == {"offer": 2}


def test_an_amended_deadline_is_sent_as_it_was_written(
    answering: Service, laxity: CommandLine
) -> None:
    answer_job(answering, job())

    laxity("amend", "train", "--deadline", "90m")

    assert answering.asked[0].body == {"deadline": "90m"}


def test_jobs_are_cancelled_one_after_the_other(answering: Service, laxity: CommandLine) -> None:
    for name in ("a", "b"):
        answering.answers[f"DELETE /v1/jobs/default/{name}"] = (200, {})

    laxity("cancel", "a", "b")

    assert [row.method for row in answering.asked] == ["DELETE", "DELETE"]


def test_an_ended_job_is_not_said_to_be_cancelled(answering: Service, laxity: CommandLine) -> None:
    answering.answers["DELETE /v1/jobs/default/a"] = (200, job("a", state="finished"))
    answering.answers["DELETE /v1/jobs/default/b"] = (200, job("b", state="running"))

    assert laxity("cancel", "a", "b") == 0

    assert laxity.read().splitlines() == [
        "a: already finished",
        "b: cancelled; its workers are told to stop",
    ]


def test_no_decisions_are_said_to_be_none(answering: Service, laxity: CommandLine) -> None:
    answering.answers["GET /v1/decisions"] = (200, {"decisions": []})

    laxity("decisions", "--job", "nobody")

    assert laxity.read() == "no decisions of nobody are kept\n"


def test_cluster_says_what_became_of_the_promises(answering: Service, laxity: CommandLine) -> None:
    promises = {"given": 7, "kept": 4, "broken": 0, "open": 1, "failed": 2, "cancelled": 0}
    answering.answers["GET /v1/cluster"] = (200, {"total_gpus": 4, "promises": promises})

    laxity("cluster")

    expected = "7 promises given: 4 kept, 1 open, 2 ended by an error of the training"
    assert expected in laxity.read()


def test_top_into_a_pipe_prints_once(answering: Service, laxity: CommandLine) -> None:
    answering.answers["GET /v1/cluster"] = (200, {"total_gpus": 4, "free_gpus": 1, "policy": "qos"})
    answering.answers["GET /v1/jobs"] = (200, {"jobs": [job()]})

    code = laxity("top")

    assert code == 0
    assert "3 of 4 GPUs busy" in laxity.read()


def test_running_jobs_are_listed_before_refused_ones(
    answering: Service, laxity: CommandLine
) -> None:
    views = [job("old", state="refused", verdict="refused"), job("new", submitted_at=2e9)]
    answering.answers["GET /v1/jobs"] = (200, {"jobs": views})

    assert laxity("ls") == 0
    assert [line.split()[0] for line in laxity.read().splitlines()[1:]] == ["new", "old"]


@pytest.mark.parametrize("before", [None, "set"])
def test_a_command_leaves_the_environment_as_it_was(
    before: str | None,
    answering: Service,
    laxity: CommandLine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A later command of a notebook asks the service that it would have asked."""
    (tmp_path / "train_file.py").write_text("def train(training): ...")
    answering.answers["POST /v1/whatif"] = (200, job())
    for name in (names.ENV_URL, ENV_ALONE):
        monkeypatch.setenv(name, before) if before else monkeypatch.delenv(name, raising=False)

    laxity("--url", answering.url, "whatif", f"{tmp_path}/train_file.py:train")

    assert [asked.path for asked in answering.asked] == ["/v1/whatif"]
    assert [os.environ.get(name) for name in (names.ENV_URL, ENV_ALONE)] == [before] * 2
