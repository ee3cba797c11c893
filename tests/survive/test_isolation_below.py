"""What an object raises in the local cluster and on the wire ends nothing for the others."""

from pathlib import Path

import pytest

from laxity import json_tree
from laxity_k8s import error_isolation
from laxity_k8s.cluster_api import ApiError, Patch
from laxity_k8s.http import session
from laxity_k8s.live_cluster import LiveCluster
from laxity_k8s.local import control_loop, scheduler
from laxity_k8s.local import local_cluster as local
from laxity_k8s.objects import pods
from laxity_k8s.objects.conditions import read_condition
from tests.support.breaking import BAD, GOOD, SAID, Breaking
from tests.support.manifests import job, node, pod


@pytest.fixture
def world(two_jobs: LiveCluster) -> LiveCluster:
    return two_jobs


def test_a_pod_that_cannot_be_placed_keeps_no_other_from_its_node(breaks: Breaking) -> None:
    breaks(scheduler, "held_nodes")
    waiting = [pod(0, of=name, phase="Pending") for name in ("bad", "good")]
    found = scheduler.find_bindings(waiting, (), [node("a")], {}, error_isolation.Guard("test"))
    assert list(found) == [json_tree.object_id(waiting[1])]


def test_a_job_that_the_local_cluster_chokes_on_keeps_no_other_from_running(
    world: LiveCluster, breaks: Breaking
) -> None:
    there = world.api.controller  # type: ignore[attr-defined]
    breaks(control_loop, "reconcile_job")
    for job_id in (BAD, GOOD):
        world.api.patch(Patch("jobs", job_id, {"spec": {"suspend": False}}))
    there._catch_up(set())
    for job_id in (BAD, GOOD):
        there._guard(job_id, there._reconcile_job, job_id, 1.0)
    made = world.api.list("pods").items
    assert [pods.owner_of(one)[0] for one in made] == [GOOD]
    (event,) = [one for one in world.api.list("events").items if one["reason"] == "Problem"]
    assert event["message"] == f"{BAD} is tried again: {SAID}"


def test_a_pass_of_the_local_cluster_that_fails_is_not_its_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    whole, failures = control_loop.Controller.pass_over, iter([RuntimeError("torn")])

    def fail_once(self: control_loop.Controller, dirty: set[str]) -> set[str]:
        for error in failures:
            raise error
        return whole(self, dirty)

    monkeypatch.setattr(control_loop.Controller, "pass_over", fail_once)
    cluster = local.LocalCluster(tmp_path, {"a": 1})
    try:
        cluster.create("jobs", job())
        with cluster.rows.changed:
            assert cluster.rows.changed.wait_for(
                lambda: read_condition(cluster.get("jobs", "default/job"), "Suspended"),
                timeout=30.0,
            )
    finally:
        cluster.close()
    assert "RuntimeError: torn" in caplog.text


def test_what_cannot_be_removed_ends_no_waiting(
    world: LiveCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []

    def fail() -> None:
        tried.append("once")
        raise OSError("no such folder")

    monkeypatch.setattr(world, "collect", fail)
    world._collected_at = 0.0
    for _ in range(2):
        world.wait(0.0)
    assert tried == ["once"]


def test_a_patch_that_json_cannot_hold_is_refused_as_a_server_would() -> None:
    with pytest.raises(ApiError, match="PATCH /jobs/bad: no JSON") as refused:
        session.encode_body({"text": "\ud800"}, "PATCH /jobs/bad")
    assert refused.value.status == 422
