"""A replica that takes over predicts with all that was learned while another one led."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from laxity_profiler.estimate import Progress
from laxity_profiler.learning.learner import Learner
from laxity_scheduler.process.start import RefreshingLearner
from tests.support.first_epoch import Link, read_line, told, unseen, within
from tests.support.runs import LATER_AT, epoch_line, history_in, line, trained, workload

MLP = workload("mlp", epochs=6)
EPOCH_S = 10.0
EPOCHS = [EPOCH_S, 10.2, 9.8, 10.1, 9.9, 10.0]


class Pair:
    """Two replicas on one store: the first leads, the second stands by."""

    def __init__(self, folder: Path) -> None:
        self.histories = [history_in(folder), history_in(folder)]
        self.learners = [Learner(history) for history in self.histories]
        self.replicas = [
            RefreshingLearner(history, learner)
            for history, learner in zip(self.histories, self.learners, strict=True)
        ]

    def finishes(self, number: int, took: float) -> None:
        """A job that was predicted by the leader ends `took` times as late as its P50."""
        leader, uid = self.learners[0], f"job-{number}"
        trained(self.histories[0], uid, "mlp", epoch_s=EPOCHS)
        said = leader.predictor().remaining(MLP, Progress(0, (), ()), 1)
        at = LATER_AT + 1_000.0 * number
        leader.note_prediction(uid, MLP, stage="start", at=at, estimate=said, version="v")
        leader.observe_finish(uid, at=at + took * said.p50_s)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path)
    yield made
    for history in made.histories:
        history.engine.dispose()


def test_the_p90_of_who_takes_over_is_as_careful_as_the_outcomes_ask_for(pair: Pair) -> None:
    trained(pair.histories[0], "first", "mlp", epoch_s=EPOCHS)
    leader, standby = pair.replicas
    leader.predictor()
    for number in range(12):
        pair.finishes(number, took=1.6)
    unaware_s = standby.predictor().remaining(MLP, Progress(0, (), ()), 1).p90_s
    pair.learners[1].reload_outcomes()
    aware_s = standby.predictor().remaining(MLP, Progress(0, (), ()), 1).p90_s
    assert aware_s > unaware_s, "it would have promised what the one before it would not"


def test_catching_up_with_nothing_new_changes_nothing(pair: Pair) -> None:
    trained(pair.histories[0], "first", "mlp", epoch_s=EPOCHS)
    before = pair.replicas[1].predictor()
    pair.learners[1].reload_outcomes()
    assert pair.replicas[1].predictor() is before


def test_the_end_of_a_job_whose_workers_told_the_other_replica_is_learned_from(
    pair: Pair,
) -> None:
    """A call may reach either replica; the leader alone sees the Job's end."""
    leader, other = pair.histories
    lines = [line(1, "formed", width=1, epoch=0), epoch_line(2, 1, at=LATER_AT)]
    lines += [line(3, "finished", at=LATER_AT + 3.0, finishing_s=3.0)]
    other.ingest("job", "default/job", workload("mlp", epochs=1), lines, received_at=LATER_AT)
    leader.refresh()
    leader.observe_finish("job", at=LATER_AT + 4.0)
    assert [(stop.kind, stop.seconds) for stop in leader.stops()] == [("finishing", 4.0)]


def test_what_an_unknown_model_reads_is_known_to_every_replica(pair: Pair) -> None:
    told_to, other = pair.histories
    lines, _ = told(Link())
    shown = [line(1, "formed", width=1, epoch=0), read_line(2, within(lines, 13.0))]
    told_to.ingest("job", "default/job", unseen(), shown, received_at=LATER_AT)
    other.refresh()
    assert other.first_epochs() == told_to.first_epochs() != []
