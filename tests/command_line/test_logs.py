"""`laxity logs`: what workers wrote, as they wrote it, or why there is nothing."""

import pytest

from tests.support.command_line import laxity
from tests.support.http_service import Service, job


def test_logs_of_a_worker_that_was_never_there_say_so(
    answering: Service, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answering.answers["GET /v1/jobs/default/train/logs"] = (200, {"text": ""})

    laxity(monkeypatch, "logs", "train", "--index", "7")

    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "worker 7 of train has written nothing\n")


def test_logs_of_a_worker_without_words_say_what_the_job_failed_of(
    answering: Service, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answering.answers["GET /v1/jobs/default/train/logs"] = (200, {"text": ""})
    failed = job("train", state="failed", error="worker 1 failed with exit code 3")
    answering.answers["GET /v1/jobs/default/train"] = (200, failed)

    laxity(monkeypatch, "logs", "train")

    said = capsys.readouterr().err
    assert said.endswith("has written nothing; the job says: worker 1 failed with exit code 3\n")


def test_logs_are_printed_as_they_are(
    answering: Service, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answering.answers["GET /v1/jobs/default/train/logs"] = (200, {"text": "epoch 1\n"})

    laxity(monkeypatch, "logs", "train", "--tail", "5")

    assert capsys.readouterr().out == "epoch 1\n"
    assert answering.asked[0].path.endswith("?index=0&tail=5")


def test_followed_logs_show_each_line_once_and_end_with_the_job(
    answering: Service, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = iter(["one\n", "one\ntwo\n"])
    finished = job(state="finished", finished_at=1_999_999_999.0)
    answering.answers["GET /v1/jobs/default/train/logs"] = lambda _: (200, {"text": next(texts)})
    answering.answers["GET /v1/jobs/default/train"] = (200, finished)

    code = laxity(monkeypatch, "logs", "train", "-f")

    assert code == 0
    assert capsys.readouterr().out == "one\ntwo\n"
