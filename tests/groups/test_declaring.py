"""Groups are declared, listed, shown, moved and ended; wrong declarations are named."""

from pathlib import Path
from typing import Any

import pytest

from laxity_scheduler.groups.group import Group, State
from laxity_scheduler.service.group_cycle.group_book import GroupBook
from laxity_scheduler.store.store import Store
from tests.support.memory_world import MemoryWorld
from tests.support.services import staged

Json = dict[str, Any]


def declaration(*steps: Json, name: str = "release", deadline: str = "8h") -> Json:
    return {"name": name, "deadline": deadline, "steps": list(steps), "workflow": "release"}


def step(name: str, *after: str, count: int = 1) -> Json:
    return {"name": name, "after": list(after), "count": count}


OLD_GROUPS: tuple[tuple[str, str, State], ...] = (
    ("a", "nightly", "finished"),
    ("b", "nightly", "finished"),
    ("c", "nightly", "failed"),
    ("d", "weekly", "refused"),
)
STEPS = (step("pretrain"), step("finetune", "pretrain", count=3), step("evaluate", "finetune"))


def test_group_survives_a_restart_with_its_steps(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(4)) as stage:
        answer = stage.http.post("/v1/groups", json=declaration(*STEPS))
        assert answer.status_code == 201
        declared = answer.json()
    store = Store.open(f"sqlite:///{tmp_path}/laxity.db")
    group = GroupBook(store).group("default/release")
    store.close()
    assert [(one.name, one.count, one.after) for one in group.steps] == [
        ("pretrain", 1, ()),
        ("finetune", 3, ("pretrain",)),
        ("evaluate", 1, ("finetune",)),
    ]
    assert group.deadline_at == declared["deadline_at"]


def test_same_name_attaches_and_keeps_the_deadline(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(4)) as stage:
        first = stage.http.post("/v1/groups", json=declaration(*STEPS))
        again = stage.http.post("/v1/groups", json=declaration(*STEPS))
        listed = stage.http.get("/v1/groups").json()["groups"]
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json()["deadline_at"] == first.json()["deadline_at"]
    assert [row["id"] for row in listed] == ["default/release"]


def test_cancelled_group_cancels_its_jobs_and_no_others(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(4)) as stage:
        stage.http.post("/v1/groups", json=declaration(*STEPS))
        stage.submit("mine", group="release", step="pretrain")
        stage.submit("foreign")
        stage.http.post("/v1/groups/default/release/end", json={"state": "cancelled"})
        mine = stage.until("default/mine", lambda view: view["state"] == "cancelled", "cancelled")
        foreign = stage.http.get("/v1/jobs/default/foreign").json()
        group = stage.http.get("/v1/groups/default/release").json()
    assert (mine["group"], mine["step"]) == ("release", "pretrain")
    assert foreign["state"] != "cancelled"
    assert [job["id"] for job in group["jobs"]] == ["default/mine"]
    assert group["state"] == "cancelled"


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        pytest.param([step("a", "b"), step("b", "a")], "a circle", id="cycle"),
        pytest.param([step("a", "c")], "c, which is no step", id="unknown step"),
        pytest.param([step("a"), step("a")], "two steps are called a", id="one name twice"),
        pytest.param([step("a", count=0)], "jobs", id="no jobs"),
        pytest.param([step("Ä")], "no DNS label", id="name"),
    ],
)
def test_wrong_steps_are_refused_in_one_sentence(
    rows: list[Json], sentence: str, tmp_path: Path
) -> None:
    with staged(tmp_path, MemoryWorld(4)) as stage:
        answer = stage.http.post("/v1/groups", json=declaration(*rows))
    assert answer.status_code == 422
    assert sentence in answer.json()["error"]["message"]


def test_step_without_a_group_is_refused(tmp_path: Path) -> None:
    from tests.support.services import manifest

    with staged(tmp_path, MemoryWorld(4)) as stage:
        answer = stage.http.post("/v1/jobs", json=manifest("a", step="pretrain"))
    assert answer.status_code == 422
    assert "a step of no group" in answer.json()["error"]["message"]


def test_unknown_group_is_not_found(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(4)) as stage:
        answer = stage.http.get("/v1/groups/default/nobody")
    assert (answer.status_code, answer.json()["error"]["message"]) == (
        404,
        "there is no group default/nobody",
    )


def test_running_group_with_other_steps_is_refused(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(4)) as stage:
        stage.http.post("/v1/groups", json=declaration(*STEPS))
        answer = stage.http.post("/v1/groups", json=declaration(*STEPS[:2]))
    assert answer.status_code == 422
    assert (
        "runs with other steps (1 of pretrain, 3 of finetune" in answer.json()["error"]["message"]
    )


def test_failed_group_counts_its_deadline_from_the_first_submission(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(4)) as stage:
        first = stage.http.post("/v1/groups", json=declaration(*STEPS)).json()
        stage.http.post("/v1/groups/default/release/end", json={"state": "failed"})
        again = stage.http.post("/v1/groups", json=declaration(*STEPS)).json()
    assert again["state"] == "active"
    assert abs(again["deadline_at"] - first["deadline_at"]) < 0.01


def test_groups_that_ended_long_ago_are_forgotten_but_for_the_last_run(tmp_path: Path) -> None:
    ended = [
        Group(f"default/{name}", flow, 9.0, 1.0 + at, state=state, finished_at=2.0 + at)
        for at, (name, flow, state) in enumerate(OLD_GROUPS)
    ]
    store = Store.open(f"sqlite:///{tmp_path}/laxity.db")
    book = GroupBook(store)
    for group in (*ended, Group("default/here", "nightly", 9.0, 1.5)):
        book.keep(group)
    store.delete_old(cycles_before=0, ended_before=100.0)
    book.load()
    store.close()
    assert {group.id for group in book.groups(lambda _: True)} == {"default/here", "default/b"}


def test_whatif_judges_a_group_and_keeps_nothing(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(4)) as stage:
        answer = stage.http.post("/v1/groups/whatif", json=declaration(*STEPS)).json()
        listed = stage.http.get("/v1/groups").json()["groups"]
    assert (answer["state"], answer["verdict"]) == ("not submitted", "forecast")
    assert listed == []
