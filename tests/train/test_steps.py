"""`training.steps(total=..., every=...)`: all steps of a training, its epochs so many steps each."""

import random
from pathlib import Path

import numpy as np
import pytest

from laxity import Training
from laxity.worker.checkpoints.random_generators import RandomGenerators
from laxity.worker.code.environment import WorkerEnvironment
from laxity.worker.sigterm import SigtermHandler
from laxity.worker.training import TrainingError, training_of
from laxity.worker.worker_run import WorkerRun


@pytest.fixture
def declared(tmp_path: Path) -> Training:
    """A training whose job declares four epochs."""
    return training_of(WorkerRun(WorkerEnvironment(folder=tmp_path, epochs=4), SigtermHandler()))


def steps_by_epoch(training: Training, *, total: int, every: int) -> list[list[int]]:
    epochs: dict[int, list[int]] = {}
    for step in training.steps(total=total, every=every):
        epochs.setdefault(training.epoch, []).append(step)
    return list(epochs.values())


@pytest.mark.parametrize(
    ("total", "every", "lengths"),
    [
        pytest.param(12, 3, [3, 3, 3, 3], id="as it comes out"),
        pytest.param(10, 4, [4, 4, 2], id="a shorter last epoch"),
        pytest.param(2, 5, [2], id="one epoch"),
    ],
)
def test_each_step_is_counted_once_and_an_epoch_is_so_many(
    total: int, every: int, lengths: list[int]
) -> None:
    epochs = steps_by_epoch(Training(), total=total, every=every)

    assert [len(steps) for steps in epochs] == lengths
    assert [step for steps in epochs for step in steps] == list(range(total))


def test_steps_go_on_from_the_last_saved_epoch(tmp_path: Path) -> None:
    first = Training(folder=tmp_path)
    first.restore([0])
    for step in first.steps(total=9, every=3):
        if step == 7:
            break

    again = Training(folder=tmp_path)

    assert again.restore([0]) == 2
    assert list(again.steps(total=9, every=3)) == [6, 7, 8]


def test_a_job_keeps_its_epochs_and_trains_all_steps(
    declared: Training, capsys: pytest.CaptureFixture[str]
) -> None:
    epochs = steps_by_epoch(declared, total=10, every=5)

    assert [len(steps) for steps in epochs] == [2, 3, 2, 3]
    said = "are 2 epochs, and this job declares 4: an epoch has 2.5 steps"
    assert said in capsys.readouterr().err


def test_fewer_steps_than_epochs_are_an_error(declared: Training) -> None:
    with pytest.raises(TrainingError, match="declares 4 epochs"):
        declared.steps(total=3, every=1)
    with pytest.raises(TrainingError, match="expected 1 or more"):
        declared.steps(total=0, every=1)


@pytest.mark.parametrize(("total", "says"), [(30, True), (4, False), (None, False)])
def test_a_total_that_is_not_the_jobs_is_said(
    declared: Training, total: int | None, says: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    trained = sum(1 for _ in declared.epochs(total=total))

    message = "epochs(total=30): this job declares 4 epochs, and trains those"
    assert trained == 4
    assert (message in capsys.readouterr().err) is says


def test_workers_go_on_with_random_numbers_of_their_own() -> None:
    random.seed(7)
    np.random.seed(7)  # noqa: NPY002
    saved = RandomGenerators().state_dict()
    undisturbed = (random.random(), np.random.random())  # noqa: NPY002

    drawn = []
    for rank in (0, 1, 1, 2):
        random.seed()
        RandomGenerators(rank).load_state_dict(saved)
        drawn.append((random.random(), np.random.random()))  # noqa: NPY002

    assert drawn[0] == undisturbed
    assert drawn[1] == drawn[2]
    assert len({*drawn}) == 3
