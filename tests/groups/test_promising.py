"""The verdict on a whole group, and how its promise is kept."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from laxity_scheduler.model.decision import Wait
from laxity_scheduler.model.reasons import reason
from laxity_scheduler.policies.registry import REGISTRY, find
from laxity_scheduler.service.group_cycle.group_book import read_group
from laxity_scheduler.service.policy_in_force import PolicyInForce
from tests.support.builders import Curve
from tests.support.memory_world import MemoryWorld
from tests.support.services import Stage, manifest, staged

Json = dict[str, Any]


def step(name: str, *after: str, count: int = 1, epochs: int = 10, **fields: str) -> Json:
    fields = {"model": name, "widths": "1", **fields}
    return {
        "name": name,
        "after": list(after),
        "count": count,
        "manifest": manifest(name, epochs=epochs, **fields),
    }


def declare(stage: Stage, *steps: Json, deadline: str, name: str = "release", **more: Any) -> Json:
    document = {"name": name, "deadline": deadline, "steps": list(steps), **more}
    answer = stage.http.post("/v1/groups", json=document)
    assert answer.status_code in (200, 201), answer.text
    view: Json = answer.json()
    return view


def group_of(stage: Stage, name: str = "release") -> Json:
    view: Json = stage.http.get(f"/v1/groups/default/{name}").json()
    return view


def chain() -> tuple[Json, Json, Json]:
    return (
        step("pretrain"),
        step("finetune", "pretrain", count=3),
        step("evaluate", "finetune"),
    )


def submit(stage: Stage, job: str, step_name: str, **fields: str) -> Json:
    fields = {"model": step_name, "widths": "1", "group": "release", "step": step_name, **fields}
    return stage.submit(job, deadline="1h", **fields)


def test_group_that_fits_is_promised(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(4), predictor=Curve(epoch_s=60.0)) as stage:
        view = declare(stage, *chain(), deadline="1h")
    assert view["verdict"] == "promised"
    assert view["p90_at"] - view["submitted_at"] == pytest.approx(1800.0, abs=60.0)


@pytest.mark.parametrize("policy", [*sorted(REGISTRY), "qos:predictability=1"])
def test_group_is_promised_only_where_the_policy_keeps_coming_steps(
    policy: str, tmp_path: Path
) -> None:
    decide = find(policy).policy()
    curve = Curve(epoch_s=60.0)
    with staged(
        tmp_path, MemoryWorld(4), predictor=curve, policy=PolicyInForce(policy, decide)
    ) as s:
        view = declare(s, *chain(), deadline="1h")
        submit(s, "p1", "pretrain")
        s.until("default/p1", lambda v: v["workers"] > 0, "running")
    if policy in {"qos", "qos_open_to_all", "qos:predictability=1"}:
        assert view["verdict"] == "promised"
    else:
        assert (view["verdict"], view["reason_code"]) == ("forecast", "group_not_kept")
        assert f"policy {policy} keeps no GPUs" in view["reason"]


def test_refusal_names_the_step_that_takes_the_most(tmp_path: Path) -> None:
    steps = step("pretrain", epochs=5), step("finetune", "pretrain", epochs=90)
    with staged(tmp_path, MemoryWorld(4), predictor=Curve(epoch_s=60.0)) as stage:
        view = declare(stage, *steps, deadline="1h")
        refused = group_of(stage)
    assert (view["verdict"], view["state"]) == ("refused", "refused")
    assert "step finetune takes the most" in view["reason"]
    assert view["offers"][0]["kind"] == "deadline"
    assert refused["verdict"] == "refused"


def test_deadline_in_the_past_is_refused_as_that(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(4), predictor=Curve(epoch_s=60.0)) as stage:
        view = declare(stage, *chain(), deadline="2020-01-01T00:00:00Z")
    assert (view["verdict"], view["reason_code"]) == ("refused", "deadline_in_the_past")
    assert view["offers"][0]["kind"] == "deadline"


def test_step_of_ten_thousand_jobs_keeps_nobody_waiting(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(2), predictor=Curve(epoch_s=60.0)) as stage:
        view = declare(
            stage, step("pretrain"), step("tune", "pretrain", count=10_000), deadline="1h"
        )
        stage.submit("other", deadline="1h")
        stage.until("default/other", lambda v: v["workers"] > 0, "running")
    assert view["verdict"] == "refused"
    assert "step tune takes the most" in view["reason"]


def test_refusal_says_how_many_gpus_a_step_may_have(tmp_path: Path) -> None:
    large = step("pretrain", widths="4")
    with staged(tmp_path, MemoryWorld(1, 2), predictor=Curve(epoch_s=60.0)) as stage:
        view = declare(stage, large, deadline="1h")
    assert "needs 4 GPUs at a time, and the cluster has 3 for it" in view["reason"]


def test_offered_deadline_is_promised(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(4), predictor=Curve(epoch_s=60.0)) as stage:
        view = declare(stage, *chain(), deadline="10m")
        due_at = view["offers"][0]["deadline_at"]
        text = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(due_at))
        again = declare(stage, *chain(), deadline=text)
    assert again["verdict"] == "promised"


def test_few_gpus_make_jobs_side_by_side_take_turns(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(1), predictor=Curve(epoch_s=60.0)) as stage:
        view = declare(stage, *chain(), deadline="40m")
    assert view["verdict"] == "refused"
    assert {offer["kind"] for offer in view["offers"]} == {"deadline", "gpus", "count"}
    assert "step finetune" in view["reason"]


def test_coming_steps_are_respected_by_later_newcomers(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(3), predictor=Curve(epoch_s=60.0)) as stage:
        declare(stage, *chain(), deadline="40m")
        stage.submit("wide", deadline="20m", model="x", widths="2", epochs="30")
        blocked = stage.until("default/wide", lambda v: v["verdict"] != "none", "judged")
        stage.submit("brief", deadline="20m", model="x", widths="2", epochs="10")
        brief = stage.until("default/brief", lambda v: v["verdict"] != "none", "judged")
    assert blocked["verdict"] == "refused"
    assert brief["verdict"] == "promised"


def test_group_finds_its_place_behind_earlier_promises(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(1), predictor=Curve(epoch_s=60.0)) as stage:
        stage.submit("earlier", deadline="25m", model="x", widths="1", epochs="20")
        stage.until("default/earlier", lambda v: v["verdict"] == "promised", "promised")
        late = declare(stage, step("pretrain"), deadline="25m")
        fits = declare(stage, step("pretrain"), deadline="40m", name="later")
    assert (late["verdict"], fits["verdict"]) == ("refused", "promised")


def test_two_groups_declared_between_two_cycles_are_not_promised_the_same_gpu(
    tmp_path: Path,
) -> None:
    with staged(tmp_path, MemoryWorld(1), predictor=Curve(epoch_s=60.0)) as stage:
        (state, predictor), keeper = stage.service.last_snapshot, stage.service.groups
        verdicts = []
        for name in ("one", "other"):
            steps = [step("pretrain"), step("finetune", "pretrain")]
            document = {"name": name, "deadline": "30m", "steps": steps}
            judged = keeper.judge(read_group(document, state.now), state, predictor, keeps=True)
            verdicts.append(judged.verdict["verdict"])
    assert verdicts == ["promised", "refused"]


def test_step_of_a_promised_group_holds_a_share(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(4), predictor=Curve(epoch_s=60.0)) as stage:
        declare(stage, *chain(), deadline="1h")
        submit(stage, "p1", "pretrain")
        view = stage.until("default/p1", lambda v: v["verdict"] != "none", "judged")
        running = stage.until("default/p1", lambda v: v["workers"] == 1, "running")
    assert view["verdict"] == "promised"
    assert running["deadline_at"] - time.time() == pytest.approx(1200.0, abs=30.0)
    assert view["p90_at"] - time.time() == pytest.approx(600.0, abs=30.0)
    assert "longest way" in running["share_reason"]


def test_late_step_takes_slack_of_later_ones(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(4), predictor=Curve(epoch_s=60.0)) as stage:
        declared = declare(stage, *chain(), deadline="1h")
        submit(stage, "p1", "pretrain")
        stage.until("default/p1", lambda v: v["workers"] == 1, "running")
        stage.learning.in_use = Curve(epoch_s=60.0, models={"pretrain": 110.0})
        stage.service.world.wake()
        share_at = declared["submitted_at"] + 1500.0
        after = stage.until("default/p1", lambda v: v["deadline_at"] > share_at, "given more time")
    assert after["verdict"] == "promised"
    assert after["deadline_at"] - declared["submitted_at"] == pytest.approx(1721.0, abs=30.0)


def test_step_waits_for_the_steps_before_it(tmp_path: Path) -> None:
    world = MemoryWorld(4)
    with staged(tmp_path, world, predictor=Curve(epoch_s=60.0)) as stage:
        declare(stage, step("pretrain"), step("finetune", "pretrain"), deadline="1h")
        submit(stage, "p1", "pretrain")
        submit(stage, "f1", "finetune", after="pretrain")
        stage.until("default/p1", lambda v: v["workers"] == 1, "running")
        held = stage.http.get("/v1/jobs/default/f1").json()
        world.finished("default/p1")
        running = stage.until("default/f1", lambda v: v["workers"] == 1, "running")
    told = {each for plan in world.carried_out for each in plan.decisions if isinstance(each, Wait)}
    assert (held["workers"], held["reason"]) == (0, "it waits for pretrain")
    assert Wait("default/f1", reason("waits_for_steps", steps="pretrain")) in told
    assert running["verdict"] == "promised"


def test_failed_step_ends_the_group_and_those_that_wait_for_it(tmp_path: Path) -> None:
    world = MemoryWorld(4)
    with staged(tmp_path, world, predictor=Curve(epoch_s=60.0)) as stage:
        declare(stage, step("pretrain"), step("finetune", "pretrain"), deadline="1h")
        submit(stage, "p1", "pretrain")
        submit(stage, "f1", "finetune", after="pretrain")
        stage.until("default/p1", lambda v: v["workers"] == 1, "running")
        world.finished("default/p1", failed=True)
        stage.until("default/f1", lambda v: v["state"] == "cancelled", "cancelled")
        ended = group_of(stage)
    assert (ended["state"], ended["reason"]) == ("failed", "failed: step pretrain")


def test_group_ends_with_its_last_step(tmp_path: Path) -> None:
    world = MemoryWorld(4)
    with staged(tmp_path, world, predictor=Curve(epoch_s=60.0)) as stage:
        declare(stage, step("pretrain"), deadline="1h")
        submit(stage, "p1", "pretrain")
        stage.until("default/p1", lambda v: v["workers"] == 1, "running")
        world.finished("default/p1")
        stage.until("default/p1", lambda v: v["state"] == "finished", "finished")
        stage.submit("next")
        stage.until("default/next", lambda v: v["workers"] > 0, "running")
        assert group_of(stage)["state"] == "finished"


def test_first_run_without_steps_is_forecast_and_the_second_promised(tmp_path: Path) -> None:
    world = MemoryWorld(4)
    with staged(tmp_path, world, predictor=Curve(epoch_s=60.0)) as stage:
        first = declare(stage, deadline="1h", workflow="nightly", open=True)
        for job, name in (("p1", "pretrain"), ("f1", "finetune"), ("f2", "finetune")):
            submit(stage, job, name)
            stage.until(f"default/{job}", lambda v: v["workers"] == 1, "running")
            if job != "f1":
                world.finished(f"default/{job}")
                stage.until(f"default/{job}", lambda v: v["state"] == "finished", "finished")
        world.finished("default/f1")
        stage.until("default/f1", lambda v: v["state"] == "finished", "finished")
        stage.http.post("/v1/groups/default/release/end", json={"state": "finished"})
        again = declare(stage, deadline="1h", workflow="nightly", name="second")
    assert (first["verdict"], first["reason_code"]) == ("forecast", "group_unknown")
    assert again["verdict"] == "promised"
    assert [(s["name"], s["count"], s["after"]) for s in again["steps"]] == [
        ("pretrain", 1, []),
        ("finetune", 2, ["pretrain"]),
    ]


def test_refused_deadline_of_a_group_leaves_its_promise(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(4), predictor=Curve(epoch_s=60.0)) as stage:
        first = declare(stage, *chain(), deadline="1h")
        answer = stage.http.post("/v1/groups/default/release/amend", json={"deadline": "5m"}).json()
        after = group_of(stage)
    assert answer["verdict"] == "refused"
    assert "the promise of before stands" in answer["reason"]
    assert (after["verdict"], after["deadline_at"]) == ("promised", first["deadline_at"])


def test_share_of_a_step_stays_as_it_nears_its_end(tmp_path: Path) -> None:
    world = MemoryWorld(4)
    with staged(tmp_path, world, predictor=Curve(epoch_s=60.0)) as stage:
        declare(stage, *chain(), deadline="1h")
        submit(stage, "p1", "pretrain")
        before = stage.until("default/p1", lambda v: v["workers"] == 1, "running")
        world.send_epochs("default/p1", 9, epoch_s=60.0)
        after = stage.until("default/p1", lambda v: v["epochs_done"] == 9, "nearly done")
    assert after["deadline_at"] == pytest.approx(before["deadline_at"], abs=5.0)


def test_step_that_does_not_come_loses_its_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("laxity_scheduler.groups.cycle.PATIENCE_S", -1.0)
    with staged(tmp_path, MemoryWorld(1), predictor=Curve(epoch_s=60.0)) as stage:
        declare(stage, step("pretrain"), deadline="1h", open=True)
        stage.submit("other", deadline="11m", model="x", widths="1", epochs="10")
        other = stage.until("default/other", lambda v: v["verdict"] != "none", "judged")
        group = group_of(stage)
    assert other["verdict"] == "promised"
    assert group["reason"] == "step pretrain has not come, and its GPUs are no longer kept"


def test_jobs_that_were_not_planned_are_told(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(4), predictor=Curve(epoch_s=60.0)) as stage:
        declare(stage, step("pretrain"), step("evaluate"), deadline="1h", open=True)
        for job, name in (("p1", "pretrain"), ("p2", "pretrain"), ("x1", "export")):
            submit(stage, job, name)
        running = group_of(stage)["reason"]
        ended = stage.http.post("/v1/groups/default/release/end", json={"state": "finished"}).json()
    assert "step pretrain has 2 jobs, and 1 were planned" in running
    assert "step export has 1 job, and 0 were planned" in running
    assert "never came" not in running
    assert ended["reason"].endswith("step evaluate never came")
    assert ended["reason"].startswith("kept: finished ")


def test_a_groups_name_for_a_job_is_answered_with_the_group(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(4), predictor=Curve(epoch_s=60.0)) as stage:
        declare(stage, *chain(), deadline="1h")
        answer = stage.http.get("/v1/jobs/default/rel/explain")
    assert answer.status_code == 404
    assert "did you mean the workflow default/release?" in answer.json()["error"]["message"]


def test_group_that_ends_late_has_broken_its_promise(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(4), predictor=Curve(epoch_s=60.0)) as stage:
        declare(stage, step("pretrain"), deadline="1h", open=True)
        book = stage.service.groups.book
        book.keep(replace(book.group("default/release"), deadline_at=time.time() - 60.0))
        ended = stage.http.post("/v1/groups/default/release/end", json={"state": "finished"}).json()
    assert ended["reason"].startswith("broken: finished 1m00s after the deadline ")


def test_another_deadline_of_a_refused_group_without_jobs_promises_nothing(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(4), predictor=Curve(epoch_s=60.0)) as stage:
        refused = declare(stage, *chain(), deadline="5m")
        answer = stage.http.post("/v1/groups/default/release/amend", json={"deadline": "2h"})
        state = group_of(stage)["state"]
    assert (refused["state"], state, answer.status_code) == ("refused", "refused", 409)
    assert "submit it again" in answer.json()["error"]["message"]


def test_fault_of_one_group_harms_no_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ArithmeticError

    with staged(tmp_path, MemoryWorld(4), predictor=Curve(epoch_s=60.0)) as stage:
        declare(stage, *chain(), deadline="1h")
        monkeypatch.setattr("laxity_scheduler.groups.cycle.record_steps", fail)
        stage.submit("other", deadline="1h")
        other = stage.until("default/other", lambda v: v["workers"] > 0, "running")
    assert other["verdict"] == "promised"


def test_group_beyond_the_budget_of_its_namespace_is_refused(tmp_path: Path) -> None:
    budgets = {"default": 2900.0}  # the group reserves five jobs of 600 s
    with staged(tmp_path, MemoryWorld(4), predictor=Curve(epoch_s=60.0), budgets=budgets) as stage:
        view = declare(stage, *chain(), deadline="1h")
    assert (view["verdict"], view["reason_code"]) == ("refused", "capacity_budget_spent")
    assert view["state"] == "refused"


def test_coming_steps_count_in_the_budget_of_their_namespace(tmp_path: Path) -> None:
    budgets = {"default": 3900.0}  # 900 s are left, the other one takes 1,200
    with staged(tmp_path, MemoryWorld(8), predictor=Curve(epoch_s=60.0), budgets=budgets) as stage:
        assert declare(stage, *chain(), deadline="1h")["verdict"] == "promised"
        stage.submit("other", deadline="1h", model="other", widths="1", epochs=20)
        other = stage.until("default/other", lambda job: job["verdict"] != "none", "a verdict")
    assert (other["verdict"], other["reason_code"]) == ("refused", "capacity_budget_spent")


@pytest.mark.parametrize("submitted", ["before", "after"])
def test_fault_of_a_group_starts_no_step_out_of_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, submitted: str
) -> None:
    def fail(*_: object) -> None:
        raise ArithmeticError

    with staged(tmp_path, MemoryWorld(4), predictor=Curve(epoch_s=60.0)) as stage:
        declare(stage, *chain(), deadline="1h")
        if submitted == "before":
            submit(stage, "f1", "finetune", after="pretrain")
            stage.until("default/f1", lambda v: v["reason"] == "it waits for pretrain", "held")
        monkeypatch.setattr("laxity_scheduler.groups.cycle.record_steps", fail)
        if submitted == "after":
            submit(stage, "f1", "finetune", after="pretrain")
        stage.submit("other", deadline="1h")
        stage.until("default/other", lambda v: v["workers"] > 0, "running")
        held = stage.http.get("/v1/jobs/default/f1").json()
    assert (held["workers"], held["state"]) == (0, "queued")
