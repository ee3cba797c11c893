"""What raises while jobs are decided on is one Job's refusal; everybody else is served in that cycle."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from laxity import names
from laxity_scheduler.live import JobError
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.job import Job
from laxity_scheduler.plan import Plan
from laxity_scheduler.policies import qos
from laxity_scheduler.store.journal import iter_entries, replay_cycles
from laxity_scheduler.store.store import Store, StoreError
from tests.support.builders import Curve
from tests.support.memory_world import MemoryWorld
from tests.support.services import Stage, staged, submit_together, wait_until

pytestmark = pytest.mark.slow


HONEST = [f"honest-{number}" for number in range(5)]


class Allergic:
    """A policy that raises, or plans something else, about jobs whose name begins with "bad"."""

    def __init__(self, answer: Callable[[Job], Plan]) -> None:
        self.answer = answer
        self.decided = 0

    def __call__(self, state: ClusterState, predictor: Any) -> Plan:
        self.decided += 1
        for job in state.jobs:
            if job.id.startswith("default/bad"):
                return self.answer(job)
        return qos.decide(state, predictor)


def raising(job: Job) -> Plan:
    raise RuntimeError(f"no idea what {job.id} wants")


def test_jobs_that_no_decision_can_be_made_about_are_refused_and_all_others_start(
    tmp_path: Path,
) -> None:
    policy = Allergic(raising)
    with staged(tmp_path, MemoryWorld(8), policy=policy) as stage:
        submit_together(stage, *HONEST[:2], "bad-1", *HONEST[2:], "bad-2")
        for name in HONEST:
            stage.until(f"default/{name}", lambda view: view["workers"] == 1, "running")
        bad = [
            stage.until(f"default/{name}", lambda view: view["state"] == "refused", "refused")
            for name in ("bad-1", "bad-2")
        ]
        metrics = stage.http.get("/metrics").text
        failure = stage.service.failure
        started = {entry.cycle: entry for entry in iter_entries(stage.service.store)}
    for view in bad:
        assert view["reason_code"] == "invalid"
        assert "RuntimeError: no idea what default/bad" in view["reason"]
        assert "laxity cannot decide about this Job" in view["reason"]
    assert set(stage.world.rejected) == {"default/bad-1", "default/bad-2"}
    assert failure == ""
    assert 'laxity_job_errors_total{stage="decision"}' in metrics
    seen_bad = [entry for entry in started.values() if "bad" in str(list(entry.state.by_id))]
    assert seen_bad == [], "the journal holds what was decided on"


def test_a_cycle_around_a_bad_job_is_replayed_byte_for_byte(tmp_path: Path) -> None:
    truth = Curve(epoch_s=1.0)
    policy = Allergic(raising)
    with staged(tmp_path, MemoryWorld(8), policy=policy, predictor=truth) as stage:
        submit_together(stage, "bad", *HONEST)
        for name in HONEST:
            stage.until(f"default/{name}", lambda view: view["workers"] == 1, "running")
    store = Store.open(f"sqlite:///{tmp_path}/laxity.db")
    found = list(replay_cycles(store, lambda _name: policy, lambda _parameters: truth))
    store.close()
    assert len(found) >= 2
    assert [one.lines for one in found if not one.is_same] == []


def test_what_a_rejected_job_runs_on_is_given_to_nobody(tmp_path: Path) -> None:
    policy = Allergic(lambda _job: Plan())
    with staged(tmp_path, MemoryWorld(2), policy=qos.decide) as stage:
        stage.submit("bad", deadline="1h", widths="1")
        stage.until("default/bad", lambda view: view["workers"] == 1, "running")
        policy.answer = raising
        stage.service.policies.decide = policy
        submit_together(stage, "a", "b")
        wait_until(lambda: "default/bad" in stage.world.rejected, "a rejection")
        stage.until("default/a", lambda view: view["workers"] == 1, "running")
        waits = stage.until("default/b", lambda view: view["verdict"] != "none", "answered")
        free = stage.service.last_snapshot[0].free_gpus
    assert waits["workers"] == 0
    assert free == 0


def test_a_rejected_job_is_decided_on_again_once_its_object_has_changed(tmp_path: Path) -> None:
    policy = Allergic(raising)
    with staged(tmp_path, MemoryWorld(1), policy=policy) as stage:
        stage.submit("bad", deadline="1h", widths="1")
        stage.until("default/bad", lambda view: view["state"] == "refused", "refused")
        decided = policy.decided
        stage.world.wake()
        wait_until(lambda: policy.decided > decided, "another decision")
        tried_in_vain = dict(stage.world.rejected)
        policy.answer = lambda _job: Plan()
        stage.service.policies.decide = qos.decide
        stage.world.annotate("default/bad", {names.DEADLINE: "2h", names.VERDICT: None})
        stage.world.wake()
        stage.until("default/bad", lambda view: view["workers"] == 1, "running")
    assert list(tried_in_vain) == ["default/bad"]


def test_a_decision_that_nothing_raises_in_is_made_once(tmp_path: Path) -> None:
    policy = Allergic(raising)
    with staged(tmp_path, MemoryWorld(8), policy=policy) as stage:
        submit_together(stage, *HONEST)
        for name in HONEST:
            stage.until(f"default/{name}", lambda view: view["workers"] == 1, "running")
        decided, journalled = policy.decided, stage.service.store.last_cycle()
    assert decided <= journalled + 1


def test_few_bad_jobs_among_many_are_found_with_few_decisions(tmp_path: Path) -> None:
    from laxity_scheduler.service.fault_isolation import decide_without_faulty
    from tests.support.builders import cluster, job

    jobs = [job(f"j{number:04}", submitted_at=float(number)) for number in range(1000)]
    bad = {"team/j0003", "team/j0500", "team/j0999"}
    asked = []

    def decide(state: ClusterState) -> int:
        asked.append(len(state.jobs))
        if bad & state.by_id.keys():
            raise ValueError("a bad one is among them")
        return len(state.jobs)

    around = decide_without_faulty(cluster(jobs=jobs), decide)
    assert {one.job for one in around.faulty} == bad
    assert (around.made, len(around.state.jobs)) == (997, 997)
    assert [one.id for one in around.state.jobs] == sorted(one.id for one in around.state.jobs)
    assert len(asked) < 80


def test_of_two_jobs_that_fail_only_together_the_newer_is_left_out() -> None:
    from laxity_scheduler.service.fault_isolation import decide_without_faulty
    from tests.support.builders import cluster, job

    jobs = [job(f"j{number}", submitted_at=float(number)) for number in range(9)]

    def decide(state: ClusterState) -> int:
        if {"team/j2", "team/j7"} <= state.by_id.keys():
            raise ValueError("these two do not go together")
        return len(state.jobs)

    around = decide_without_faulty(cluster(jobs=jobs), decide)
    assert [one.job for one in around.faulty] == ["team/j7"]
    assert around.made == 8


@pytest.mark.parametrize("waiting", [["a"], ["a", "b", "c"]], ids=["the only one", "several"])
def test_a_policy_that_fails_on_every_job_refuses_none_and_makes_the_service_unready(
    tmp_path: Path, waiting: list[str]
) -> None:
    def broken(state: ClusterState, _predictor: Any) -> Plan:
        return Plan() if not state.jobs else raising(state.jobs[0])

    with staged(tmp_path, MemoryWorld(4), policy=broken) as stage:
        submit_together(stage, *waiting)
        wait_until(lambda: bool(stage.service.failure_streak.alarm), "three failed cycles")
        unready = stage.http.get("/readyz")
        listed = stage.http.get("/v1/jobs").json()["jobs"]
        stage.service.policies.decide = qos.decide
        for name in waiting:
            stage.until(f"default/{name}", lambda view: view["workers"] == 1, "running")
        wait_until(lambda: not stage.service.failure_streak.alarm, "a good cycle")
        ready = stage.http.get("/readyz")
    assert (unready.status_code, ready.status_code) == (503, 200)
    words = (
        "the policy fails on every job, so none is refused: RuntimeError: no idea what default/a"
    )
    assert words in unready.json()["cycles"]
    assert {view["state"] for view in listed} == {"queued"}
    assert stage.world.rejected == {}


def test_a_policy_that_begins_to_fail_on_running_jobs_leaves_them_and_starts_others(
    tmp_path: Path,
) -> None:
    policy, running = Allergic(raising), [f"bad-{number}" for number in range(10)]
    with staged(tmp_path, MemoryWorld(12)) as stage:
        submit_together(stage, *running)
        for name in running:
            stage.until(f"default/{name}", lambda view: view["workers"] == 1, "running")
        stage.service.policies.decide = policy
        submit_together(stage, "honest")
        stage.until("default/honest", lambda view: view["workers"] == 1, "running")

        def fails() -> bool:
            stage.world.wake()
            return bool(stage.service.failure_streak.alarm)

        wait_until(fails, "three failed cycles")
        unready, views = stage.http.get("/readyz"), stage.http.get("/v1/jobs").json()["jobs"]
    assert "fails on 10 jobs that it has decided about before" in unready.json()["cycles"]
    assert unready.status_code == 503
    assert {(view["verdict"], view["workers"]) for view in views} == {("promised", 1)}
    assert stage.world.rejected == {}


def test_a_job_that_a_world_fails_on_is_rejected_by_name(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(1)) as stage:
        submit_together(stage, "a")
        stage.until("default/a", lambda view: view["workers"] == 1, "running")
        stage.world.broken = JobError("default/a", "its object makes no sense")
        stage.world.wake()
        wait_until(lambda: "default/a" in stage.world.rejected, "a rejection")
        stage.world.broken = None
    assert stage.world.rejected == {"default/a": "its object makes no sense"}


def test_three_failed_cycles_make_the_service_unready_and_one_good_one_ready(
    tmp_path: Path,
) -> None:
    with staged(tmp_path, MemoryWorld(1)) as stage:
        before = stage.http.get("/readyz")
        stage.world.broken = JobError("default/gone", "nobody can read it")
        stage.world.wake()
        wait_until(lambda: failed_in_a_row(stage) == 3, "three failed cycles")
        unready = stage.http.get("/readyz")
        stage.world.broken = None
        wait_until(lambda: failed_in_a_row(stage) == 0, "a good cycle")
        after = stage.http.get("/readyz")
    assert (before.status_code, unready.status_code, after.status_code) == (200, 503, 200)
    assert unready.json()["ready"] is False
    assert "3 cycles in a row have failed" in unready.json()["cycles"]
    assert "job default/gone" in unready.json()["cycles"]
    assert "nobody can read it" in unready.json()["cycles"]
    ((words, job),) = stage.world.warned
    assert ("nobody can read it" in words, job) == (True, "default/gone")


def failed_in_a_row(stage: Stage) -> int:
    """As the metrics say it, which is after the service knows it."""
    (number,) = re.findall(
        r"^laxity_consecutive_failed_cycles (\d+)\.0$",
        stage.http.get("/metrics").text,
        re.MULTILINE,
    )
    return int(number)


def test_a_store_that_takes_nothing_makes_the_service_unready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_args: Any, **_more: Any) -> None:
        raise StoreError("database or disk is full")

    with staged(tmp_path, MemoryWorld(1)) as stage, monkeypatch.context() as patch:
        patch.setattr(Store, "write_rows", full)
        stage.world.wake()
        wait_until(lambda: bool(stage.service.failure_streak.alarm), "three failed cycles")
        unready = stage.http.get("/readyz")
    assert unready.status_code == 503
    assert "disk is full" in unready.json()["cycles"]
