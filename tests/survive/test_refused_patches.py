"""What the API server or the service refuses of one Job is told there, and tried again later and later."""

import logging
import time
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from laxity import names
from laxity_k8s.act.adoption import write_refusal
from laxity_k8s.act.rights import SETTLE_S
from laxity_k8s.cluster_api import ApiError, Patch, PatchResult
from laxity_k8s.live_cluster import LiveCluster
from laxity_k8s.objects import jobs as objects
from laxity_k8s.objects.status_annotation import verdict_text
from laxity_scheduler.model.reasons import format_utc
from tests.support.breaking import BAD, GOOD, put, seen, touch
from tests.support.builders import promise
from tests.support.manifests import job
from tests.support.two_jobs import admit, ids, running, told


@pytest.fixture
def world(two_jobs: LiveCluster) -> LiveCluster:
    return two_jobs


def test_an_api_server_that_is_away_is_no_problem_of_a_job(
    world: LiveCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: Any, **__: Any) -> None:
        raise ApiError("it does not answer")

    with monkeypatch.context() as context:
        context.setattr(objects, "job_row", away)
        with pytest.raises(ApiError):
            world.observe()
    assert ids(world.observe()) == [BAD, GOOD]


def test_a_rejected_job_is_left_out_with_its_reason_until_its_user_changes_it(
    world: LiveCluster,
) -> None:
    put(world, running("bad"))
    seen(world, BAD)
    assert ids(world.observe()) == [BAD, GOOD]
    world.reject(BAD, "IndexError: list index out of range")
    world.reject("default/nobody", "it is gone")
    for _ in range(2):  # our own words on it change nothing
        state = world.observe()
        assert ids(state) == [GOOD]
        assert {one.id: one.free_gpus for one in state.nodes} == {"a": 4, "b": 3}
        assert told(world) == "IndexError: list index out of range"
        world.annotate(BAD, {names.RUN_ID: "run"})
    touch(world, BAD)
    assert ids(world.observe()) == [GOOD]
    world.annotate(BAD, {names.EPOCHS: "11"})
    assert world.observe().by_id[BAD].asked


@pytest.mark.parametrize("everything", [False, True], ids=["what starts it", "every patch"])
@pytest.mark.parametrize("status", [403, 413, 422])
def test_a_job_whose_patch_is_refused_is_told_and_tried_again_later_and_later(
    status: int, world: LiveCluster, monkeypatch: pytest.MonkeyPatch, *, everything: bool
) -> None:
    put(world, job("bad"))
    seen(world, BAD)
    world.observe()
    patch_many, sent = world.api.patch_many, []

    def refuse(patches: Iterable[Patch]) -> Iterator[PatchResult]:
        for patch in patches:
            sent.append(patch.id)
            if patch.id == BAD and (everything or "spec" in patch.body):
                yield PatchResult(patch, status, message="denied by policy")
            else:
                yield from patch_many([patch])

    monkeypatch.setattr(world.api, "patch_many", refuse)
    at = time.time()
    monkeypatch.setattr(time, "time", lambda: at)
    admit(world, BAD, GOOD)
    for wait_s in (60.0, 120.0, 240.0):
        for _ in range(3):  # its GPUs are free, and nobody asks again and again
            state = world.observe()
        assert ids(state) == [GOOD]
        assert {one.id: one.free_gpus for one in state.nodes} == {"a": 3, "b": 4}
        again_at = at + wait_s
        if not everything:
            assert told(world) == f"denied by policy (tried again at {format_utc(again_at)})"
        assert world._snapshot.due_at == pytest.approx(again_at)
        at = again_at
        assert world.observe().by_id[BAD].asked
        admit(world, BAD)
    assert sent.count(BAD) <= 4 + 4
    world.annotate(BAD, {names.EPOCHS: "11"})
    assert ids(world.observe()) == [BAD, GOOD], "at once when its user changes it"


def test_start_that_a_policy_puts_back_is_told_and_tried_later(
    world: LiveCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(world, job("bad"))
    seen(world, BAD)
    world.observe()
    patch_many = world.api.patch_many

    def keep_suspended(patches: Iterable[Patch]) -> Iterator[PatchResult]:
        for patch in patches:
            if patch.id == BAD and "spec" in patch.body:
                spec = {**patch.body["spec"], "suspend": True}
                (answer,) = patch_many([Patch("jobs", BAD, {**patch.body, "spec": spec})])
                yield PatchResult(patch, answer.status, answer.object)
            else:
                yield from patch_many([patch])

    monkeypatch.setattr(world.api, "patch_many", keep_suspended)
    at = time.time()
    monkeypatch.setattr(time, "time", lambda: at)

    admit(world, BAD, GOOD)
    for _ in range(3):
        state = world.observe()

    assert ids(state) == [GOOD]
    assert "a policy or webhook of the cluster puts back spec.suspend" in told(world)
    assert names.PIN not in world.job(BAD)["metadata"]["annotations"]
    assert world._snapshot.due_at == pytest.approx(at + 60.0)


def test_a_namespace_without_rights_is_told_once_with_what_to_do(
    world: LiveCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """In the words of the API server's RBAC; a Job there waits, and nobody tries in each cycle."""
    right = 'jobs.batch is forbidden: User laxity cannot patch resource "jobs" in API group'
    sent: list[str] = []

    def refuse(patches: Iterable[Patch]) -> Iterator[PatchResult]:
        for patch in patches:
            sent.append(patch.id)
            yield PatchResult(patch, 403, message=right)

    monkeypatch.setattr(world.api, "patch_many", refuse)
    told: list[tuple[str, str, str]] = []
    monkeypatch.setattr(
        world._events, "add_event",
        lambda thing, code, words, **_: told.append((thing["kind"], code, words)),
    )  # fmt: skip
    at = time.time()
    monkeypatch.setattr(time, "time", lambda: at)
    world.observe()
    with caplog.at_level(logging.WARNING, logger="laxity_k8s"):
        admit(world, BAD, GOOD)
        assert world.find_undone() == {BAD: "", GOOD: ""}
        at += SETTLE_S
        assert ids(world.observe()) == [BAD, GOOD], "it may have started a moment ago"
        admit(world, BAD, GOOD)
        assert "create rolebinding laxity" in world.find_undone()[BAD]
        for _ in range(5):
            assert ids(world.observe()) == []
    assert sorted(set(sent)) == [BAD, GOOD]
    assert len(sent) <= 6, "the start twice, and the reason on the Job"
    for why in (world.find_left_out()[BAD], world.find_left_out()[GOOD]):
        assert "kubectl -n default create rolebinding laxity" in why.text
    ((code, words),) = [(code, words) for kind, code, words in told if kind == "Pod"]
    assert code == "namespace_not_bound"
    assert "kubectl -n default create rolebinding laxity" in words
    assert sum("create rolebinding" in line.message for line in caplog.records) == 1
    assert world.patch_outcomes["403"] == len(sent)


def test_an_api_server_that_knows_no_roles_yet_is_asked_again_and_nobody_told(
    world: LiveCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    right = 'jobs.batch is forbidden: User laxity cannot patch resource "jobs" in API group'
    at = time.time()
    monkeypatch.setattr(time, "time", lambda: at)
    world.observe()
    with monkeypatch.context() as starting, caplog.at_level(logging.WARNING, logger="laxity_k8s"):
        starting.setattr(
            world.api, "patch_many",
            lambda patches: [PatchResult(patch, 403, message=right) for patch in patches],
        )  # fmt: skip
        admit(world, BAD, GOOD)
    assert world.wait(2.0), "it is asked again although nothing in the cluster has changed"
    assert ids(world.observe()) == [BAD, GOOD]
    admit(world, BAD, GOOD)
    assert world.find_undone() == {}
    assert all(row.workers for row in world.observe().jobs)
    assert "rights" not in told(world)
    assert not world.find_left_out()
    assert not caplog.records


def test_a_promise_stands_while_the_job_waits_to_be_tried_again() -> None:
    promised = job("bad", verdict=verdict_text(promise(2e9)))
    put_off = {BAD: objects.BadJob(BAD, ("denied",), put_off=True)}
    tending = write_refusal(promised, put_off)
    assert tending is not None
    assert tending.patch.body["metadata"]["annotations"] == {names.REASON: "denied"}
    wrong = write_refusal(promised, {BAD: objects.BadJob(BAD, ("denied",))})
    assert wrong is not None
    assert wrong.patch.body["metadata"]["labels"] == {names.VERDICT_LABEL: "refused"}


def test_who_lets_all_jobs_go_is_told_which_stay_and_why(
    world: LiveCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    patch = world.api.patch

    def refuse(change: Patch) -> Any:
        if change.id == BAD:
            raise ApiError('User laxity cannot patch resource "jobs"', status=403)
        return patch(change)

    monkeypatch.setattr(world.api, "patch", refuse)
    released = world.release()
    assert (released.jobs, released.suspended, list(released.refused)) == (1, (GOOD,), [BAD])
    assert "kubectl -n default create rolebinding laxity" in released.refused[BAD]
    assert ids(world.observe()) == [BAD], "it is managed as before"
