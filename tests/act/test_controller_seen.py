"""The job controller comes behind: what it has not seen yet it may still act upon."""

from typing import Any

import pytest

from laxity import names
from laxity_k8s.cluster_api import Json
from laxity_k8s.objects.controller_seen import is_observed, may_come
from laxity_k8s.objects.status_annotation import JobStatusRecord
from tests.support.manifests import CREATED, CREATED_AT, EVER_SUSPENDED, SUSPENDED, job, pod
from tests.support.seen_nodes import Seen


def made(*, suspend: bool, status: Json, wanted: int | None = 2, **more: Any) -> Json:
    """A Job of two workers as laxity left it, and what its controller has said of it."""
    found = job(width=2, suspend=suspend, status=status, **more)
    state = JobStatusRecord(resumed_at=None if wanted is None else CREATED_AT, wanted=wanted)
    found["metadata"]["annotations"][names.STATUS] = state.to_text()
    return found


@pytest.mark.parametrize(
    ("suspend", "status", "wanted", "expected"),
    [
        pytest.param(True, {}, None, True, id="new and suspended"),
        pytest.param(True, SUSPENDED, None, True, id="suspended and never let run"),
        pytest.param(False, SUSPENDED, 2, False, id="let run and not seen"),
        pytest.param(False, EVER_SUSPENDED, 2, True, id="let run and seen"),
        pytest.param(True, EVER_SUSPENDED, 0, False, id="suspended and not seen"),
        pytest.param(True, SUSPENDED, 0, True, id="suspended and seen"),
        pytest.param(False, {}, 2, False, id="let run before it was seen at all"),
        pytest.param(False, {"startTime": CREATED}, None, True, id="made running, and seen"),
        pytest.param(True, {}, 0, False, id="made running, then suspended, and not seen"),
    ],
)
def test_the_condition_tells_what_the_controller_saw_last(
    suspend: bool, status: Json, wanted: int | None, expected: bool
) -> None:
    assert is_observed(made(suspend=suspend, status=status, wanted=wanted)) is expected


def test_workers_of_a_job_suspended_unseen_may_come_but_for_those_that_are_done() -> None:
    assert may_come(made(suspend=True, status=EVER_SUSPENDED, wanted=0)) == 2
    one_done = {**EVER_SUSPENDED, "succeeded": 1}
    assert may_come(made(suspend=True, status=one_done, wanted=0)) == 1
    assert may_come(made(suspend=False, status=SUSPENDED)) == 0
    failed = {"conditions": [{"type": "Failed", "status": "True"}]}
    assert may_come(made(suspend=True, status=failed, wanted=0)) == 0


def test_its_gpus_are_busy_until_the_controller_has_seen_it_suspended() -> None:
    """It may just be making the pods: they would be bound where somebody else was sent."""
    stopped = made(suspend=True, status=EVER_SUSPENDED, wanted=0)
    seen = Seen(stopped)
    assert sum(seen.busy().values()) == 2
    (row,) = seen.look().jobs
    assert (row.workers, row.terminating_workers) == (0, 2)
    seen.put({**stopped, "status": SUSPENDED})
    assert sum(seen.busy().values()) == 0
    (row,) = seen.look().jobs
    assert row.terminating_workers == 0


def test_of_those_that_come_after_all_none_is_counted_twice() -> None:
    stopped = made(suspend=True, status=EVER_SUSPENDED, wanted=0)
    seen = Seen(stopped, pod(0, node="a"))
    assert sum(seen.busy().values()) == 2
    seen.put(pod(1, node="b"))
    assert seen.busy() == {"a": 1, "b": 1}


@pytest.mark.parametrize(
    ("status", "seen"),
    [
        pytest.param(SUSPENDED, False, id="its controller still says that it is suspended"),
        pytest.param({}, False, id="its controller has never seen it"),
        pytest.param(EVER_SUSPENDED, True, id="its controller says that it runs"),
    ],
)
def test_a_running_job_says_whether_its_start_was_seen(status: Json, seen: bool) -> None:
    looked = Seen(made(suspend=False, status=status))
    (row,) = looked.look().jobs
    assert row.start_seen is seen


def test_of_a_job_that_does_not_run_there_is_nothing_to_see() -> None:
    stopped = made(suspend=True, status=EVER_SUSPENDED, wanted=0)
    assert Seen(stopped).look().jobs[0].start_seen
