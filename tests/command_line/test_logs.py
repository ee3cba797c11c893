"""`laxity logs`: what workers wrote, as they wrote it, or why there is nothing."""

import os
import sys

from tests.support.command_line import CommandLine
from tests.support.http_service import Service, job
from tests.support.processes import run_command


def test_logs_of_a_worker_that_was_never_there_say_so(
    answering: Service, laxity: CommandLine
) -> None:
    answering.answers["GET /v1/jobs/default/train/logs"] = (200, {"text": ""})

    laxity("logs", "train", "--index", "7")

    assert laxity.read_output() == ("", "worker 7 of train has written nothing\n")


def test_logs_of_a_worker_without_words_say_what_the_job_failed_of(
    answering: Service, laxity: CommandLine
) -> None:
    answering.answers["GET /v1/jobs/default/train/logs"] = (200, {"text": ""})
    failed = job("train", state="failed", error="worker 1 failed with exit code 3")
    answering.answers["GET /v1/jobs/default/train"] = (200, failed)

    laxity("logs", "train")

    said = laxity.read_errors()
    assert said.endswith("has written nothing; the job says: worker 1 failed with exit code 3\n")


def test_logs_are_printed_as_they_are(answering: Service, laxity: CommandLine) -> None:
    answering.answers["GET /v1/jobs/default/train/logs"] = (200, {"text": "epoch 1\n"})

    laxity("logs", "train", "--tail", "5")

    assert laxity.read() == "epoch 1\n"
    assert answering.asked[0].path.endswith("?index=0&tail=5")


def test_a_terminal_of_another_encoding_gets_the_characters_numbers(answering: Service) -> None:
    answering.answers["GET /v1/jobs/default/train/logs"] = (200, {"text": "d\u00e9j\u00e0\n"})

    done = run_command(
        sys.executable,
        "-m",
        "laxity.cli.main",
        "logs",
        "train",
        env={**os.environ, "PYTHONIOENCODING": "ascii", "LAXITY_URL": answering.url},
    )

    assert (done.returncode, done.stdout) == (0, "d\\xe9j\\xe0\n"), done.stderr


def test_followed_logs_show_each_line_once_and_end_with_the_job(
    answering: Service, laxity: CommandLine
) -> None:
    texts = iter(["one\n", "one\ntwo\n"])
    finished = job(state="finished", finished_at=1_999_999_999.0)
    answering.answers["GET /v1/jobs/default/train/logs"] = lambda _: (200, {"text": next(texts)})
    answering.answers["GET /v1/jobs/default/train"] = (200, finished)

    code = laxity("logs", "train", "-f")

    assert code == 0
    assert laxity.read() == "one\ntwo\n"
