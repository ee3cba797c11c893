"""A waiting job is told the finish of the queue run down; until then its verdict's, said as such."""

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from laxity.api.job_view import JobView
from laxity.api.status_text import pending_text
from laxity_profiler.estimate import Predictor
from laxity_scheduler.engine import DecidedCycle
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.plan import Plan, Policy
from laxity_scheduler.policies import fifo, qos
from laxity_scheduler.service.queue_finishes import QueueFinishes
from tests.support.builders import Curve, cluster, job
from tests.support.memory_world import MemoryWorld
from tests.support.services import staged, submit_together

EPOCH_S = 100.0
EPOCHS = 10


def finishes_of() -> QueueFinishes:
    return QueueFinishes(threading.Lock(), list, wake=lambda: None)


def cycle_of(*names: str, policy: Policy = fifo.decide) -> DecidedCycle:
    """Jobs that take a thousand seconds each on one GPU, at the first cycle."""
    state = cluster(gpus=1, jobs=[job(name, epochs=EPOCHS) for name in names])
    predictor = Curve(epoch_s=EPOCH_S)
    return DecidedCycle(state, policy(state, predictor), predictor, policy)


def test_each_waiting_job_is_told_the_end_of_those_before_it_and_its_own(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(1), predictor=Curve(epoch_s=EPOCH_S)) as stage:
        for name in ("a", "b", "c"):
            stage.submit(name, widths="1", epochs=EPOCHS)
        views = [
            stage.until(
                f"default/{name}",
                lambda view: not view["finish_pending"] and view["first_p50_at"],
                "told",
            )
            for name in ("a", "b", "c")
        ]

    after_s = [view["first_p50_at"] - view["submitted_at"] for view in views]
    run_s = EPOCHS * EPOCH_S
    assert after_s == pytest.approx([run_s, 2 * run_s, 3 * run_s], abs=60.0)
    assert views[2]["p50_at"] == pytest.approx(views[2]["first_p50_at"], abs=60.0)


def test_a_job_that_comes_later_is_told_its_own_and_moves_nobody_who_is_before_it() -> None:
    finishes, now = finishes_of(), 0.0

    assert finishes.work_out(cycle_of("a", "b")), "two are told"
    before = dict(finishes.told or {})
    assert finishes.work_out(cycle_of("a", "b", "c")), "the third is told"

    assert {name: (finishes.told or {})[name] is before[name] for name in before} == dict.fromkeys(
        before, True
    )
    assert (finishes.told or {})["team/c"].p50_at - now == pytest.approx(3 * EPOCHS * EPOCH_S)
    assert not finishes.work_out(cycle_of("a", "b", "c")), "nothing has moved: nobody is told"


def test_an_end_that_comes_into_sight_or_goes_out_of_it_is_told() -> None:
    """The job is stopped by hand, and its pin is taken off again."""
    finishes, free = finishes_of(), cycle_of("a")
    rows = [replace(row, pinned=True) for row in free.state.jobs]
    pinned = replace(free, state=replace(free.state, jobs=tuple(rows)), plan=Plan())

    told = []
    for cycle in (free, pinned, free):
        assert finishes.work_out(cycle)
        told.append((finishes.told or {})["team/a"].p50_at)

    run_s = EPOCHS * EPOCH_S
    assert told == [pytest.approx(run_s), float("inf"), pytest.approx(run_s)]


def test_while_a_cycle_runs_no_further_decision_of_a_rollout_is_made() -> None:
    decided = threading.Semaphore(0)

    def decide(state: ClusterState, predictor: Predictor) -> Plan:
        decided.release()
        return fifo.decide(state, predictor)

    finishes = finishes_of()
    cycle = cycle_of("a", "b", "c", policy=decide)
    decided.acquire()  # that of the cycle itself
    worker = threading.Thread(target=finishes.work_out, args=(cycle,))
    with finishes.paused():
        worker.start()
        assert not decided.acquire(timeout=0.2)
        assert not finishes.told
    worker.join()

    assert decided.acquire(timeout=0.0)
    assert len(finishes.told or {}) == 3


def test_what_is_still_being_worked_out_is_said_beside_the_first_guess() -> None:
    guess = JobView(id="team/a", p50_at=100.0, p90_at=120.0, finish_pending=True)

    assert pending_text(guess) == ", being worked out"
    assert pending_text(JobView(id="team/a", p50_at=100.0)) == ""


def test_a_policy_that_fails_in_a_rollout_stops_no_service(tmp_path: Path) -> None:
    def decide(state: ClusterState, predictor: Predictor) -> Plan:
        if predictor.version.startswith("rollout"):
            raise ZeroDivisionError
        return qos.decide(state, predictor)

    with staged(tmp_path, MemoryWorld(1), predictor=Curve(epoch_s=EPOCH_S), policy=decide) as stage:
        submit_together(stage, "a", "b")
        view = stage.until("default/b", lambda view: view["first_p90_at"], "told")
        assert stage.service.failure == ""

    assert view["p90_at"] == view["first_p90_at"], "the verdict's own is told"
    assert not view["finish_pending"]
