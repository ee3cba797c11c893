"""Each outcome has its exit code, and what cannot be done is told in a sentence."""

import errno
import json
import os
import signal
import sys
import tomllib
from collections.abc import Iterator
from functools import partial
from io import StringIO
from itertools import chain, repeat
from pathlib import Path
from threading import Event
from typing import Any, Final

import pytest

from laxity import names
from laxity.cli import commands_jobs
from laxity.cli.exit_codes import run_app
from tests.support.command_line import CommandLine
from tests.support.http_service import Service, job
from tests.support.job_answers import REFUSED, answer_job
from tests.support.processes import run_command

ROOT: Final = Path(__file__).parents[2]


def test_control_c_while_the_console_script_imports_ends_it_without_a_traceback(
    tmp_path: Path,
) -> None:
    interrupting = "import os, signal; os.kill(os.getpid(), signal.SIGINT)"
    (tmp_path / "typer.py").write_text(interrupting)
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    module, _, function = scripts["laxity"].partition(":")
    path = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]

    done = run_command(
        sys.executable,
        "-c",
        f"from {module} import {function}; {function}()",
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path)},
    )

    assert (done.returncode, done.stderr) == (130, "")


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
    view: dict[str, Any], code: int, answering: Service, file: str, laxity: CommandLine
) -> None:
    answer_job(answering, view)

    assert laxity("submit", file) == code


def test_a_key_of_another_declaration_is_wrong_usage_not_a_failed_training(
    answering: Service, file: str, laxity: CommandLine
) -> None:
    error = {"code": "conflict", "message": "key k is that of another declaration"}
    answering.answers["POST /v1/jobs"] = (409, {"error": error})

    assert laxity("submit", file, "--key", "k") == 2


@pytest.mark.parametrize(
    ("status", "error_code"),
    [
        pytest.param(401, "unauthorized", id="a token that is not known"),
        pytest.param(403, "forbidden", id="a namespace that the token does not open"),
    ],
)
def test_a_token_that_does_not_do_is_wrong_usage_not_a_failed_training(
    status: int, error_code: str, answering: Service, file: str, laxity: CommandLine
) -> None:
    error = {"code": error_code, "message": "this token does not open it"}
    answering.answers["POST /v1/jobs"] = (status, {"error": error})

    assert laxity("submit", file) == 2


@pytest.mark.parametrize(
    ("url", "cure"),
    [
        pytest.param("http://127.0.0.1:9", "start one with: laxity up", id="on this machine"),
        pytest.param(
            "http://laxity.invalid:8642", "is the address right (LAXITY_URL", id="elsewhere"
        ),
    ],
)
def test_a_service_that_is_away_is_started_here_or_its_address_doubted(
    url: str, cure: str, laxity: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("laxity.api.transport.time.sleep", lambda _: None)

    assert laxity("--url", url, "ls") == 5

    assert cure in laxity.read_output()[1]


@pytest.mark.parametrize(
    ("finished_at", "code"),
    [
        pytest.param(1_999_999_999.0, 0, id="the promise was kept"),
        pytest.param(2_000_000_001.0, 6, id="the promise was broken"),
    ],
)
def test_following_a_job_ends_with_how_it_came_out(
    finished_at: float, code: int, answering: Service, file: str, laxity: CommandLine
) -> None:
    answer_job(answering, job())
    views = iter([job(), job(revision=8), job(state="finished", finished_at=finished_at)])
    answering.answers["GET /v1/jobs/default/train"] = lambda _: (200, next(views))

    assert laxity("submit", file, "--follow") == code


@pytest.mark.parametrize("is_kept", [pytest.param(True, id="kept"), pytest.param(False, id="gone")])
def test_following_a_job_that_fails_shows_what_its_worker_wrote_last(
    is_kept: bool, answering: Service, file: str, laxity: CommandLine
) -> None:
    answer_job(answering, job())
    error = "worker 1 failed with exit code 70: EOFError"
    views = iter([job(), job(revision=8), job(state="failed", error=error)])
    answering.answers["GET /v1/jobs/default/train"] = lambda _: (200, next(views))
    if is_kept:
        text = "Traceback\n\x1b[31mEOFError: EOF when reading a line\n"
        answering.answers["GET /v1/jobs/default/train/logs"] = (200, {"text": text})

    assert laxity("submit", file, "--follow") == 1

    told = laxity.read_errors()
    assert ("\nTraceback\nEOFError: EOF when reading a line\n" in told) == is_kept
    assert ("last lines of laxity logs default/train --index 1" in told) == is_kept
    assert "index=1" in answering.asked[-1].path


def test_sigterm_ends_following_in_a_sentence_and_the_job_goes_on(
    answering: Service, file: str, laxity: CommandLine
) -> None:
    verdict_is_read = Event()

    def end_the_command(_: Any) -> tuple[int, dict[str, Any]]:
        if verdict_is_read.is_set():
            os.kill(os.getpid(), signal.SIGTERM)
        verdict_is_read.set()
        return 200, job(revision=8)

    answer_job(answering, job())
    answering.answers["GET /v1/jobs/default/train"] = end_the_command

    assert laxity("submit", file, "--follow") == 143
    assert "stopped following default/train: it goes on" in laxity.read_errors()
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_a_hard_job_without_a_verdict_is_no_success(
    answering: Service, file: str, monkeypatch: pytest.MonkeyPatch, laxity: CommandLine
) -> None:
    monkeypatch.setattr(commands_jobs, "VERDICT_WAIT_S", 0.0)
    answer_job(
        answering, job(verdict="none", state="queued", workers=0, reason="no rights in team")
    )

    assert laxity("submit", file) == 7
    assert "default/train has no verdict yet: no rights in team" in laxity.read_errors()


def test_a_job_without_a_deadline_that_runs_is_not_waited_for_under_a_policy_without_verdicts(
    answering: Service, file: str, monkeypatch: pytest.MonkeyPatch, laxity: CommandLine
) -> None:
    monkeypatch.setattr(commands_jobs, "VERDICT_WAIT_S", 3600.0)
    waits = job(verdict="none", state="queued", workers=0) | {"class": "best_effort"}
    views = chain([waits], repeat({**waits, "state": "running", "workers": 1}))
    answer_job(answering, waits)
    answering.answers["GET /v1/jobs/default/train"] = partial(next_view, views)

    assert laxity("submit", file) == 0


def next_view(views: Iterator[dict[str, Any]], _: object) -> tuple[int, dict[str, Any]]:
    return 200, next(views)


def test_all_jobs_of_a_file_are_submitted_with_keys_of_their_own_before_one_is_followed(
    answering: Service, tmp_path: Path, laxity: CommandLine
) -> None:
    answering.answers["POST /v1/jobs"] = lambda asked: (
        201, job(asked.body["metadata"]["name"]),
    )  # fmt: skip
    for name in ("one", "two"):
        ended = job(name, state="finished", finished_at=1_999_999_999.0)
        views = chain([job(name)], repeat(ended))
        answering.answers[f"GET /v1/jobs/default/{name}"] = partial(next_view, views)
    manifests = [
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}}
        for name in ("one", "two")
    ]
    (tmp_path / "jobs.json").write_text(json.dumps({"kind": "List", "items": manifests}))

    code = laxity("submit", str(tmp_path / "jobs.json"), "--key", "k", "--follow")

    assert code == 0
    assert [call.method for call in answering.asked[:3]] == ["POST", "POST", "GET"]
    told = laxity.read_errors()
    assert "default/one: promised" in told
    assert "default/two: promised" not in told, "it has ended while the first was followed"
    annotations = [call.body["metadata"]["annotations"] for call in answering.asked[:2]]
    assert [each[names.IDEMPOTENCY_KEY] for each in annotations] == ["k/one", "k/two"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        pytest.param(("show", "nobody"), 4, id="no such job"),
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
    arguments: tuple[str, ...], code: int, answering: Service, laxity: CommandLine
) -> None:
    assert laxity(*arguments) == code
    assert "rror" in laxity.read_errors()


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
        pytest.param(
            (*TRAIN_PY, "--estimate", "5"),
            "--estimate: 5 of what? Write the unit: 5s, 5m or 5h",
            id="an estimate, no unit",
        ),
        pytest.param(
            (*TRAIN_PY, "--class", "gold"),
            "--class: 'gold' is none of hard, soft, best_effort",
            id="a class",
        ),
        pytest.param(
            (*TRAIN_PY, "--class", "best_effort", "--deadline", "1h"),
            "leave the deadline out",
            id="best effort by a deadline",
        ),
        pytest.param((*TRAIN_PY, "--workers", "0"), "from 1 to", id="no workers"),
        pytest.param((*TRAIN_PY, "--workers", "4..1"), "write 1..4", id="a backward range"),
        pytest.param((*TRAIN_PY, "--epochs", "0"), "greater than", id="no epochs"),
        pytest.param((*TRAIN_PY, "--name", "+++"), "a-z, 0-9", id="a name without a letter"),
        pytest.param((*TRAIN_PY, "--key", ""), "--key: ", id="an empty key"),
        pytest.param((*TRAIN_PY, "--pass-env", "A B"), "FOO_*", id="a variable with a space"),
        pytest.param((*TRAIN_PY, "--timeout", "5s"), "add --follow", id="a limit of nothing"),
        pytest.param((*TRAIN_PY, "-p", "alpha=nan"), "alpha = nan is not JSON", id="NaN"),
        pytest.param((*TRAIN_PY, "-p", "alhpa=1"), "alhpa", id="a misspelt parameter"),
        pytest.param((*TRAIN_PY, "-p", "alpha"), "KEY=VALUE", id="a parameter without a value"),
        pytest.param(("run", "--", "pythn", "t.py"), "'pythn' is no program", id="a program"),
        pytest.param(
            ("run", "--", "./train.py"), "-- python ./train.py", id="a file that is no program"
        ),
        pytest.param(("run", "python t.py && ls"), "bash -c 'LINE'", id="a shell's line"),
        pytest.param(("submit", "train.py:trian"), "it has: train", id="a misspelt function"),
        pytest.param(("submit", "nowhere.yaml"), "nowhere.yaml: No such file", id="no such file"),
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
    laxity: CommandLine,
) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(names.ENV_URL, "http://127.0.0.1:9")

    assert laxity(*typed) == 2
    assert words in " ".join(laxity.read_errors().split())


def test_an_absent_service_is_exit_code_five_and_says_how_to_start_one(
    monkeypatch: pytest.MonkeyPatch, laxity: CommandLine
) -> None:
    monkeypatch.setenv(names.ENV_URL, "http://127.0.0.1:9")

    for command in ("ls", "top"):
        assert laxity(command) == 5
        assert "laxity up" in laxity.read_errors()


def test_another_program_that_answers_there_is_no_missing_job(
    answering: Service, laxity: CommandLine
) -> None:
    answering.answers["GET /v1/jobs"] = (404, "<h1>not here</h1>")

    assert laxity("ls") == 2
    assert f"what answers at {answering.url} is no laxity service" in laxity.read_errors()


def test_a_file_that_cannot_be_written_is_a_sentence_with_its_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unwritable() -> None:
        with open("/proc/nowhere/file", "w"):  # noqa: PTH123 - the plainest failing write
            raise AssertionError

    with pytest.raises(SystemExit) as ended:
        run_app(unwritable)

    assert ended.value.code == 1
    assert capsys.readouterr().err == "error: /proc/nowhere/file: No such file or directory\n"


@pytest.mark.parametrize("name", ["", "a/b/c", "/a", "a/"])
def test_what_can_be_no_job_is_not_asked_for(
    name: str, answering: Service, laxity: CommandLine
) -> None:
    assert laxity("show", name) == 4
    assert "write NAME or NAMESPACE/NAME" in laxity.read_errors()
    assert answering.asked == []


def test_a_wrong_field_is_named_once(answering: Service, file: str, laxity: CommandLine) -> None:
    error = {"code": "invalid", "message": "deadline: 5 of what?", "field": "deadline"}
    answering.answers["POST /v1/whatif"] = (422, {"error": error})

    assert laxity("whatif", file) == 2
    assert laxity.read_errors() == "error: deadline: 5 of what?\n"


class FullDisk(StringIO):
    def write(self, _text: str) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_disk_that_is_full_is_said_and_no_traceback(
    answering: Service, monkeypatch: pytest.MonkeyPatch, laxity: CommandLine
) -> None:
    answering.answers["GET /v1/jobs"] = (200, {"jobs": [job()]})
    monkeypatch.setattr("sys.stdout", FullDisk())
    code = laxity("ls", "--json")
    said = laxity.read_errors()
    assert (code, said.startswith("error: what is printed cannot be written: No space")) == (
        1,
        True,
    )


def test_another_program_that_cannot_take_a_job_is_no_laxity_service(
    answering: Service, file: str, laxity: CommandLine
) -> None:
    answering.answers["POST /v1/jobs"] = (501, "<!DOCTYPE HTML>")
    assert laxity("submit", file) == 2
    assert "is no laxity service (HTTP 501: " in laxity.read_errors()
