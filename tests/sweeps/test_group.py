"""A sweep is a group whose client gives the verdict and says when it is over."""

from pathlib import Path
from typing import Any

from tests.support.builders import Curve
from tests.support.memory_world import MemoryWorld
from tests.support.services import staged

DUE = "2100-01-01T06:00:00Z"


def sweep(verdict: str = "forecast", reason: str = "", **more: Any) -> dict[str, Any]:
    return {
        "name": "s",
        "kind": "sweep",
        "deadline": DUE,
        "verdict": verdict,
        "reason": reason,
    } | more


def test_client_of_a_sweep_moves_its_verdict(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(4)) as stage:
        stage.http.post("/v1/groups", json=sweep())
        stage.http.post("/v1/groups", json=sweep("promised", "4 to 6 of 8 trials"))
        group = stage.http.get("/v1/groups/default/s").json()
    assert (group["verdict"], group["reason"]) == ("promised", "4 to 6 of 8 trials")
    assert group["state"] == "active"


def test_amended_deadline_outlasts_the_next_verdict(tmp_path: Path) -> None:
    later = "2100-01-01T09:00:00Z"
    with staged(tmp_path, MemoryWorld(4)) as stage:
        first = stage.http.post("/v1/groups", json=sweep()).json()
        stage.http.post("/v1/groups/default/s/amend", json={"deadline": later})
        stage.http.post("/v1/groups", json=sweep("promised", "all"))
        group = stage.http.get("/v1/groups/default/s").json()
    assert group["deadline_at"] - first["deadline_at"] == 3 * 3600
    assert group["verdict"] == "promised"


def test_deadline_that_has_passed_is_no_other_one(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(4)) as stage:
        first = stage.http.post("/v1/groups", json=sweep("promised", "all")).json()
        past = {"deadline": "2020-01-01T06:00Z"}
        answer = stage.http.post("/v1/groups/default/s/amend", json=past)
        group = stage.http.get("/v1/groups/default/s").json()
    assert (answer.status_code, group["deadline_at"]) == (422, first["deadline_at"])
    assert "has passed" in answer.json()["error"]["message"]


def test_trials_keep_their_own_deadlines_and_the_sweep_goes_on(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(4)) as stage:
        stage.http.post("/v1/groups", json=sweep())
        view = stage.run("a", group="s", step="trial-0", deadline="1h", widths="1")
        group = stage.http.get("/v1/groups/default/s").json()
    assert view["deadline_at"] - view["submitted_at"] < 3601.0
    assert (group["state"], [job["step"] for job in group["jobs"]]) == ("active", ["trial-0"])


def test_refused_trials_end_with_their_sweep_and_others_run_on(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(4), predictor=Curve(epoch_s=60.0)) as stage:
        stage.http.post("/v1/groups", json=sweep())
        for name, deadline in (("runs", "1h"), ("late", "5m")):
            stage.submit(name, group="s", step=name, deadline=deadline, widths="1")
        stage.until("default/runs", lambda view: view["workers"] > 0, "running")
        refused = stage.until("default/late", lambda view: view["state"] == "refused", "refused")
        stage.http.post("/v1/groups/default/s/end", json={"state": "finished"})
        ended = stage.until("default/late", lambda view: view["finished_at"], "over")
        runs = stage.http.get("/v1/jobs/default/runs").json()
    assert (refused["finished_at"], ended["state"]) == (None, "refused")
    assert (runs["state"], runs["finished_at"]) == ("running", None)


def test_sweep_whose_client_died_ends_after_its_deadline_with_its_refused_trials(
    tmp_path: Path,
) -> None:
    late = {"submitted_at": "2020-01-01T06:00:00Z", "deadline": "1h"}
    with staged(tmp_path, MemoryWorld(4), predictor=Curve(epoch_s=60.0)) as stage:
        for name, declared in (("over", late), ("goes-on", late), ("in-time", {})):
            stage.submit(f"{name}-0", group=name, step="trial-0", deadline="5m", widths="1")
            stage.until(f"default/{name}-0", lambda view: view["state"] == "refused", "refused")
            if name == "goes-on":
                stage.run("runs", group=name, step="trial-1", widths="1")
            stage.http.post("/v1/groups", json=sweep(**(declared | {"name": name})))
        ended = stage.until("default/over-0", lambda view: view["finished_at"], "over")
        states = {
            name: stage.http.get(f"/v1/groups/default/{name}").json()["state"]
            for name in ("over", "goes-on", "in-time")
        }
        others = stage.http.get("/v1/jobs/default/goes-on-0").json()
    assert (ended["state"], others["finished_at"]) == ("refused", None)
    assert states == {"over": "finished", "goes-on": "active", "in-time": "active"}


def test_workflow_gets_no_verdict_from_its_client(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(4)) as stage:
        asked = sweep("promised", "because I say so", kind="workflow")
        group = stage.http.post("/v1/groups", json=asked).json()
    assert group["verdict"] != "promised"
