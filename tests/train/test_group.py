"""Several workers train as one: they grow, shrink, lose one another, and hold the same bits."""

import itertools
import json
import subprocess
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tests.support.job_workers import JobWorkers, kill, narrow_for_an_epoch
from tests.support.programs.trainings import ROWS
from tests.support.training_service import Service

pytestmark = pytest.mark.slow
STOPPED = 143
Processes = list["subprocess.Popen[bytes]"]


def codes(workers: Processes) -> list[int]:
    return [worker.wait(60) for worker in workers]


def reached(service: Service, *, epoch: int) -> bool:
    return max((done for done, _ in service.epochs()), default=0) >= epoch


def model_of(widths: list[int]) -> list[float]:
    """What the epochs should give, computed in one place with NumPy alone."""
    weights = np.zeros(3)
    for epoch, width in enumerate(widths, 1):
        parts = [ROWS[rank::width] for rank in range(width)]
        steps = [weights + part.mean(axis=0) * epoch for part in parts]
        weights = np.average(steps, axis=0, weights=[len(part) for part in parts])
    return [float(weight) for weight in weights]


def agree(job_workers: JobWorkers) -> bool:
    """Whether all workers of each completed epoch held the same bits after it."""
    trained = sorted(job_workers.notes("trained"), key=lambda line: line["epoch"])
    by_epoch = itertools.groupby(trained, key=lambda line: line["epoch"])
    return all(len({line["weights"] for line in lines}) == 1 for _, lines in by_epoch)


def test_three_workers_hold_the_mean_of_their_shards_models(
    job_workers: JobWorkers, service: Service
) -> None:
    service.order(workers=3)
    job_workers.open_gate()

    workers = job_workers.start_all(3)

    assert codes(workers) == [0, 0, 0]
    assert service.epochs() == [(1, 3), (2, 3), (3, 3), (4, 3)]
    assert {line["bytes"] for line in service.of("epoch")} == {300}
    assert agree(job_workers)
    np.testing.assert_allclose(job_workers.result()["weights"], model_of([3, 3, 3, 3]), rtol=1e-12)


def test_means_are_exact_and_the_same_bits_on_all_workers(
    job_workers: JobWorkers, service: Service
) -> None:
    service.order(workers=3)

    workers = job_workers.start_all(3, "arrays")

    assert codes(workers) == [0, 0, 0]
    parts = [np.random.default_rng([rank, 4]).normal(size=5) for rank in range(3)]
    want = [np.mean(parts, axis=0).tobytes().hex(), [1.0, 1.0], 1.0]
    got = [json.loads((job_workers.folder / f"mean-{rank}").read_text()) for rank in range(3)]
    assert got == [want, want, want]


@pytest.mark.parametrize(
    ("function", "times"), [("lone_models", 1), ("mean_model", 0)], ids=["alone", "averaged"]
)
def test_workers_that_combine_nothing_are_told_so_once(
    function: str, times: int, job_workers: JobWorkers, service: Service
) -> None:
    service.order(workers=2)
    job_workers.open_gate()

    assert codes(job_workers.start_all(2, function)) == [0, 0]
    told = "laxity: 2 workers ended an epoch without training.average or DDP"
    assert [job_workers.log(index).count(told) for index in (0, 1)] == [times, 0]


def test_averaging_unlike_arrays_fails_and_names_them(
    job_workers: JobWorkers, service: Service
) -> None:
    service.order(workers=2)

    leader, other = job_workers.start_all(2, "unlike")

    assert leader.wait(60) == 70
    error = service.of("failed")[0]["error"]
    assert "['rows'] is float64(3,) on worker 0 and float64(4,) on worker 1" in error
    other.terminate()
    assert other.wait(30) == STOPPED


def test_the_leader_tells_why_another_worker_failed(
    job_workers: JobWorkers, service: Service
) -> None:
    service.order(workers=2)
    leader, other = job_workers.start_all(2, "second_fails")
    assert other.wait(60) == 70

    leader.terminate()  # as the Job does when one of its workers has failed for good

    assert leader.wait(60) == STOPPED
    error = service.until_reported("failed")["error"]
    assert error == "worker 1: ValueError: only worker 1 has lost it"


def test_new_workers_join_at_the_next_boundary_with_its_state(
    job_workers: JobWorkers, service: Service
) -> None:
    leader = job_workers.start()
    job_workers.until_noted("began", epoch=1)
    service.tell(workers=3)
    joining = [job_workers.start(index=index) for index in (1, 2)]
    job_workers.until_noted("knows", indexes=[1, 2])

    job_workers.open_gate()

    assert codes([leader, *joining]) == [0, 0, 0]
    told = service.epochs()
    assert told[0] == (1, 1)
    assert told[-1] == (4, 3)
    assert [line["epoch"] for line in service.of("epoch") if line["warmup"]] == [1, 2]
    assert [(line["width"], line["epoch"]) for line in service.of("formed")] == [(1, 0), (3, 1)]
    assert agree(job_workers)
    np.testing.assert_allclose(job_workers.result()["weights"], model_of([1, 3, 3, 3]), rtol=1e-12)


def test_a_gap_in_the_indexes_is_not_jumped_over(job_workers: JobWorkers, service: Service) -> None:
    leader = job_workers.start()
    job_workers.until_noted("began", epoch=1)
    service.tell(workers=3)
    last = job_workers.start(index=2)
    job_workers.until_noted("knows", indexes=[2])

    job_workers.open_gate(3)
    job_workers.until_noted("began", epoch=4)
    middle = job_workers.start(index=1)
    job_workers.until_noted("knows", epoch=4, indexes=[1, 2])
    job_workers.open_gate()

    assert codes([leader, middle, last]) == [0, 0, 0]
    assert service.epochs() == [(1, 1), (2, 1), (3, 1), (4, 1)]
    assert job_workers.notes("began", rank=2) == []


def test_leaving_workers_wait_and_the_rest_goes_on(
    job_workers: JobWorkers, service: Service
) -> None:
    service.order(workers=3)
    job_workers.open_gate(1)
    workers = job_workers.start_all(3)
    job_workers.until_noted("began", epoch=2, times=3)
    service.tell(workers=2)

    job_workers.open_gate(3)
    service.until_reported("formed", width=2)
    job_workers.until_noted("began", epoch=4, times=2)

    assert workers[2].poll() is None
    workers[2].terminate()
    assert workers[2].wait(30) == STOPPED
    job_workers.open_gate()
    assert codes(workers[:2]) == [0, 0]
    assert [width for _, width in service.epochs()][-1] == 2
    assert agree(job_workers)


def test_a_leaving_worker_may_come_back_before_it_is_stopped(
    job_workers: JobWorkers, service: Service
) -> None:
    service.order(workers=2)
    job_workers.open_gate(1)
    workers = job_workers.start_all(2)
    narrow_for_an_epoch(job_workers, service)

    assert codes(workers) == [0, 0]
    assert agree(job_workers)
    assert service.epochs() == [(1, 2), (2, 2), (3, 1), (4, 2)]


def test_a_worker_lost_in_an_epoch_costs_that_epoch_and_no_report(
    job_workers: JobWorkers, service: Service
) -> None:
    service.order(workers=3)
    job_workers.open_gate(2)
    workers = job_workers.start_all(3)
    job_workers.until_noted("began", epoch=3, times=3)

    kill(workers[2])
    job_workers.open_gate()

    assert codes(workers[:2]) == [0, 0]
    assert service.epochs() == [(1, 3), (2, 3), (3, 2), (4, 2)]
    assert (2, 2) in [(line["width"], line["epoch"]) for line in service.of("formed")]
    np.testing.assert_allclose(job_workers.result()["weights"], model_of([3, 3, 2, 2]), rtol=1e-12)


def test_a_lost_worker_that_comes_back_is_taken_in_again(
    job_workers: JobWorkers, service: Service
) -> None:
    service.order(workers=3)
    job_workers.open_gate(1)
    workers = job_workers.start_all(3)
    job_workers.until_noted("began", epoch=2, times=3)
    kill(workers[1])
    job_workers.open_gate(2)
    service.until_reported("formed", width=1, epoch=1)
    job_workers.until_noted("began", epoch=3)

    again = job_workers.start(index=1)
    job_workers.until_noted("knows", epoch=3, indexes=[1, 2])
    job_workers.open_gate()

    assert codes([workers[0], again, workers[2]]) == [0, 0, 0]
    assert service.epochs() == [(1, 3), (2, 1), (3, 1), (4, 3)]
    np.testing.assert_allclose(job_workers.result()["weights"], model_of([3, 1, 1, 3]), rtol=1e-12)


def test_a_lost_leader_is_waited_for_and_the_epoch_done_again(
    job_workers: JobWorkers, service: Service
) -> None:
    service.order(workers=3)
    job_workers.open_gate(2)
    workers = job_workers.start_all(3)
    job_workers.until_noted("began", epoch=3, times=3)

    kill(workers[0])
    again = job_workers.start(index=0)
    job_workers.open_gate()

    assert codes([again, *workers[1:]]) == [0, 0, 0]
    assert service.epochs() == [(1, 3), (2, 3), (3, 3), (4, 3)]
    assert service.of("resumed")[0]["epoch"] == 2
    np.testing.assert_allclose(job_workers.result()["weights"], model_of([3, 3, 3, 3]), rtol=1e-12)


def test_a_whole_group_stopped_goes_on_at_another_width(
    job_workers: JobWorkers, service: Service
) -> None:
    service.order(workers=3)
    job_workers.open_gate(1)
    workers = job_workers.start_all(3)
    job_workers.until_noted("began", epoch=2, times=3)
    service.tell(stop=True)
    job_workers.open_gate()
    service.until_reported("parked", epoch=2)
    for worker in workers:
        worker.terminate()
    assert codes(workers) == [STOPPED] * 3

    service.order(stop=False, workers=2)
    workers = job_workers.start_all(2)

    assert codes(workers) == [0, 0]
    assert service.epochs() == [(1, 3), (2, 3), (3, 2), (4, 2)]
    assert agree(job_workers)


def test_a_worker_that_comes_after_the_end_is_done_too(
    job_workers: JobWorkers, service: Service
) -> None:
    job_workers.open_gate()
    assert job_workers.run() == 0

    late = job_workers.start(index=1)

    assert late.wait(60) == 0
    assert job_workers.notes("began", rank=1) == []


def test_kills_of_random_workers_keep_every_epoch(tmp_path: Path) -> None:
    dice = np.random.default_rng(11)
    service = Service(workers=3)
    job_workers = JobWorkers(tmp_path, url=service.url, epochs=30)
    workers = job_workers.start_all(3)
    for want in range(3, 28, 4):
        job_workers.open_gate(want)
        service.until(partial(reached, epoch=want), f"epoch {want}")
        job_workers.open_gate(want + 2)
        index = int(dice.integers(3))
        kill(workers[index])
        workers[index] = job_workers.start(index=index)
        job_workers.open_gate(want + 4)

    job_workers.open_gate()

    assert codes(workers) == [0, 0, 0]
    service.close()
    told = service.epochs()
    assert [epoch for epoch, _ in told] == list(range(1, 31))
    np.testing.assert_allclose(
        job_workers.result()["weights"], model_of([width for _, width in told]), rtol=1e-12
    )


def test_the_steps_of_a_void_epoch_end_early(tmp_path: Path) -> None:
    service = Service(workers=3)
    job_workers = JobWorkers(tmp_path, url=service.url, epochs=2)
    job_workers.open_gate(4)
    workers = job_workers.start_all(3, "averages_each_step")
    job_workers.until_noted("step", step=5, times=3)

    kill(workers[2])
    job_workers.open_gate()

    assert codes(workers[:2]) == [0, 0]
    service.close()
    assert [line["steps"] for line in job_workers.notes("trained", rank=0)] == [6, 20, 20]
    assert [line["steps"] for line in job_workers.notes("trained", rank=1)] == [6, 20, 20]
    assert job_workers.notes("trained", rank=1)[-1]["value"] == 40.0
    assert service.epochs() == [(1, 2), (2, 2)]


def test_an_error_because_another_worker_is_gone_is_no_failure(
    job_workers: JobWorkers, service: Service
) -> None:
    service.order(workers=2)
    job_workers.open_gate(1)
    leader, other = job_workers.start_all(2, "needs_the_others")
    job_workers.until_noted("began", epoch=2, times=2)
    kill(other)

    job_workers.open_gate()

    assert leader.wait(60) == 75
    assert service.of("failed") == []
    service.order(workers=1)
    assert job_workers.run("needs_the_others") == 0
    assert [epoch for epoch, _ in service.epochs()] == [1, 2, 3, 4]


@pytest.mark.parametrize("function", ["mean_model", "swallowing"])
def test_of_two_workers_0_the_later_one_goes_on_and_no_epoch_counts_twice(
    job_workers: JobWorkers, service: Service, function: str
) -> None:
    """A node that is lost may still be alive, and a job controller may make one pod twice."""
    job_workers.open_gate(1)
    first = job_workers.start(function)
    job_workers.until_noted("began", epoch=2)
    second = job_workers.start(function)
    job_workers.until_noted("began", epoch=2, pid=second.pid)
    job_workers.open_gate()
    assert (first.wait(60), second.wait(60)) == (143, 0)
    assert [epoch for epoch, _ in service.epochs()] == [1, 2, 3, 4]
    numbers = [line["seq"] for line in job_workers.reports()]
    assert numbers == sorted(set(numbers))
    if function == "mean_model":
        np.testing.assert_allclose(
            job_workers.result()["weights"], model_of([1, 1, 1, 1]), rtol=1e-12
        )
