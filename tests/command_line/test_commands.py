import errno
import json
import os
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from laxity import names
from laxity.cli.exit_codes import run
from tests.support.command_line import laxity
from tests.support.http_service import Service, job

OFFER = {
    "kind": "deadline",
    "deadline_at": 2_000_000_500.0,
    "widths": [1, 2],
    "p90_at": 2_000_000_400.0,
    "checked_at": 1.0,
    "gpus_borrowed": 0,
}
REFUSED = job(
    state="refused",
    verdict="refused",
    reason_code="deadline_before_fastest_finish",
    reason="even alone the P90 finish is 8m later",
    offers=[OFFER],
    workers=0,
)


def answer_job(answering: Service, view: dict[str, Any]) -> None:
    answering.answers["POST /v1/jobs"] = (201, view)
    answering.answers["GET /v1/jobs/default/train"] = (200, view)
    answering.answers["POST /v1/jobs/default/train/amend"] = (200, view)
    answering.answers["POST /v1/jobs/default/train/accept"] = (200, view)


@pytest.mark.parametrize(
    ("view", "code"),
    [
        pytest.param(job(), 0, id="promised"),
        pytest.param(job(verdict="forecast"), 0, id="forecast"),
        pytest.param(REFUSED, 3, id="refused"),
        pytest.param(job(state="failed", error="ValueError"), 1, id="failed"),
    ],
)
def test_submitting_ends_with_the_verdicts_exit_code(
    view: dict[str, Any], code: int, answering: Service, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer_job(answering, view)

    assert laxity(monkeypatch, "submit", file) == code


@pytest.mark.parametrize(
    ("finished_at", "code"),
    [
        pytest.param(1_999_999_999.0, 0, id="the promise was kept"),
        pytest.param(2_000_000_001.0, 6, id="the promise was broken"),
    ],
)
def test_following_a_job_ends_with_how_it_came_out(
    finished_at: float,
    code: int,
    answering: Service,
    file: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer_job(answering, job())
    views = iter([job(), job(revision=8), job(state="finished", finished_at=finished_at)])
    answering.answers["GET /v1/jobs/default/train"] = lambda _: (200, next(views))

    assert laxity(monkeypatch, "submit", file, "--follow") == code


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        pytest.param(("show", "nobody"), 4, id="no such job"),
        pytest.param(("submit", "nowhere.yaml"), 2, id="no such file"),
        pytest.param(("release",), 2, id="neither a job nor --all"),
        pytest.param(("release", "train", "--all"), 2, id="a job and --all"),
        pytest.param(("release", "--all", "--undo"), 2, id="all taken back"),
        pytest.param(("release", "nobody"), 4, id="no such job to release"),
        pytest.param(("release", "nobody", "--undo"), 4, id="no such job to take back"),
        pytest.param(("amend", "train"), 2, id="no deadline"),
        pytest.param(("accept", "train", "0"), 2, id="offers count from one"),
        pytest.param(("--url", "nowhere", "ls"), 2, id="no address"),
        pytest.param(("--url", "http://127.0.0.1:99999", "ls"), 2, id="no port"),
        pytest.param(("--url", "http://127.0.0.1:x", "ls"), 2, id="a port in letters"),
    ],
)
def test_what_cannot_be_done_has_its_exit_code_and_a_sentence(
    arguments: tuple[str, ...],
    code: int,
    answering: Service,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert laxity(monkeypatch, *arguments) == code
    assert "rror" in capsys.readouterr().err


TRAIN = """
from laxity import Training, deadline_flow

@deadline_flow(deadline="20m", epochs=8, epoch_estimate="2s")
def train(training: Training, alpha: float = 0.1) -> float: ...
"""
TRAIN_PY = ("submit", "train.py:train")


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        pytest.param((*TRAIN_PY, "--deadline", "20"), "20s, 20m or 20h", id="no unit"),
        pytest.param((*TRAIN_PY, "--deadline", "2027-01-01T06:00"), "no time zone", id="no zone"),
        pytest.param((*TRAIN_PY, "--deadline", "1x"), "1h30m", id="an unknown unit"),
        pytest.param((*TRAIN_PY, "--deadlin", "1h"), "--deadline", id="a misspelt option"),
        pytest.param((*TRAIN_PY, "--estimate", "5"), "5s, 5m or 5h", id="an estimate, no unit"),
        pytest.param((*TRAIN_PY, "--class", "gold"), "hard, soft, best_effort", id="a class"),
        pytest.param(
            (*TRAIN_PY, "--class", "best_effort", "--deadline", "1h"),
            "leave the deadline out",
            id="best effort by a deadline",
        ),
        pytest.param((*TRAIN_PY, "--workers", "0"), "from 1 to", id="no workers"),
        pytest.param((*TRAIN_PY, "--workers", "4..1"), "write 1..4", id="a backward range"),
        pytest.param((*TRAIN_PY, "--epochs", "0"), "greater than", id="no epochs"),
        pytest.param((*TRAIN_PY, "--name", "Hello World"), "a-z, 0-9", id="a name with a space"),
        pytest.param((*TRAIN_PY, "--key", ""), "idempotency_key", id="an empty key"),
        pytest.param((*TRAIN_PY, "--pass-env", "A B"), "FOO_*", id="a variable with a space"),
        pytest.param((*TRAIN_PY, "--timeout", "5s"), "add --follow", id="a limit of nothing"),
        pytest.param((*TRAIN_PY, "-p", "alpha=nan"), "alpha is a float", id="NaN"),
        pytest.param((*TRAIN_PY, "-p", "alhpa=1"), "alhpa", id="a misspelt parameter"),
        pytest.param((*TRAIN_PY, "-p", "alpha"), "KEY=VALUE", id="a parameter without a value"),
        pytest.param(("submit", "train.py:trian"), "it has: train", id="a misspelt function"),
        pytest.param(("submit", "tarin.py:train"), "no file", id="a misspelt file"),
        pytest.param(("submit", "train.py"), "train.py:FUNCTION", id="a file without a function"),
        pytest.param(("whatif", "train.py:train", "--deadline", "soon"), "1h30m", id="what if"),
        pytest.param(("predict", "train.py:train", "--workers", "x"), '"auto"', id="predict"),
        pytest.param(("profile", "tarin.py:train"), "no file", id="profile"),
        pytest.param(("bench", "nothing"), "No such command", id="bench"),
        pytest.param(("up", "--slots", "0"), "--slots", id="no slots"),
    ],
)
def test_what_is_typed_wrong_is_told_before_any_service_is_asked(
    typed: tuple[str, ...],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(names.ENV_URL, "http://127.0.0.1:9")

    assert laxity(monkeypatch, *typed) == 2
    assert words in " ".join(capsys.readouterr().err.split())


def test_a_job_is_released_and_taken_back(
    answering: Service, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answering.answers["POST /v1/jobs/default/train/release"] = (200, {"released": "default/train"})
    answering.answers["DELETE /v1/jobs/default/train/release"] = (
        200,
        {"taken_back": "default/train"},
    )

    assert laxity(monkeypatch, "release", "train") == 0
    assert laxity(monkeypatch, "release", "train", "--undo", "--json") == 0
    released, taken_back = capsys.readouterr().out.splitlines()
    assert "never resized or stopped; laxity release train --undo takes that back" in released
    assert json.loads(taken_back) == {"taken_back": "default/train"}


def test_a_pinned_job_is_listed_and_shown_as_pinned_until_it_ends(
    answering: Service, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = job("gone", pinned=True, state="finished", finished_at=1_999_999_999.0)
    views = [job(pinned=True), job("other"), ended]
    answering.answers["GET /v1/jobs"] = (200, {"jobs": views})
    answering.answers["GET /v1/jobs/default/train"] = (200, views[0])

    assert laxity(monkeypatch, "ls", "--all") == 0
    _, pinned, other, gone = capsys.readouterr().out.splitlines()
    assert laxity(monkeypatch, "show", "train") == 0
    assert "running, pinned" in pinned
    assert "pinned" not in other + gone
    assert "running, pinned: counted, never resized or stopped" in capsys.readouterr().out


def test_an_absent_service_is_exit_code_five_and_says_how_to_start_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(names.ENV_URL, "http://127.0.0.1:9")

    for command in ("ls", "top"):
        assert laxity(monkeypatch, command) == 5
        assert "laxity up" in capsys.readouterr().err


def test_another_program_that_answers_there_is_no_missing_job(
    answering: Service, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answering.answers["GET /v1/jobs"] = (404, "<h1>not here</h1>")

    assert laxity(monkeypatch, "ls") == 2
    assert f"what answers at {answering.url} is no laxity service" in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_a_sentence_with_its_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unwritable() -> None:
        with open("/proc/nowhere/file", "w"):  # noqa: PTH123 - the plainest failing write
            raise AssertionError

    with pytest.raises(SystemExit) as ended:
        run(unwritable)

    assert ended.value.code == 1
    assert capsys.readouterr().err == "error: /proc/nowhere/file: No such file or directory\n"


@pytest.mark.parametrize("name", ["", "a/b/c", "/a", "a/"])
def test_what_can_be_no_job_is_not_asked_for(
    name: str,
    answering: Service,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert laxity(monkeypatch, "show", name) == 4
    assert "write NAME or NAMESPACE/NAME" in capsys.readouterr().err
    assert answering.asked == []


def test_a_wrong_field_is_named_once(
    answering: Service,
    file: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    error = {"code": "invalid", "message": "deadline: 5 of what?", "field": "deadline"}
    answering.answers["POST /v1/whatif"] = (422, {"error": error})

    assert laxity(monkeypatch, "whatif", file) == 2
    assert capsys.readouterr().err == "error: deadline: 5 of what?\n"


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
def test_every_reading_command_gives_the_services_json(  # noqa: PLR0917 - fixtures and a case
    arguments: tuple[str, ...],
    path: str,
    content: dict[str, Any],
    answering: Service,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    answering.answers[f"GET {path}"] = (200, content)

    code = laxity(monkeypatch, *arguments, "--json")

    assert code == 0
    assert json.loads(capsys.readouterr().out) == content


def test_jobs_are_listed_with_what_a_person_wants_to_know(
    answering: Service, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = job("old", state="finished", finished_at=1_999_999_999.0)
    answering.answers["GET /v1/jobs"] = (200, {"jobs": [job(), ended]})

    laxity(monkeypatch, "ls")
    shown = capsys.readouterr().out

    assert "train" in shown
    assert "promised" in shown
    assert "3/10" in shown
    assert "1m40s" in shown  # laxity
    assert "old" not in shown


def test_a_refusal_is_shown_with_its_code_and_its_offers(
    answering: Service, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer_job(answering, REFUSED)

    laxity(monkeypatch, "show", "train")
    shown = capsys.readouterr().out

    assert "deadline_before_fastest_finish" in shown
    assert "1. a deadline of" in shown
    assert "laxity accept train" in shown


def test_an_offer_whose_deadline_has_passed_is_not_offered(
    answering: Service, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    past = {**OFFER, "deadline_at": 1_000.0}
    soft = {**OFFER, "kind": "soft", "deadline_at": 1_000.0}
    answer_job(answering, {**REFUSED, "offers": [past, soft]})
    laxity(monkeypatch, "show", "train")
    shown = capsys.readouterr().out
    assert "1. a deadline of" not in shown
    assert "2. class soft" in shown

    answer_job(answering, {**REFUSED, "offers": [past]})
    laxity(monkeypatch, "show", "train")
    shown = capsys.readouterr().out
    assert "Take one with" not in shown
    assert "Its offers have expired" in shown


def test_whatif_shows_the_effect_on_others_and_submits_nothing(
    answering: Service,
    file: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    effect = {"job": "default/other", "p90_before": 2_000_000_000.0, "p90_after": 2_000_000_060.0}
    verdict = {
        "verdict": "refused",
        "reason_code": "capacity_promised_to_others",
        "effects": [effect, effect | {"job": "default/still", "p90_after": 2_000_000_000.1}],
        "offers": [OFFER],
    }
    answering.answers["POST /v1/whatif"] = (200, verdict)

    code = laxity(monkeypatch, "whatif", file)

    assert code == 3
    shown = capsys.readouterr().out
    assert "(1m00s later)" in shown
    assert "default/still" not in shown
    assert "Nothing was submitted" in shown
    assert "laxity accept" not in shown
    assert [row.path for row in answering.asked] == ["/v1/whatif"]


def test_accepting_names_the_offer_and_shows_the_new_verdict(
    answering: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer_job(answering, job())

    code = laxity(monkeypatch, "accept", "train", "2")

    assert code == 0
    assert answering.asked[0].body == {"offer": 2}


def test_an_amended_deadline_is_sent_as_it_was_written(
    answering: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer_job(answering, job())

    laxity(monkeypatch, "amend", "train", "--deadline", "90m")

    assert answering.asked[0].body == {"deadline": "90m"}


def test_jobs_are_cancelled_one_after_the_other(
    answering: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        answering.answers[f"DELETE /v1/jobs/default/{name}"] = (200, {})

    laxity(monkeypatch, "cancel", "a", "b")

    assert [row.method for row in answering.asked] == ["DELETE", "DELETE"]


def test_an_ended_job_is_not_said_to_be_cancelled(
    answering: Service, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answering.answers["DELETE /v1/jobs/default/a"] = (200, job("a", state="finished"))
    answering.answers["DELETE /v1/jobs/default/b"] = (200, job("b", state="running"))

    assert laxity(monkeypatch, "cancel", "a", "b") == 0

    assert capsys.readouterr().out.splitlines() == ["a: already finished", "b: cancelled"]


def test_no_decisions_are_said_to_be_none(
    answering: Service, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answering.answers["GET /v1/decisions"] = (200, {"decisions": []})

    laxity(monkeypatch, "decisions", "--job", "nobody")

    assert capsys.readouterr().out == "no decisions of nobody are kept\n"


def test_cluster_says_what_became_of_the_promises(
    answering: Service, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    promises = {"given": 7, "kept": 4, "broken": 0, "open": 1, "failed": 2, "cancelled": 0}
    answering.answers["GET /v1/cluster"] = (200, {"total_gpus": 4, "promises": promises})

    laxity(monkeypatch, "cluster")

    expected = "7 promises given: 4 kept, 1 open, 2 ended by an error of the training"
    assert expected in capsys.readouterr().out


def test_top_into_a_pipe_prints_once(
    answering: Service, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answering.answers["GET /v1/cluster"] = (200, {"total_gpus": 4, "free_gpus": 1, "policy": "qos"})
    answering.answers["GET /v1/jobs"] = (200, {"jobs": [job()]})

    code = laxity(monkeypatch, "top")

    assert code == 0
    assert "3 of 4 GPUs busy" in capsys.readouterr().out


class FullDisk(StringIO):
    def write(self, _text: str) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_disk_that_is_full_is_said_and_no_traceback(
    answering: Service, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answering.answers["GET /v1/jobs"] = (200, {"jobs": [job()]})
    monkeypatch.setattr("sys.stdout", FullDisk())
    code = laxity(monkeypatch, "ls", "--json")
    said = capsys.readouterr().err
    assert (code, said.startswith("error: what is printed cannot be written: No space")) == (
        1,
        True,
    )


def test_another_program_that_cannot_take_a_job_is_no_laxity_service(
    answering: Service,
    file: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    answering.answers["POST /v1/jobs"] = (501, "<!DOCTYPE HTML>")
    assert laxity(monkeypatch, "submit", file) == 2
    assert "is no laxity service (HTTP 501: " in capsys.readouterr().err
