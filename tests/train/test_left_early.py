"""A loop over the epochs that code leaves early: the epoch in flight counts, one that raised not."""

import itertools
import runpy
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest

from laxity import Training
from laxity.worker.checkpoints import saving
from laxity.worker.checkpoints.checkpoint import Checkpoints
from laxity.worker.reports import read_lines
from laxity.worker.training import run_of
from tests.support.job_workers import JobWorkers
from tests.support.training_service import Service

EPOCHS = 40
EPOCH_S = 0.02
Loop = Callable[[Training], object]


def train() -> None:
    time.sleep(EPOCH_S)


def breaks(training: Training) -> None:
    for epoch in training.epochs():
        train()
        if epoch == 6:
            break


def returns(training: Training) -> int:
    for epoch in training.epochs():
        train()
        if epoch == 6:
            return len(str(epoch))
    return 0


def breaks_in_a_handler(training: Training) -> None:
    for epoch in training.epochs():
        train()
        try:
            assert epoch < 6
        except AssertionError:
            break


def keeps_its_iterator(training: Training) -> None:
    epochs = iter(training.epochs())
    for epoch in epochs:
        train()
        if epoch == 6:
            break


def zips(training: Training) -> None:
    for _ in zip(range(6), training.epochs(), strict=False):
        train()


def zips_the_other_way(training: Training) -> None:
    for _ in zip(training.epochs(), range(6), strict=False):
        train()


def counts(training: Training) -> None:
    for number, _ in enumerate(training.epochs()):
        train()
        if number == 5:
            break


def watches(training: Training) -> None:
    def bar(epochs: Iterator[int]) -> Iterator[int]:
        try:
            yield from epochs
        finally:
            str(training)

    for epoch in bar(epoch for epoch in training.epochs()):
        train()
        if epoch == 6:
            break


def closes(training: Training) -> None:
    epochs: Any = training.epochs()
    with closing(epochs):
        for _ in itertools.islice(epochs, 6):
            train()


def breaks_at_the_next_beginning(training: Training) -> None:
    for epoch in training.epochs():
        if epoch == 7:
            break
        train()


def logs_and_leaves_at_the_next_beginning(training: Training) -> None:
    for epoch in training.epochs():
        if epoch == 7:
            time.sleep(2 * EPOCH_S)  # an evaluation
            break
        train()
        training.log(loss=1.0)


@pytest.mark.parametrize(
    "loop",
    [
        breaks, returns, breaks_in_a_handler, keeps_its_iterator, zips, zips_the_other_way, counts,
        watches, closes, breaks_at_the_next_beginning, logs_and_leaves_at_the_next_beginning,
    ],
)  # fmt: skip
def test_the_epoch_in_flight_counts_if_it_was_trained_and_is_saved_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loop: Loop
) -> None:
    monkeypatch.setattr(saving, "FREE_SAVE_S", -1.0)
    monkeypatch.setenv("LAXITY_SAVING_SHARE", "0.000001")  # no time for saves in between
    training, weights = Training(EPOCHS, folder=tmp_path), [0.0]
    training.restore(weights)

    loop(training)
    run_of(training).finish()

    newest = Checkpoints(tmp_path).newest()
    lines = [line for line in read_lines(tmp_path / "reports.jsonl") if line["kind"] == "epoch"]
    assert [line["epoch"] for line in lines] == [1, 2, 3, 4, 5, 6]
    assert min(line["epoch_s"] for line in lines) >= EPOCH_S
    assert newest is not None
    assert (newest.epoch, training.epoch, training.done) == (6, 6, True)


def raises(training: Training) -> None:
    for epoch in training.epochs():
        train()
        training.log(loss=1.0)
        if epoch == 6:
            raise ValueError("no better")


def raises_in_a_call(training: Training) -> None:
    for epoch in training.epochs():
        train()
        training.log(loss=float("x" if epoch == 6 else "1"))


def raises_through_a_finally(training: Training) -> None:
    for epoch in training.epochs():
        try:
            train()
            if epoch == 6:
                raise ValueError("no better")
        finally:
            training.log(loss=1.0)


def raises_in_a_watched_loop(training: Training) -> None:
    for epoch in (epoch for epoch in training.epochs()):
        train()
        training.log(loss=float("x" if epoch == 6 else "1"))


@pytest.mark.parametrize(
    "loop", [raises, raises_in_a_call, raises_through_a_finally, raises_in_a_watched_loop]
)
def test_an_epoch_that_an_exception_ends_does_not_count(tmp_path: Path, loop: Loop) -> None:
    training = Training(EPOCHS, folder=tmp_path)
    training.restore([0.0])

    with pytest.raises(ValueError, match=r"no better|not convert"):
        loop(training)
    run_of(training).finish()

    assert training.done
    assert training.epoch == 5


@pytest.mark.slow
@pytest.mark.parametrize(("how", "done"), [("break", 6), ("raise", 5)])
def test_a_finish_reports_how_many_epochs_were_trained(
    job_workers: JobWorkers, service: Service, how: str, done: int
) -> None:
    parameters = f'{{"gates": "{job_workers.gates}", "how": "{how}"}}'

    code = job_workers.run(
        "stops_early", environ={"LAXITY_EPOCHS": "40", "LAXITY_PARAMETERS": parameters}
    )

    (finished,) = service.of("finished")
    figures = [line["metrics"]["loss"] for line in service.of("epoch")]
    newest = Checkpoints(job_workers.folder).newest()
    assert newest is not None
    assert (code, finished["epochs_done"], len(figures), newest.epoch) == (0, done, done, done)
    assert (figures[-1] == finished["result"]) is (how == "break")


def test_a_loop_with_no_epoch_left_ends_at_once_and_says_so(tmp_path: Path) -> None:
    first = Training(2, folder=tmp_path)
    first.restore([0])
    before, trained = first.done, list(first.epochs())

    again = Training(2, folder=tmp_path)
    again.restore([0])
    done, epochs = again.done, iter(again.epochs())

    assert (before, trained, first.done, done) == (False, [1, 2], True, True)
    assert next(epochs, None) is None
    with pytest.raises(StopIteration, match=r"no epoch is left of 2: see training\.done"):
        next(epochs)


CALLBACK = """
from contextlib import suppress

class Plain:
    def begin(self, epochs): self.epochs = epochs; self.take()
    def take(self): self.got = next(self.epochs)

class Default(Plain):
    def take(self): self.got = next(self.epochs, None)

class Caught(Plain):
    def take(self):
        self.got = "caught"
        with suppress(StopIteration):
            self.got = next(self.epochs)
"""
LIBRARY = """
def fit(callback, epochs, resume_at, total):
    on_begin(callback, epochs)
    for epoch in range(resume_at, total):
        callback.take()

def on_begin(callback, epochs):
    callback.epochs = epochs
    callback.take()
"""


@pytest.fixture
def fit(tmp_path: Path) -> Callable[..., None]:
    """The training loop of an installed library, as it calls back."""
    file = tmp_path / "site-packages/library.py"
    file.parent.mkdir()
    file.write_text(LIBRARY)
    return cast("Callable[..., None]", runpy.run_path(str(file))["fit"])


def callback_of(kind: str) -> Any:
    made: dict[str, Any] = {}
    exec(CALLBACK, made)  # noqa: S102 - the user's file
    return made[kind]()


@pytest.mark.parametrize(
    "resume_at", [pytest.param(0, id="first start"), pytest.param(2, id="over")]
)
@pytest.mark.parametrize(("kind", "got"), [("Plain", 2), ("Default", None), ("Caught", "caught")])
def test_a_callback_that_calls_next_on_a_finished_training_goes_on(
    tmp_path: Path, fit: Callable[..., None], kind: str, got: object, resume_at: int
) -> None:
    if resume_at:
        earlier = Training(2, folder=tmp_path)
        earlier.restore([0])
        list(earlier.epochs())
    training, callback = Training(2, folder=tmp_path), callback_of(kind)
    training.restore([0])

    fit(callback, iter(training.epochs()), resume_at, 2)

    assert (training.done, callback.got) == (True, got)


def test_a_library_that_trains_beyond_the_last_epoch_is_stopped(
    tmp_path: Path, fit: Callable[..., None]
) -> None:
    training = Training(2, folder=tmp_path)
    training.restore([0])

    with pytest.raises(StopIteration, match="no epoch is left of 2"):
        fit(callback_of("Plain"), iter(training.epochs()), 0, 3)


def test_next_outside_of_a_callback_ends_a_loop_by_hand(tmp_path: Path) -> None:
    training, trained = Training(2, folder=tmp_path), []
    training.restore([0])
    epochs = iter(training.epochs())

    while True:
        try:
            trained.append(next(epochs))
        except StopIteration:
            break

    assert trained == [1, 2]
