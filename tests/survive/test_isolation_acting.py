"""Whatever is raised about one Job: that Job says so, and all others are served in the same cycle."""

import logging
import re
import time
from typing import Any

import pytest

from laxity import names
from laxity_k8s import live_cluster as acting
from laxity_k8s.act import patches, plan_patches, pod_signals, sender
from laxity_k8s.live_cluster import LiveCluster
from laxity_k8s.local import local_cluster as cluster
from laxity_k8s.objects import held_gpus, pods, status_annotation
from laxity_k8s.objects import jobs as objects
from laxity_k8s.observe import cluster_cache, eligible, group_reader, node_table, rejections
from laxity_scheduler.model.decision import Preempt
from laxity_scheduler.plan import Plan
from tests.support.breaking import BAD, GOOD, SAID, Breaking, named, put, seen, touch
from tests.support.manifests import SUSPENDED, job, node, pod
from tests.support.two_jobs import WHY, admit, ids, running, told, with_state


@pytest.fixture
def world(two_jobs: LiveCluster) -> LiveCluster:
    return two_jobs


READING = [
    pytest.param(objects, "job_row", id="its row"),
    pytest.param(group_reader, "read_status", id="what laxity has written on it"),
    pytest.param(group_reader, "asks_of", id="what its pods ask for"),
    pytest.param(eligible.Eligible, "name_of", id="where it may go"),
    pytest.param(group_reader, "_may_have_reports", id="whether it has run"),
    pytest.param(held_gpus, "pods_busy", id="its pods"),
    pytest.param(acting, "find_correction", id="what it needs before"),
    pytest.param(rejections.Rejections, "problem", id="whether it was rejected"),
]


@pytest.mark.parametrize(("owner", "name"), READING)
def test_a_job_that_cannot_be_read_says_why_and_the_other_is_observed(
    owner: Any,
    name: str,
    world: LiveCluster,
    counted: list[str],
    breaks: Breaking,
    *,
    caplog: pytest.LogCaptureFixture,
) -> None:
    put(world, pod(0, of="bad", node="b"), "pods")
    while not world._cache.pods:
        assert world.wait(10.0)
    breaks(owner, name)
    with caplog.at_level(logging.ERROR, logger="laxity_scheduler.job_faults"):
        for _ in range(3):
            touch(world, BAD)
            state = world.observe()
    state = world.observe()
    assert ids(state) == [GOOD]
    assert told(world) == SAID
    stages = "(observation|observation of pods|patch)"
    logged = [line for line in caplog.records if re.match(f"{stages} of {BAD}: ", line.message)]
    assert len(logged) == len(set(counted)) == 1 + (name == "pods_busy")
    assert len(counted) >= 3, "at every look"
    assert "Traceback" in caplog.text
    admit(world, GOOD)
    assert world.observe().by_id[GOOD].workers == 1


CARRYING_OUT = [
    pytest.param(plan_patches, "job_patch", id="its patch"),
    pytest.param(patches, "affinity_patch", id="its affinity"),
]


@pytest.mark.parametrize(("owner", "name"), CARRYING_OUT)
def test_a_job_whose_patch_cannot_be_made_says_why_and_the_other_starts(
    owner: Any, name: str, world: LiveCluster, counted: list[str], breaks: Breaking
) -> None:
    world.observe()
    breaks(owner, name)
    admit(world, BAD, GOOD)
    state = world.observe()
    assert ids(state) == [GOOD]
    assert state.by_id[GOOD].workers == 1
    assert told(world) == SAID
    assert counted == ["patch"]


def test_a_signal_that_cannot_be_written_holds_up_no_other_decision(
    world: LiveCluster, breaks: Breaking
) -> None:
    put(world, running("bad"))
    seen(world, BAD)
    world.observe()
    world.carry_out(Plan((Preempt(BAD, "epoch", GOOD, WHY),)))
    assert world.observe().by_id[BAD].stop_requested_at is not None
    breaks(pod_signals.PodSignals, "_build_patch")
    admit(world, GOOD)
    state = world.observe()
    assert state.by_id[GOOD].workers == 1
    assert ids(state) == [GOOD]
    assert told(world) == SAID


def test_words_that_cannot_be_said_keep_no_patch_from_landing(
    world: LiveCluster, breaks: Breaking
) -> None:
    world.observe()
    breaks(sender.Sender, "_write_events")
    admit(world, BAD, GOOD)
    assert {row.id: row.workers for row in world.observe().jobs} == {BAD: 1, GOOD: 1}


def test_an_answer_that_cannot_be_taken_in_keeps_no_other_from_it(
    world: LiveCluster, counted: list[str], breaks: Breaking
) -> None:
    world.observe()
    breaks(sender.Sender, "_send_again")
    admit(world, BAD, GOOD)
    assert world.observe().by_id[GOOD].workers == 1
    assert counted == ["sending"]


def test_a_patch_that_the_local_cluster_chokes_on_is_refused_alone(
    world: LiveCluster, breaks: Breaking
) -> None:
    world.observe()
    breaks(cluster, "apply_patch")
    admit(world, BAD, GOOD)
    state = world.observe()
    assert state.by_id[GOOD].workers == 1
    assert world._snapshot.bad[BAD].problems[0].startswith(SAID)


def test_gpus_of_a_job_that_cannot_be_read_stay_busy(world: LiveCluster, breaks: Breaking) -> None:
    put(world, running("bad"))
    seen(world, BAD)
    breaks(objects, "job_row")
    state = world.observe()
    assert {one.id: one.free_gpus for one in state.nodes} == {"a": 4, "b": 3}, "it was sent there"
    put(world, pod(0, of="bad", node="b"), "pods")
    while not world._cache.pods:
        assert world.wait(10.0)
    state = world.observe()
    assert {one.id: one.free_gpus for one in state.nodes} == {"a": 4, "b": 3}, "its pod is there"


def test_a_job_that_can_be_read_again_is_decided_on_without_a_change(
    world: LiveCluster, monkeypatch: pytest.MonkeyPatch, breaks: Breaking
) -> None:
    with monkeypatch.context():
        breaks(objects, "job_row")
        touch(world, BAD)
        for _ in range(2):  # nothing is new any more
            world.observe()
        assert told(world) == SAID
        due_at = world._snapshot.due_at
    monkeypatch.undo()
    monkeypatch.setattr(time, "time", lambda: due_at + 1.0)
    assert world.observe().by_id[BAD].asked, "its refusal was no verdict on what it asks for"


def test_a_job_put_right_to_what_it_said_before_asks_again(world: LiveCluster) -> None:
    judged = with_state(
        named(job("bad")),
        status_annotation.JobStatusRecord(
            terms=status_annotation.digest_terms(named(job("bad"))), wanted=0
        ),
    )
    put(world, judged)
    seen(world, BAD)
    assert not world.observe().by_id[BAD].verdict
    world.annotate(BAD, {names.DEADLINE: "soon"})
    assert ids(world.observe()) == [GOOD]
    assert "deadline" in told(world)
    world.annotate(BAD, {names.DEADLINE: None})
    assert world.observe().by_id[BAD].asked, "its refusal was no verdict on what it asks for"


def test_gpus_that_cannot_be_held_for_one_job_are_held_for_others(
    world: LiveCluster, breaks: Breaking
) -> None:
    for name, other in (("bad", GOOD), ("victim", GOOD)):
        now = time.time()
        state = status_annotation.JobStatusRecord(
            freed_for=other, freed_nodes=("a",), freed_at=now, wanted=0
        )
        put(world, with_state(job(name, status=SUSPENDED), state))
    seen(world, BAD, "default/victim")
    breaks(held_gpus, "find_holds")
    assert [hold.job for hold in world.observe().holds] == [GOOD]


def test_a_node_that_cannot_be_read_is_left_out_alone(
    world: LiveCluster, counted: list[str], breaks: Breaking
) -> None:
    put(world, node("bad"), "nodes")
    while "bad" not in world._cache.nodes:
        assert world.wait(10.0)
    breaks(node_table, "node_rows")
    assert [one.id for one in world.observe().nodes] == ["a", "b"]
    assert counted == [], "no job is to blame"


def test_a_node_that_cannot_be_judged_takes_no_pods_and_the_others_do(
    world: LiveCluster, breaks: Breaking
) -> None:
    put(world, node("bad"), "nodes")
    while "bad" not in world._cache.nodes:
        assert world.wait(10.0)
    breaks(eligible, "shut_out")
    chosen = job("chosen")
    chosen["spec"]["template"]["spec"]["tolerations"] = [{"operator": "Exists"}]
    put(world, chosen)
    seen(world, "default/chosen")
    state = world.observe()
    assert state.eligible_nodes(state.by_id["default/chosen"]) == frozenset({"a", "b"})


@pytest.mark.parametrize("name", ["learn_tolerations", "name_of"])
def test_other_nodes_are_worked_out_for_all_jobs_but_one_that_raises(
    name: str, world: LiveCluster, breaks: Breaking
) -> None:
    world.observe()
    breaks(eligible.Eligible, name)
    put(world, pod(0, of="bad", node="b"), "pods")
    taint = {"key": "bad", "effect": "NoSchedule"}
    put(world, node("tainted", 4, taints=[taint]), "nodes")
    while "tainted" not in world._cache.nodes or not world._cache.pods:
        assert world.wait(10.0)
    touch(world, BAD)
    state = world.observe()
    assert state.eligible_nodes(state.by_id[GOOD]) == frozenset({"a", "b"})


def test_a_job_s_change_that_cannot_be_taken_in_is_an_error_about_it_alone(
    world: LiveCluster, counted: list[str], breaks: Breaking
) -> None:
    breaks(cluster_cache.ClusterCache, "put_object")
    put(world, job("bad", suspend=False))
    put(world, job("good", suspend=False))
    seen(world, GOOD)
    assert set(counted) == {"watch"}


def test_a_change_that_cannot_be_taken_in_ends_no_watch(
    world: LiveCluster, breaks: Breaking
) -> None:
    breaks(pods, "owner_of")
    put(world, pod(0, of="bad"), "pods")
    put(world, pod(0, of="good"), "pods")
    while not any("good" in key for key in world._cache.pods_of):
        assert world.wait(10.0)
    assert ids(world.observe()) == [BAD, GOOD]


@pytest.mark.parametrize("where", ["take", "reject"])
def test_what_was_marked_as_changed_is_marked_again_after_any_exception(
    where: str, world: LiveCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as context:
        if where == "take":
            context.setattr(node_table.NodeTable, "renew", fail)
        else:
            context.setattr(sender.Sender, "write_corrections", fail)
        with pytest.raises(KeyboardInterrupt):
            world.observe()
    state = world.observe()
    assert ids(state) == [BAD, GOOD]
    assert [one.id for one in state.nodes] == ["a", "b"]
