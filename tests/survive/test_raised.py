"""A real service: a training that raises starts again, and fails where no start would help."""

from collections.abc import Iterator

import pytest

from tests.support.local_service import LocalService, local_service

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
CODE = """
import os
import sys
from pathlib import Path

from laxity import Training, deadline_flow

HERE = Path(__file__).parent


def begin(training: Training, name: str) -> tuple[dict[str, int], int]:
    count = {"epochs": 0}
    training.restore(count)
    starts = HERE / name
    with starts.open("a") as file:
        file.write("x")
    return count, len(starts.read_text())


@deadline_flow(epochs=4, epoch_estimate="1s")
def mended(training: Training) -> list[int]:
    count, start = begin(training, "mended")
    for epoch in training.epochs():
        if epoch == 3 and start == 1:
            raise OSError("stale file handle")
        count["epochs"] += 1
    return [count["epochs"], start]


@deadline_flow(epochs=4, epoch_estimate="1s")
def broken(training: Training) -> None:
    _, start = begin(training, "broken")
    for epoch in training.epochs():
        if epoch == 3:
            raise ValueError("the loss is gone")


@deadline_flow(epochs=4, epoch_estimate="1s")
def killed(training: Training) -> None:
    begin(training, "killed")
    for epoch in training.epochs():
        os._exit(9)


@deadline_flow(epochs=4, epoch_estimate="1s")
def exits(training: Training) -> None:
    begin(training, "exits")
    for _ in training.epochs():
        sys.exit(0)


@deadline_flow(epochs=4, epoch_estimate="1s")
def imports(training: Training) -> None:
    begin(training, "imports")
    import no_such_module
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalService]:
    folder = tmp_path_factory.mktemp("raised")
    (folder / "work.py").write_text(CODE)
    with local_service(folder / "home", LAXITY_SAVING_SHARE="1") as opened:
        yield opened


def submit(served: LocalService, function: str, *more: str, may_have_failed: bool = False) -> None:
    done = served.laxity(
        "submit", f"work.py:{function}", "--name", function, *more, cwd=served.home.parent
    )
    assert done.returncode in {0, 7} or (may_have_failed and done.returncode == 1), done.stderr


def count_starts(served: LocalService, function: str) -> int:
    return len((served.home.parent / function).read_text())


def test_an_exception_starts_the_training_again_from_its_checkpoint(served: LocalService) -> None:
    submit(served, "mended")

    job = served.ended("mended")

    assert (job.state, job.result) == ("finished", [4, 2])
    assert served.reported_epochs("mended") == {"reports.jsonl": [1, 2, 3, 4]}


def test_the_same_exception_twice_in_an_epoch_fails_the_training(served: LocalService) -> None:
    submit(served, "broken")

    job = served.ended("broken")

    assert (job.state, job.epochs_done, count_starts(served, "broken")) == ("failed", 2, 2)
    assert "ValueError: the loss is gone" in job.error


@pytest.mark.parametrize(("function", "error"), [("exits", "sys.exit(0)"), ("imports", "no_such")])
def test_what_no_start_mends_fails_the_training_at_once(
    served: LocalService, function: str, error: str
) -> None:
    submit(served, function, may_have_failed=True)

    job = served.ended(function)

    assert (job.state, count_starts(served, function)) == ("failed", 1)
    assert error in job.error


def test_exit_codes_count_as_exceptions_do_up_to_the_declared_restarts(
    served: LocalService,
) -> None:
    submit(served, "killed", "--restarts", "1")

    job = served.ended("killed")

    assert (job.state, count_starts(served, "killed")) == ("failed", 2)
    assert "exit code 9" in job.error
