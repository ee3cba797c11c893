"""The loop: a failing cycle acts on nothing and ends nothing; killed, it goes on from what it sees."""

import gc
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from laxity_scheduler.model.decision import Loan
from laxity_scheduler.model.reasons import reason
from laxity_scheduler.plan import Plan
from laxity_scheduler.policies import qos
from laxity_scheduler.service.rare_collections import rare_garbage_collection
from laxity_scheduler.store.journal import Journal, replay_cycles
from laxity_scheduler.store.store import Store, StoreError
from tests.support.builders import Curve
from tests.support.journal import verdicts_of
from tests.support.memory_world import MemoryWorld
from tests.support.services import PATIENCE_S, looked, staged, wait_until


class Moody:
    """A policy that does as it is told: decide, raise, or also plan what does not fit."""

    def __init__(self) -> None:
        self.mood = "good"

    def __call__(self, state: Any, predictor: Any) -> Plan:
        if self.mood == "raises":
            raise RuntimeError("the policy has a bug")
        plan = qos.decide(state, predictor)
        if self.mood == "overbooks":
            return Plan((Loan(("nowhere",), reason("start_on_lent")), *plan.decisions))
        return plan


def test_a_cycle_that_fails_acts_on_nothing_and_the_next_good_one_acts(tmp_path: Path) -> None:
    policy = Moody()
    with staged(tmp_path, MemoryWorld(1), policy=policy) as stage:
        policy.mood = "raises"
        stage.submit("a", deadline="1h", widths="1")
        wait_until(lambda: bool(stage.service.failure), "a cycle that fails")
        held = stage.http.get("/v1/jobs/default/a").json()
        metrics = stage.http.get("/metrics").text
        policy.mood = "good"
        stage.world.wake()
        stage.until("default/a", lambda view: view["workers"] > 0, "running")
    assert (held["workers"], held["verdict"]) == (0, "none")
    assert 'laxity_cycles_failed_total{cause="policy"}' in metrics


def test_a_decision_that_cannot_be_journalled_is_not_carried_out(
    tmp_path: Path, monkeypatch: Any
) -> None:
    def away(*_args: Any, **_more: Any) -> None:
        raise StoreError("the store is away")

    with staged(tmp_path, MemoryWorld(1)) as stage:
        with monkeypatch.context() as patch:
            patch.setattr(Store, "write_rows", away)
            stage.submit("a", deadline="1h", widths="1")
            wait_until(lambda: "store is away" in stage.service.failure, "a store that is away")
            acted = [plan for plan in stage.world.carried_out if plan.decisions]
        stage.until("default/a", lambda view: view["workers"] > 0, "running")
    assert acted == []


def test_a_decision_that_does_not_fit_is_dropped_named_and_counted_and_all_others_stand(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    policy = Moody()
    policy.mood = "overbooks"
    with staged(tmp_path, MemoryWorld(1), policy=policy) as stage:
        stage.run("a", deadline="1h", widths="1")
        failure, metrics = stage.service.failure, stage.http.get("/metrics").text
        decided = [d for plan in stage.world.carried_out for d in plan.decisions]
    assert failure == ""
    assert not [one for one in decided if isinstance(one, Loan)]
    assert 'laxity_job_errors_total{stage="plan"}' in metrics
    problem = "Loan of nowhere: node 'nowhere' is not in the cluster"
    errors = [one.message for one in caplog.records if one.levelname == "ERROR"]
    assert errors == [f"plan of nowhere: PlanError: {problem}; all others are served"]


def test_a_cluster_that_cannot_be_seen_is_waited_for(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(1)) as stage:
        stage.world.broken = ConnectionError("the API server is away")
        stage.world.wake()
        wait_until(lambda: "API server is away" in stage.service.failure, "a cluster away")
        stage.world.broken = None
        stage.run("a", deadline="1h", widths="1")


def test_on_a_cluster_that_it_cannot_follow_it_decides_nothing_and_says_why_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with staged(tmp_path, MemoryWorld(1)) as stage:
        stage.world.stale_reason = "the API server cannot be watched for pods"
        stage.submit("a", deadline="1h", widths="1")
        seen = stage.world.observed
        wait_until(lambda: looked(stage.world) > seen + 1, "two looks")
        held = stage.http.get("/v1/jobs/default/a").json()
        ready, metrics = stage.http.get("/readyz"), stage.http.get("/metrics").text
        carried_out = [plan for plan in stage.world.carried_out if plan.decisions]
        stage.world.stale_reason = ""
        stage.world.wake()
        stage.until("default/a", lambda view: view["workers"] > 0, "running")
        after = stage.http.get("/readyz").json()
    assert (held["workers"], held["verdict"], carried_out) == (0, "none", [])
    assert ready.status_code == 200, "workers report all the same"
    assert ready.json()["blind"] == "the API server cannot be watched for pods"
    assert "laxity_blind 1.0" in metrics
    assert "blind" not in after
    warnings = [one.message for one in caplog.records if one.levelname == "WARNING"]
    assert warnings == ["nothing is decided until it is: the API server cannot be watched for pods"]


def test_a_service_that_comes_back_knows_all_jobs_and_repeats_no_verdict(tmp_path: Path) -> None:
    world = MemoryWorld(2)
    with staged(tmp_path, world) as stage:
        stage.run("done", deadline="1h", widths="1")
        world.finished("default/done")
        stage.until("default/done", lambda view: view["outcome"] == "kept", "kept")
        promised = stage.run("on", deadline="1h", widths="1")
        before = stage.http.get("/v1/jobs/default/done").json()  # a cycle after it has ended
        cycle = stage.service.last_snapshot[0].cycle
    world._jobs.pop("default/done")
    with staged(tmp_path, world) as again:
        after = again.http.get("/v1/jobs/default/done").json()
        on = again.http.get("/v1/jobs/default/on").json()
        verdicts = verdicts_of(again.service.store, on["uid"])
        next_cycle = again.service.last_snapshot[0].cycle
    before.pop("project")  # of its Job, which is gone
    assert after == before
    assert (on["deadline_at"], on["workers"]) == (promised["deadline_at"], promised["workers"])
    assert len(verdicts) == 1
    assert next_cycle > cycle


def test_a_job_that_vanished_while_nobody_looked_is_cancelled(tmp_path: Path) -> None:
    world = MemoryWorld(1)
    with staged(tmp_path, world) as stage:
        stage.run("a", deadline="1h", widths="1")
    world.cancel("default/a")
    with staged(tmp_path, world) as again:
        view = again.http.get("/v1/jobs/default/a").json()
    assert (view["state"], view["outcome"]) == ("cancelled", "cancelled")


def test_what_the_service_lived_through_is_replayed_byte_for_byte(tmp_path: Path) -> None:
    truth = Curve(epoch_s=1.0)
    with staged(tmp_path, MemoryWorld(4), predictor=truth) as stage:
        for name in ("a", "b", "c"):
            stage.submit(name, deadline="1h")
            stage.until(f"default/{name}", lambda view: view["verdict"] == "promised", "promised")
        stage.world.send_epochs("default/a", 3)
        stage.world.finished("default/b")
        stage.until("default/b", lambda view: view["outcome"] == "kept", "kept")
    store = Store.open(f"sqlite:///{tmp_path}/laxity.db")
    found = list(replay_cycles(store, lambda _name: qos.decide, lambda _parameters: truth))
    store.close()
    assert len(found) >= 4
    assert [one.lines for one in found if not one.is_same] == []


def test_a_cycle_that_another_service_has_decided_is_not_acted_on(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(2)) as stage:
        rival = Journal(stage.service.store)
        taken = rival.last_cycle + 1
        state = replace(stage.service.last_snapshot[0], cycle=taken)
        rival.write_cycle(state, Plan(), Curve(version="rival"), policy="qos", decided_s=0.0)
        stage.run("a", deadline="1h", widths="1")
        metrics = stage.http.get("/metrics").text
        rows = {row.cycle: row for row in stage.service.store.iter_cycles(0)}
        admitted = stage.service.store.latest_decisions(["default/a"], limit=10)
    assert rows[taken].predictor == "rival"
    assert 'laxity_cycles_failed_total{cause="stale"}' in metrics
    assert all(row.cycle > taken for row in admitted)


def test_the_api_answers_while_a_decision_takes_long(tmp_path: Path) -> None:
    deciding, go_on = threading.Event(), threading.Event()

    def slow(state: Any, predictor: Any) -> Plan:
        if state.jobs:
            deciding.set()
            go_on.wait(PATIENCE_S)
        return qos.decide(state, predictor)

    with staged(tmp_path, MemoryWorld(1), policy=slow) as stage:
        stage.submit("a", deadline="1h", widths="1")
        assert deciding.wait(PATIENCE_S)
        answer = stage.http.get("/v1/jobs/default/a")
        go_on.set()
    assert answer.json()["state"] == "queued"


def test_garbage_is_looked_for_seldom_during_a_cycle_and_as_before_after_it() -> None:
    before = gc.get_threshold()
    seen = []

    def failing() -> None:
        with rare_garbage_collection():
            seen.append(gc.get_threshold())
            with rare_garbage_collection():  # another service of this process
                pass
            seen.append(gc.get_threshold())
            raise RuntimeError("failed")

    with pytest.raises(RuntimeError, match="failed"):
        failing()
    assert seen[0] == seen[1] == (seen[0][0], *before[1:])
    assert seen[0][0] >= 10_000
    assert gc.get_threshold() == before


def test_while_nobody_knows_who_leads_it_decides_nothing_and_says_why(tmp_path: Path) -> None:
    """An API server that hangs cuts no watch: only the lease is not answered."""
    said = ["who leads is not known: the API server does not answer"]
    with staged(tmp_path, MemoryWorld(1)) as stage:
        stage.service.silence = lambda: said[0]
        stage.submit("a", deadline="1h", widths="1")
        seen = stage.world.observed
        wait_until(lambda: looked(stage.world) > seen + 1, "two looks")
        held, ready = stage.http.get("/v1/jobs/default/a").json(), stage.http.get("/readyz").json()
        said[0] = ""
        stage.world.wake()
        stage.until("default/a", lambda view: view["workers"] > 0, "running")
        after = stage.http.get("/readyz").json()
    assert (held["workers"], ready["ready"]) == (0, True)
    assert ready["blind"] == "who leads is not known: the API server does not answer"
    assert "blind" not in after
