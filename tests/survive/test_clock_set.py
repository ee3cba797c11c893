"""A system clock that is set, or a machine that sleeps, while jobs start, stop and run."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from laxity_profiler.estimate import NO_PROGRESS, Progress
from laxity_profiler.history.history import History
from laxity_profiler.history.history_database import open_engine, open_transaction, predictions_of
from laxity_profiler.learning.learner import Learner
from laxity_scheduler.model.job import Job
from laxity_scheduler.service.feedback import Feedback
from tests.support.builders import Curve, cluster, job
from tests.support.clocks import Clocks

PREDICTOR = Curve(epoch_s=10.0)
UIDS = {"team/a": "u"}


class Watch:
    """Shows a service's feedback one job, now and then."""

    def __init__(self, folder: Path) -> None:
        self.history = History(open_engine(f"sqlite:///{folder}/laxity.db"))
        self.learner = Learner(self.history)
        self._feedback = Feedback(self.history, self.learner)

    def show(self, row: Job) -> None:
        state = cluster(gpus=1, jobs=[row], now=time.time())
        self._feedback.record_transitions(state, PREDICTOR, UIDS)

    def open_predictions(self) -> int:
        with open_transaction(self.history.engine) as connection:
            return len(predictions_of(connection, "u"))


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Watch]:
    made = Watch(tmp_path)
    yield made
    made.history.engine.dispose()


def starting(resumed_at: float) -> Job:
    return job("a", running=1, epochs=9, resumed_at=resumed_at, formed=0, since=resumed_at)


def trains(row: Job) -> Job:
    now = time.time()
    return replace(row, formed=1, epoch_started_at=now, since=now)


@pytest.mark.parametrize(
    ("set_by_s", "expected"),
    [
        pytest.param(0.0, [20.0], id="a clock that is left alone"),
        pytest.param(3_600.0, [], id="set ahead by an hour, or asleep for one"),
        pytest.param(-10.0, [], id="set back by ten seconds"),
    ],
)
def test_a_start_during_which_the_clock_was_set_is_not_timed(
    watch: Watch, monkeypatch: pytest.MonkeyPatch, set_by_s: float, expected: list[float]
) -> None:
    clocks = Clocks(monkeypatch)
    row = starting(time.time())
    watch.show(row)

    clocks.pass_time(20.0)
    clocks.set_system_clock(set_by_s)
    watch.show(trains(row))

    seconds = [stop.seconds for stop in watch.history.stops()]
    assert seconds == [pytest.approx(s, abs=2.0) for s in expected]


def test_a_park_during_which_the_machine_slept_is_not_timed(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    clocks = Clocks(monkeypatch)
    parked = job("a", running=1, epochs=9, formed=1, parked_epoch=3, since=time.time())
    watch.show(replace(parked, parked_epoch=None))
    watch.show(parked)

    clocks.set_system_clock(5_000.0)
    watch.show(parked)
    watch.show(replace(parked, workers=0, nodes=(), formed=0, parked_epoch=None))

    assert watch.history.stops() == []


def test_a_clock_that_is_set_voids_what_was_predicted(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    clocks = Clocks(monkeypatch)
    row = trains(starting(time.time()))
    watch.show(row)
    before = watch.open_predictions()

    clocks.set_system_clock(3_600.0)
    watch.show(replace(row, progress=Progress(3), since=time.time()))
    watch.learner.observe_finish("u", at=time.time() + 60.0)

    assert (row.progress, before) == (NO_PROGRESS, 1)
    assert [row.stage for row in watch.learner.coverage()] == ["running"], "predicted anew since"
