"""A flow that says one_at_a_time has one job at a time; its key attaches to that."""

import threading
from pathlib import Path
from typing import Any

import pytest

from laxity.flow.declaration import Declaration
from laxity.job.spec import TrainingSpec
from tests.support.builders import Curve
from tests.support.memory_world import MemoryWorld
from tests.support.services import Stage, manifest, staged

ALONE = {"one-at-a-time": "true"}


def post(stage: Stage, name: str, **said: Any) -> Any:
    job = manifest(name, **{"deadline": "2h", **said})
    job["metadata"]["annotations"] |= {f"laxity.dev/{key}": text for key, text in ALONE.items()}
    return stage.http.post("/v1/jobs", json=job)


def test_a_second_job_of_the_flow_is_refused_with_the_name_of_the_first(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(4), predictor=Curve(epoch_s=100.0)) as stage:
        first, second = (post(stage, name, key=name) for name in ("a", "b"))

        assert first.status_code == 201
        assert second.status_code == 409
        message = second.json()["error"]["message"]
        assert message.startswith("default/a of the same flow has not ended (")
        assert "one_at_a_time is declared: wait for it, cancel it" in message


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"key": "a"}, id="the same key attaches"),
        pytest.param({"model": "another"}, id="another model"),
        pytest.param({"entry": "train:tune"}, id="another function"),
        pytest.param({"namespace": "team-b"}, id="another namespace"),
    ],
)
def test_what_is_not_another_job_of_the_flow_is_taken(
    tmp_path: Path, other: dict[str, str]
) -> None:
    with staged(tmp_path, MemoryWorld(4), predictor=Curve(epoch_s=100.0)) as stage:
        post(stage, "a", key="a")
        answer = post(stage, "a" if "key" in other else "b", **{"key": "b", **other})

        assert answer.status_code in (200, 201), answer.text
        assert answer.json()["attached"] is ("key" in other)


def test_the_next_job_is_taken_once_the_first_has_ended(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(4), predictor=Curve(epoch_s=100.0)) as stage:
        post(stage, "a", key="a")
        stage.http.delete("/v1/jobs/default/a")
        stage.until("default/a", lambda view: view["state"] == "cancelled", "cancelled")

        assert post(stage, "b", key="b").status_code == 201


def test_a_refused_job_holds_up_no_later_one_and_asks_again_only_after_it(
    tmp_path: Path,
) -> None:
    with staged(tmp_path, MemoryWorld(4), predictor=Curve(epoch_s=100.0)) as stage:
        post(stage, "a", key="a", deadline="1m")
        stage.until("default/a", lambda view: view["state"] == "refused", "refused")

        assert post(stage, "b", key="b").status_code == 201
        for call, body in (("accept", {"offer": 1}), ("amend", {"deadline": "3h"})):
            answer = stage.http.post(f"/v1/jobs/default/a/{call}", json=body)
            assert answer.json()["error"]["message"].startswith("default/b of the same flow")
        stage.http.delete("/v1/jobs/default/b")
        stage.until("default/b", lambda view: view["state"] == "cancelled", "cancelled")
        stage.http.post("/v1/jobs/default/a/amend", json={"deadline": "3h"})
        stage.until("default/a", lambda view: view["workers"] > 0, "running")


def test_of_several_at_once_one_is_taken(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(4), predictor=Curve(epoch_s=100.0)) as stage:
        codes: list[int] = []

        def submit(name: str) -> None:
            codes.append(post(stage, name, key=name).status_code)

        threads = [threading.Thread(target=submit, args=(f"n{number}",)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert sorted(codes) == [201] + [409] * 5


def test_the_declaration_travels_in_the_job() -> None:
    declared = Declaration.of("nightly", {"one_at_a_time": True})
    spec = declared.spec(entry="train:main", parameters={})

    assert spec.annotations()["laxity.dev/one-at-a-time"] == "true"
    assert TrainingSpec.from_manifest(spec.to_manifest()).one_at_a_time
    assert "laxity.dev/one-at-a-time" not in Declaration.of("n", {}).spec(
        entry="train:main", parameters={}
    ).annotations()  # fmt: skip
