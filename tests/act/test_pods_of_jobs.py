"""Pods and Nodes as JSON: on which nodes a Job runs, what it holds, why its workers fail or wait."""

from dataclasses import replace
from typing import Any

import pytest

from laxity import names
from laxity_k8s.cluster_api import Json
from laxity_k8s.objects.held_gpus import find_holds, gpus_reserved, pods_busy
from laxity_k8s.objects.node_rows.nodes import node_rows
from laxity_k8s.objects.status_annotation import (
    JobStatusRecord,
)
from laxity_profiler.estimate import Progress
from laxity_scheduler.live import Report
from laxity_scheduler.model.cluster import HOLD_S
from tests.support.manifests import CREATED_AT, EVER_SUSPENDED, job, node, pod
from tests.support.rows import row


def test_a_running_job_counts_its_gpu_seconds_up_to_its_last_report() -> None:
    state = JobStatusRecord(
        resumed_at=CREATED_AT + 10, since=CREATED_AT + 10, attained_gpu_s=5.0, wanted=2
    )
    made = job(width=2, suspend=False, gpus=2)
    made["metadata"]["annotations"][names.STATUS] = state.to_text()
    report = Report(Progress(3), since=CREATED_AT + 20, formed=2)
    found = row(made, (), report, now=CREATED_AT + 25)
    assert (found.since, found.attained_gpu_s) == (CREATED_AT + 20, 5.0 + 2 * 2 * 10)
    assert (found.progress.epochs_done, found.formed) == (3, 2)


def test_nodes_are_where_pods_are_and_else_where_they_were_sent() -> None:
    made = job(width=2, suspend=False, nodes='["a", "b"]')
    assert row(made, (pod(1, node="c"),)).nodes == ("a", "c")


def test_nodes_are_unknown_when_somebody_else_started_workers() -> None:
    assert row(job(width=2, suspend=False, nodes='["a"]')).nodes == ()


@pytest.mark.parametrize(
    ("made", "pods", "want"),
    [
        pytest.param(job(), (pod(0), pod(1)), 2, id="suspended with two pods"),
        pytest.param(job(suspend=False), (pod(0), pod(1)), 1, id="shrunk below a pod"),
        pytest.param(job(suspend=False), (pod(0, leaving=True),), 1, id="one on its way out"),
        pytest.param(job(suspend=False), (pod(0), pod(1, phase="Failed")), 0, id="one is over"),
        pytest.param(job(status={"terminating": 2}), (), 2, id="pods not seen yet"),
        pytest.param(job(status={"active": 2}), (), 2, id="suspended a moment ago"),
    ],
)
def test_workers_that_still_hold_gpus_are_terminating(
    made: Json, pods: tuple[Json, ...], want: int
) -> None:
    assert row(made, pods).terminating_workers == want


def test_gpus_are_reserved_for_workers_without_a_pod_and_counted_once() -> None:
    made = job(width=3, suspend=False, nodes='["a", "b", "b"]')
    pods = (pod(0, node="a"), pod(1, phase="Pending"))
    found = row(made, pods)
    assert gpus_reserved(made, found.nodes, found.gpus_per_worker, pods) == {"b": 2}
    assert pods_busy(pods) == {"a": 1}


def test_pods_of_a_job_that_is_not_indexed_are_counted_once_too() -> None:
    made = job(width=2, suspend=False, nodes='["a", "a"]', spec={"completionMode": "NonIndexed"})
    pods = (pod(None, node="a"),)
    assert gpus_reserved(made, row(made, pods).nodes, 1, pods) == {"a": 1}


@pytest.mark.parametrize(
    ("made", "want"),
    [
        pytest.param(job(suspend=False, status=EVER_SUSPENDED), True, id="let go by hand"),
        pytest.param(job(suspend=False), False, id="new, and never suspended"),
        pytest.param(job(), False, id="new and suspended"),
        pytest.param(job(suspend=False, pin="by me"), True, id="the annotation says so"),
    ],
)
def test_jobs_that_people_started_are_pinned(made: Json, want: bool) -> None:
    assert row(made).pinned is want


def test_a_stop_and_a_smaller_width_asked_for_are_read_while_it_runs() -> None:
    asked: dict[str, Any] = {"stop": '{"at": 5.0, "for": "default/b"}', "resize_to": "1"}
    running = row(job(width=2, suspend=False, **asked))
    assert (running.stop_requested_at, running.stop_for, running.resize_to) == (5.0, "default/b", 1)
    suspended = row(job(width=2, **asked))
    assert (suspended.stop_requested_at, suspended.resize_to) == (None, 0)


def test_a_parked_epoch_of_an_earlier_run_is_not_believed() -> None:
    state = JobStatusRecord(resumed_at=CREATED_AT + 100, wanted=1)
    made = job(suspend=False, stop='{"at": 1.0}')
    made["metadata"]["annotations"][names.STATUS] = state.to_text()
    stale = Report(since=CREATED_AT + 50, parked_epoch=4)
    assert row(made, (), stale, now=CREATED_AT + 101).parked_epoch is None
    fresh = replace(stale, since=CREATED_AT + 101)
    assert row(made, (), fresh, now=CREATED_AT + 101).parked_epoch == 4


def test_a_job_whose_pods_do_not_run_in_time_says_how_many_do() -> None:
    state = JobStatusRecord(resumed_at=CREATED_AT, width_changed_at=CREATED_AT, wanted=3)
    made = job(width=3, suspend=False, nodes='["a", "a", "a"]')
    made["metadata"]["annotations"][names.STATUS] = state.to_text()
    pods = (pod(0, node="a"), pod(1, phase="Pending"), pod(2, node="a"))
    early, late = CREATED_AT + 59.0, CREATED_AT + 61.0
    assert row(made, pods, due_at=CREATED_AT + 60.0, now=early).fitting_workers is None
    assert row(made, pods, due_at=CREATED_AT + 60.0, now=late).fitting_workers == 1
    all_run = tuple(pod(index, node="a") for index in range(3))
    assert row(made, all_run, due_at=CREATED_AT + 60.0, now=late).fitting_workers is None


def test_gpus_are_held_until_whom_they_were_freed_for_has_started() -> None:
    victim, other = row(job("victim")), row(job("other"))
    state = JobStatusRecord(freed_for=other.id, freed_nodes=("a", "a", "b"), freed_at=100.0)
    held = find_holds(victim, state, other, 110.0)
    assert [(hold.job, hold.node, hold.gpus) for hold in held] == [
        (other.id, "a", 2),
        (other.id, "b", 1),
    ]
    assert find_holds(victim, state, replace(other, resumed_at=105.0), 110.0) == []
    assert find_holds(victim, state, other, 100.0 + HOLD_S) == []
    assert find_holds(victim, state, replace(other, not_before=111.0), 110.0) == []


@pytest.mark.parametrize(
    ("made", "want"),
    [
        pytest.param(node(gpus=4), 3, id="ready"),
        pytest.param(node(gpus=4, unschedulable=True), 0, id="cordoned"),
        pytest.param(node(gpus=4, ready=False), None, id="not ready"),
        pytest.param(node(gpus=0), None, id="without GPUs"),
    ],
)
def test_a_node_has_the_gpus_that_may_be_used(made: Json, want: int | None) -> None:
    found = node_rows(made, {"n": 1})
    assert [row.free_gpus for row in found] == ([] if want is None else [want])


LATER, LATEST = "2026-11-21T08:01:00Z", "2026-11-21T08:02:00Z"


def failed(index: int = 0, code: int = 1, said: str = "", **more: Any) -> Json:
    return pod(index, node="a", phase="Failed", code=code, said=said, **more)


def with_init(made: Json, **state: Any) -> Json:
    """Its init container `prepare` is in this state, and the training waits for it."""
    made["spec"]["initContainers"] = [{"name": "prepare"}]
    made["status"]["initContainerStatuses"] = [{"name": "prepare", "state": state}]
    waits = {"waiting": {"reason": "PodInitializing"}}
    made["status"]["containerStatuses"] = [{"name": "train", "state": waits}]
    return made


def evicted(message: str) -> Json:
    """By its kubelet, for what the pod itself has used."""
    made = failed(code=137, said="step 3")
    made["status"] |= {"reason": "Evicted", "message": message}
    return made


def turned_away(why: str, words: str) -> Json:
    made = pod(0, node="a", phase="Failed")
    made["status"] = {"phase": "Failed", "reason": why, "message": words}
    return made


def restarting(*, code: int, said: str = "", runs: bool = False) -> Json:
    """The kubelet starts its container for the third time, as `restartPolicy: OnFailure` says."""
    made = pod(0, node="a", phase="Running")
    state = {"running": {}} if runs else {"waiting": {"reason": "CrashLoopBackOff"}}
    last = {"terminated": {"exitCode": code, "message": said, "finishedAt": LATER}}
    train = {"name": "train", "restartCount": 2, "state": state, "lastState": last}
    made["status"]["containerStatuses"] = [train]
    return made


def told_to_end(made: Json, at: str) -> Json:
    made["metadata"] |= {"deletionTimestamp": at, "deletionGracePeriodSeconds": 0}
    return made


def never_ran() -> Json:
    """As its kubelet leaves it whose image could not be pulled until it was deleted."""
    made = failed(code=137, why="ContainerStatusUnknown")
    made["status"]["containerStatuses"][0]["state"]["terminated"]["finishedAt"] = None
    return made


@pytest.mark.parametrize(
    ("own", "died"),
    [
        pytest.param([pod(0), pod(1)], "", id="all run"),
        pytest.param(
            [failed(said="Traceback ...\nImportError: no module named x\n\n"), pod(1)],
            "worker 0 failed with exit code 1: ImportError: no module named x",
            id="its last line",
        ),
        pytest.param(
            [failed(code=9, said="no GPU\nlaxity: nothing was given to training.restore()")],
            "worker 0 failed with exit code 9: no GPU",
            id="before a note of laxity's",
        ),
        pytest.param(
            [failed(code=2, said="an earlier start\nlaxity: LAXITY_EPOCHS: no number")],
            "worker 0 failed with exit code 2: laxity: LAXITY_EPOCHS: no number",
            id="laxity's own error",
        ),
        pytest.param(
            [failed(code=139)], "worker 0 failed with exit code 139 (SIGSEGV)", id="signal"
        ),
        pytest.param(
            [failed(code=137)],
            "worker 0 failed with exit code 137 "
            "(SIGKILL: killed from outside, often by the memory limit)",
            id="killed",
        ),
        pytest.param(
            [failed(code=137, said="x.py:3: FutureWarning\n  warnings.warn(")],
            "worker 0 failed with exit code 137 "
            "(SIGKILL: killed from outside, often by the memory limit); "
            "last output: warnings.warn(",
            id="killed after a warning",
        ),
        pytest.param(
            [failed(code=137, why="OOMKilled")],
            "worker 0 failed with exit code 137 (out of memory)",
            id="killed for its memory",
        ),
        pytest.param(
            [failed(0, said="lost 1", ended=LATEST), failed(1, said="no GPU", ended=LATER)],
            "worker 1 failed with exit code 1: no GPU",
            id="the first of two",
        ),
        pytest.param([failed(said="x"), pod(0, created=LATER)], "", id="started again"),
        pytest.param([failed(code=143), failed(1, code=75)], "", id="told to stop, start again"),
        pytest.param([failed(disrupted=True)], "", id="its node went"),
        pytest.param([failed(2), pod(0), pod(1)], "", id="beyond the width"),
        pytest.param(
            [with_init(failed(code=0), terminated={"exitCode": 3, "message": "no bucket"})],
            "worker 0 failed in its init container prepare with exit code 3: no bucket",
            id="before its training",
        ),
        pytest.param(
            [turned_away("UnexpectedAdmissionError", "no healthy devices")],
            "worker 0 was turned away by a: UnexpectedAdmissionError: no healthy devices",
            id="its node did not take it",
        ),
        pytest.param(
            [evicted('Usage of EmptyDir volume "shm" exceeds the limit "1Gi". ')],
            "worker 0 failed with exit code 137 "
            '(Evicted: Usage of EmptyDir volume "shm" exceeds the limit "1Gi".); last output: step 3',
            id="over the limit of a volume",
        ),
        pytest.param(
            [restarting(code=7, said="boo")],
            "worker 0 failed with exit code 7: boo",
            id="started again in its pod",
        ),
        pytest.param([restarting(code=7, runs=True)], "", id="runs again in its pod"),
        pytest.param(
            [told_to_end(failed(code=137, ended=LATEST), LATER)], "", id="deleted, then killed"
        ),
        pytest.param(
            [told_to_end(failed(code=9, ended=LATER), LATEST)],
            "worker 0 failed with exit code 9",
            id="failed, then deleted",
        ),
        pytest.param(
            [told_to_end(never_ran(), LATER)], "", id="deleted before its container began"
        ),
    ],
)
def test_a_worker_that_fails_before_it_can_report_is_told_by_its_pod(
    own: list[Json], died: str
) -> None:
    made = job(width=2, suspend=False)
    assert row(made, tuple(own), now=CREATED_AT).died == died
    assert row(job(width=2), tuple(own), now=CREATED_AT).died == ""


def waiting(index: int = 0, *, conditions: Any = (), waits: Json | None = None) -> Json:
    made = pod(index, node="a" if waits else "", phase="Pending")
    made["status"]["conditions"] = list(conditions)
    made["status"]["containerStatuses"] = [{"name": "train", "state": {"waiting": waits or {}}}]
    return made


UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/5 nodes are available: 5 Insufficient memory.",
}


@pytest.mark.parametrize(
    ("own", "why"),
    [
        pytest.param([pod(0), pod(1)], "", id="all run"),
        pytest.param([waiting(0), pod(1)], "", id="nothing is said"),
        pytest.param(
            [pod(0), waiting(1, conditions=[UNSCHEDULABLE])],
            "worker 1 has no node: 0/5 nodes are available: 5 Insufficient memory.",
            id="no node",
        ),
        pytest.param(
            [waiting(0, waits={"reason": "ImagePullBackOff", "message": "Back-off pulling x"})],
            "worker 0 waits on a: ImagePullBackOff: Back-off pulling x",
            id="no image",
        ),
        pytest.param(
            [with_init(waiting(0, waits={"x": 1}), running={"startedAt": LATER})],
            "worker 0 waits on a: init container prepare has been running since 2026-11-21T08:01:00Z",
            id="for its init container",
        ),
        pytest.param(
            [with_init(waiting(0, waits={"x": 1}), terminated={"exitCode": 3})],
            "worker 0 waits on a: init container prepare failed with exit code 3",
            id="for an init container that fails",
        ),
        pytest.param(
            [waiting(1, waits={"reason": "B"}), waiting(0, waits={"reason": "A"})],
            "worker 0 waits on a: A",
            id="the first of two",
        ),
        pytest.param([pod(0), pod(1), waiting(2, conditions=[UNSCHEDULABLE])], "", id="beyond"),
        pytest.param(
            [waiting(0, waits={"reason": "ContainerCreating"})],
            "worker 0 waits on a: ContainerCreating",
            id="as every start does",
        ),
    ],
)
def test_why_a_worker_has_not_started_in_time_is_told_by_its_pod(own: list[Json], why: str) -> None:
    made = job(width=2, suspend=False)
    due: Any = {"due_at": CREATED_AT + 60.0}
    assert row(made, tuple(own), now=CREATED_AT + 60.0, **due).pending == why


@pytest.mark.parametrize(
    ("first", "is_told"),
    [
        (waiting(0, conditions=[UNSCHEDULABLE]), True),
        (waiting(0, waits={"reason": "ErrImagePull"}), True),
        (with_init(waiting(0, waits={}), waiting={"reason": "CreateContainerConfigError"}), True),
        (waiting(0, waits={"reason": "ContainerCreating"}), False),
        (with_init(waiting(0, waits={"reason": "PodInitializing"}), running={}), False),
        (waiting(0), False),
    ],
)
def test_what_blocks_a_start_is_told_at_once_and_the_job_goes_on(
    first: Json, *, is_told: bool
) -> None:
    made = job(width=2, suspend=False)
    found = row(made, (first, pod(1)), due_at=CREATED_AT + 60.0, now=CREATED_AT + 1.0)
    assert (found.pending != "", found.fitting_workers) == (is_told, None)
