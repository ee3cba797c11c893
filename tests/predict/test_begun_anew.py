"""Epochs that a stop lost count neither in what is learned nor in a chart."""

from pathlib import Path

import pytest

from laxity_profiler.history.history_database import open_transaction, predictions_of
from laxity_profiler.learning.learner import Learner
from laxity_scheduler.model.job import Job
from laxity_scheduler.notifications.chart_points import epoch_points
from laxity_scheduler.service.feedback import Feedback
from laxity_scheduler.service.views.view_cache import ViewChange
from tests.support.builders import MINUTE_EPOCHS, cluster, job
from tests.support.runs import history_in

MINUTE_S = 60.0


def training(done: int, *, began_at: float) -> Job:
    """Of ten epochs of a minute, in the one after `done`."""
    return job(
        "a", done=done, running=1, epoch_started_at=began_at + done * MINUTE_S, since=began_at
    )


@pytest.mark.parametrize(
    ("began_again_at", "took_s"),
    [
        pytest.param(0.0, 600.0, id="undisturbed"),
        pytest.param(400.0, 600.0, id="begun anew between two looks"),
    ],
)
def test_time_of_lost_epochs_is_not_learned(
    tmp_path: Path, began_again_at: float, took_s: float
) -> None:
    history = history_in(tmp_path)
    feedback = Feedback(history, Learner(history))
    rows = [training(done, began_at=0.0) for done in (0, 3, 6)]
    rows += [training(done, began_at=began_again_at) for done in (0 if began_again_at else 7, 8)]
    for row in rows:
        state = cluster(gpus=1, jobs=[row], now=row.epoch_started_at or 0.0)
        feedback.record_transitions(state, MINUTE_EPOCHS, {row.id: "uid"})

    ended = {"uid": "uid", "state": "finished", "finished_at": began_again_at + 10 * MINUTE_S}
    feedback.record_finishes([ViewChange(None, ended)], now=began_again_at + 10 * MINUTE_S)

    with open_transaction(history.engine) as connection:
        actual = {row.stage: row.actual_s for row in predictions_of(connection, "uid")}
    assert actual["start"] == took_s
    assert actual["half"] == took_s - (8 if began_again_at else 6) * MINUTE_S
    history.engine.dispose()


def test_an_epoch_that_is_trained_again_is_no_second_point_of_its_step() -> None:
    line = {"kind": "epoch", "epoch": 1, "at": 1.0, "epoch_s": 1.0, "width": 1, "bytes": 0}
    again = line | {"at": 9.0, "again": True}

    assert [point.at for point in epoch_points([line, again])] == [1.0]
