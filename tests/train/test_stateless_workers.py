"""Workers of a job that holds no state: however they end, the next start begins at epoch 1.

Killed, told to stop, or with another number of workers, the result is that of an undisturbed run.
"""

import subprocess
from pathlib import Path

import pytest

from tests.support.job_workers import PATIENCE_S, JobWorkers, kill
from tests.support.training_service import Service

pytestmark = pytest.mark.slow
RESTART, STOPPED = 75, 143
FUNCTION = "stateless"


def codes(workers: list[subprocess.Popen[bytes]]) -> list[int]:
    return [worker.wait(PATIENCE_S) for worker in workers]


def undisturbed(tmp_path: Path, *, width: int = 1) -> object:
    """What the training returns if nobody interferes."""
    folder, service = tmp_path / "undisturbed", Service(workers=width)
    folder.mkdir()
    job_workers = JobWorkers(folder, url=service.url)
    job_workers.open_gate()
    assert codes(job_workers.start_all(width, FUNCTION)) == [0] * width
    service.close()
    return job_workers.result()


def test_stopped_at_an_epochs_end_it_says_what_is_lost(
    job_workers: JobWorkers, service: Service, tmp_path: Path
) -> None:
    job_workers.open_gate(1)
    worker = job_workers.start(FUNCTION)
    job_workers.until_noted("began", epoch=2)
    service.tell(stop=True)
    job_workers.open_gate(2)
    service.until_reported("parked", epoch=2)
    worker.terminate()
    assert worker.wait(30) == STOPPED
    assert "2 epochs of this process are lost: nothing was given" in job_workers.log()

    service.order(stop=False)
    job_workers.open_gate()
    code = job_workers.run(FUNCTION)

    assert code == 0
    assert "it begins at epoch 1: no checkpoint holds the 2 epochs" in job_workers.log()
    assert job_workers.result() == undisturbed(tmp_path)


def test_a_stop_that_is_withdrawn_loses_nothing(job_workers: JobWorkers, service: Service) -> None:
    job_workers.open_gate(1)
    worker = job_workers.start(FUNCTION)
    job_workers.until_noted("began", epoch=2)
    service.tell(stop=True)
    job_workers.open_gate()
    service.until_reported("parked", epoch=2)

    service.order(stop=False)

    assert worker.wait(30) == 0
    assert [epoch for epoch, _ in service.epochs()] == [1, 2, 3, 4]


@pytest.mark.parametrize("killed", [0, 1], ids=["the leader", "a follower"])
def test_a_lost_worker_makes_all_begin_anew(
    job_workers: JobWorkers, service: Service, tmp_path: Path, killed: int
) -> None:
    service.order(workers=2)
    job_workers.open_gate(2)
    workers = job_workers.start_all(2, FUNCTION)
    job_workers.until_noted("began", epoch=3, times=2)
    kill(workers[killed])
    job_workers.open_gate()
    if killed:
        assert workers[0].wait(60) == RESTART
        assert "a worker is gone, and nothing was given to training.restore()" in job_workers.log()
    workers[0] = job_workers.start(FUNCTION, index=0)
    if not killed:
        assert workers[1].wait(60) == RESTART
    workers[1] = job_workers.start(FUNCTION, index=1)

    assert codes(workers) == [0, 0]
    assert service.of("failed") == []
    assert service.epochs()[-4:] == [(1, 2), (2, 2), (3, 2), (4, 2)]
    assert job_workers.result() == undisturbed(tmp_path, width=2)


@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2)], ids=["narrower", "wider"])
def test_another_width_makes_all_begin_anew(
    job_workers: JobWorkers, service: Service, tmp_path: Path, before: int, after: int
) -> None:
    service.order(workers=before)
    job_workers.open_gate(1)
    workers = job_workers.start_all(before, FUNCTION)
    job_workers.until_noted("began", epoch=2, times=before)
    others = [job_workers.start(FUNCTION, index=index) for index in range(before, after)]
    job_workers.until_noted("knows", indexes=list(range(1, max(before, after))))
    service.tell(workers=after)
    job_workers.open_gate()

    assert workers[0].wait(60) == RESTART
    workers[0] = job_workers.start(FUNCTION, index=0)

    assert codes([workers[0], *others]) == [0] * after
    assert service.epochs()[-4:] == [(epoch, after) for epoch in (1, 2, 3, 4)]
    assert job_workers.result() == undisturbed(tmp_path, width=after)


def test_a_worker_that_comes_after_the_end_does_not_go_on_as_if_it_had_trained(
    job_workers: JobWorkers, service: Service
) -> None:
    job_workers.open_gate()
    first = job_workers.run(FUNCTION)

    late = job_workers.run(FUNCTION, index=1)

    assert (first, late) == (0, 0)
    assert "the training has ended without this worker" in job_workers.log(1)
    assert job_workers.notes("closing", rank=1) == []
    assert service.of("failed") == []


def test_workers_that_give_other_things_fail_before_the_first_epoch(
    job_workers: JobWorkers, service: Service
) -> None:
    service.order(workers=2)
    job_workers.open_gate()

    leader, other = (
        job_workers.start("only_the_leader_restores", index=index) for index in range(2)
    )

    assert other.wait(60) == 1
    assert "holds object 1 (dict) of restore()" in job_workers.log(1)
    leader.kill()
    assert job_workers.notes("began", rank=1) == []
