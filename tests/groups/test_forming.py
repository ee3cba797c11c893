"""Jobs that name a group which nobody has declared, as `kubectl apply -f` makes them."""

from pathlib import Path
from typing import Any

import pytest

from laxity_scheduler.service.group_cycle import group_forming
from tests.groups.test_promising import declare, step
from tests.support.builders import Curve
from tests.support.memory_world import MemoryWorld
from tests.support.services import Stage, staged

Json = dict[str, Any]
TRAINED = "default/pretrain", "default/finetune"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_forming, "SETTLED_S", 1.0)  # instants of Jobs are whole seconds


@pytest.fixture
def stage(tmp_path: Path) -> Any:
    with staged(tmp_path, MemoryWorld(4), predictor=Curve(epoch_s=60.0)) as opened:
        yield opened


def apply(stage: Stage, name: str, *, after: str = "", **fields: str) -> None:
    fields |= {"after": after} if after else {}
    stage.submit(name, widths="1", group="release", **fields)


def apply_both(stage: Stage, deadline: str) -> None:
    apply(stage, "pretrain", deadline=deadline)
    apply(stage, "finetune", after="pretrain", deadline=deadline)


def until_reason(stage: Stage, job: str, words: str) -> Json:
    return stage.until(job, lambda view: words in view["reason"], f"told {words!r}")


def group_of(stage: Stage) -> Json:
    view: Json = stage.http.get("/v1/groups/default/release").json()
    return view


def test_jobs_form_their_group_and_start_in_its_order(stage: Stage) -> None:
    apply_both(stage, "1h")
    first = stage.until("default/pretrain", lambda view: view["workers"], "running")
    later = until_reason(stage, "default/finetune", "it waits for pretrain")
    group = group_of(stage)
    assert (group["verdict"], group["state"]) == ("promised", "active")
    assert (first["verdict"], later["workers"]) == ("promised", 0)
    steps = {step["name"]: step["after"] for step in group["steps"]}
    assert steps == {"pretrain": [], "finetune": ["pretrain"]}
    assert first["deadline_at"] < group["deadline_at"], "its share"


def test_a_group_is_judged_beside_what_is_kept_for_another(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(1), predictor=Curve(epoch_s=60.0)) as stage:
        declare(stage, step("pretrain"), step("finetune", "pretrain"), deadline="30m", name="one")
        apply_both(stage, "30m")
        until_reason(stage, "default/pretrain", "its group default/release is refused")
        assert group_of(stage)["state"] == "refused"


def test_group_waits_for_a_step_that_another_one_comes_after(stage: Stage) -> None:
    apply(stage, "finetune", after="pretrain", deadline="1h")
    told = until_reason(stage, "default/finetune", "comes after pretrain, which is no step")
    assert told["workers"] == 0
    apply(stage, "pretrain", deadline="1h")
    stage.until("default/pretrain", lambda view: view["verdict"] == "promised", "promised")


def test_group_without_a_deadline_says_where_to_write_one(stage: Stage) -> None:
    apply(stage, "finetune", after="pretrain")
    apply(stage, "pretrain")
    until_reason(stage, "default/pretrain", "annotate one with laxity.dev/deadline")


def test_circle_of_steps_is_told_to_each_of_its_jobs(stage: Stage) -> None:
    apply(stage, "finetune", after="pretrain", deadline="1h")
    apply(stage, "pretrain", after="finetune", deadline="1h")
    for job in TRAINED:
        assert until_reason(stage, job, "a circle")["workers"] == 0


def test_jobs_of_a_refused_group_wait_until_another_deadline_is_promised(stage: Stage) -> None:
    apply_both(stage, "5m")
    for job in TRAINED:
        assert until_reason(stage, job, "default/release is refused: its P90")["workers"] == 0
    stage.http.post("/v1/groups/default/release/amend", json={"deadline": "1h"})
    stage.until("default/pretrain", lambda view: view["workers"], "running")
    assert group_of(stage)["verdict"] == "promised"


def test_jobs_that_are_applied_anew_form_a_new_group_after_a_refusal(stage: Stage) -> None:
    apply_both(stage, "5m")
    for job in TRAINED:
        until_reason(stage, job, "is refused")
    for job in TRAINED:
        stage.http.delete(f"/v1/jobs/{job}")
    apply(stage, "again", deadline="1h")
    apply(stage, "rest", after="again", deadline="1h")
    stage.until("default/again", lambda view: view["verdict"] == "promised", "promised")
    assert {step["name"] for step in group_of(stage)["steps"]} == {"again", "rest"}


def test_jobs_of_a_group_side_by_side_are_jobs_of_their_own(stage: Stage) -> None:
    apply(stage, "alone", deadline="1h")
    stage.until("default/alone", lambda view: view["verdict"] == "promised", "promised")
    assert stage.http.get("/v1/groups/default/release").status_code == 404


def test_step_that_runs_already_is_one_that_others_may_come_after(stage: Stage) -> None:
    apply(stage, "pretrain", deadline="1h")
    stage.until("default/pretrain", lambda view: view["workers"], "running")
    apply(stage, "finetune", after="pretrain", deadline="1h")
    until_reason(stage, "default/finetune", "it waits for pretrain")


def test_later_step_of_a_group_that_has_ended_does_not_start(stage: Stage) -> None:
    apply(stage, "pretrain", deadline="1h")
    apply(stage, "finetune", after="pretrain", deadline="1h")
    until_reason(stage, "default/finetune", "it waits for pretrain")
    stage.service.groups.book.end("default/release", "failed")
    stage.world.wake()
    told = until_reason(stage, "default/finetune", "one of its steps has failed")
    assert told["workers"] == 0
