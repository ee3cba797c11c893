"""A training that can save between any two steps stops there, and goes on inside the epoch."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.job_workers import PATIENCE_S, JobWorkers, kill
from tests.support.programs import step_trainings
from tests.support.training_service import Service

pytestmark = pytest.mark.slow
STOPPED = 143
EVERY = step_trainings.EVERY
ALL = {"numbers": list(range(2 * EVERY)), "first": EVERY}


@pytest.fixture
def steps(tmp_path: Path, service: Service) -> Iterator[JobWorkers]:
    job_workers = JobWorkers(
        tmp_path, url=service.url, epochs=2, file=Path(step_trainings.__file__)
    )
    yield job_workers
    job_workers.close()


def test_an_ordered_stop_is_taken_after_the_step_in_flight(
    steps: JobWorkers, service: Service
) -> None:
    worker = steps.start("by_steps")
    steps.open_gate(12)
    steps.until_noted("step", step=13)
    service.tell(stop=True)

    steps.open_gate(13)

    parked = service.until_reported("parked", epoch=1)
    assert parked["share"] == 0.4
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(PATIENCE_S) == STOPPED
    assert [note["step"] for note in steps.notes("step")] == list(range(14))


def test_a_stopped_training_goes_on_with_the_next_step(steps: JobWorkers, service: Service) -> None:
    worker = steps.start("by_steps")
    steps.open_gate(12)
    steps.until_noted("step", step=13)
    worker.send_signal(signal.SIGTERM)
    steps.open_gate(13)
    assert worker.wait(PATIENCE_S) == STOPPED

    steps.open_gate()

    assert steps.run("by_steps") == 0
    assert steps.result() == ALL
    assert [note["step"] for note in steps.notes("step")] == list(range(2 * EVERY))
    assert [line["epoch"] for line in service.of("epoch")] == [1, 2]
    formed = service.of("formed")[1]
    spent_s = service.of("saved")[-2]["spent_s"]
    assert (formed["epoch"], formed["share"], formed["spent_s"]) == (1, 0.4, spent_s)
    assert formed["stops"] == "anywhere"
    assert service.of("epoch")[1]["epoch_s"] > spent_s


def test_a_withdrawn_order_lets_the_epoch_go_on(steps: JobWorkers, service: Service) -> None:
    worker = steps.start("by_steps")
    steps.until_noted("step", step=0)
    service.tell(stop=True)
    steps.open_gate(0)
    service.until_reported("parked", epoch=0, share=0.1)
    steps.open_gate()

    service.order(stop=False)

    assert worker.wait(PATIENCE_S) == 0
    assert steps.result() == ALL
    assert len(steps.notes("step")) == 2 * EVERY


def test_a_kill_inside_the_epoch_begins_where_it_was_saved_last(
    steps: JobWorkers, service: Service
) -> None:
    worker = steps.start("by_steps")
    steps.until_noted("step", step=0)
    service.tell(stop=True)
    steps.open_gate(4)
    service.until_reported("parked", share=0.1)
    service.order(stop=False)
    steps.until_noted("step", step=5)
    kill(worker)
    steps.open_gate()

    assert steps.run("by_steps") == 0

    assert steps.result() == ALL
    numbers = [note["step"] for note in steps.notes("step")]
    assert numbers == [*range(6), *range(1, 2 * EVERY)]


def test_a_step_that_outlasts_its_patience_is_cut_off(steps: JobWorkers) -> None:
    worker = steps.start("by_steps")
    steps.open_gate(12)
    steps.until_noted("step", step=13)

    worker.send_signal(signal.SIGTERM)

    assert worker.wait(PATIENCE_S) == STOPPED
    steps.open_gate()
    assert steps.run("by_steps") == 0
    numbers = [note["step"] for note in steps.notes("step")]
    assert numbers == [*range(14), *range(10, 2 * EVERY)]
