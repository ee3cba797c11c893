"""The local job controller: what a Job and its pods ask for next."""

import random

import pytest

from laxity import json_tree
from laxity.backoff import Backoff
from laxity.instants import format_rfc3339, instant_at
from laxity.worker.sigterm import EXIT_RESTART
from laxity_k8s.cluster_api import Json
from laxity_k8s.local.job_controller import Step, reconcile_job
from laxity_k8s.objects import pods
from laxity_k8s.objects.conditions import read_condition
from tests.support.manifests import CREATED, CREATED_AT, job, pod

NOW = CREATED_AT + 100.0
STARTED: Json = {"startTime": CREATED}


def step(made: Json, *own: Json, now: float = NOW) -> Step:
    return reconcile_job(made, own, now=now, backoff=Backoff(first_s=2.0, longest_s=10.0))


def running(width: int = 2, **spec: object) -> Json:
    return job(width=width, suspend=False, status=STARTED, spec=spec)


def created(found: Step) -> list[int | None]:
    return [pods.index_of(new) for new in found.create]


def test_nothing_is_asked_for_when_all_is_as_wished() -> None:
    first = step(running(2), pod(0), pod(1))
    settled = running(2) | {"status": first.status}
    again = step(settled, pod(0), pod(1))
    assert (again.create, again.stop, again.counted, again.status) == ([], [], [], first.status)


def test_surplus_pods_stop_the_highest_first() -> None:
    made = running(1)
    own = [pod(2), pod(0), pod(1)]
    assert sorted(step(made, *own).stop) == sorted(
        json_tree.object_id(one) for one in own if one is not own[1]
    )


def test_a_failed_pod_is_counted_once_and_replaced_after_its_back_off() -> None:
    failed = pod(0, phase="Failed", code=1, ended=format_rfc3339(NOW - 1.0))
    found = step(running(1), failed)
    assert (found.status["failed"], len(found.counted), created(found)) == (1, 1, [])
    assert found.again_at == NOW + 1.0
    failed["metadata"].pop("finalizers")
    later = step(running(1) | {"status": found.status}, failed, now=NOW + 1.0)
    assert (later.status["failed"], later.counted, created(later)) == (1, [], [0])


def test_back_off_doubles_with_every_failure_up_to_its_limit() -> None:
    waits = [Backoff(2.0, 10.0).delay_s(failures) for failures in range(6)]
    assert waits == [0.0, 2.0, 4.0, 8.0, 10.0, 10.0]


def test_back_off_takes_none_of_the_numbers_that_a_training_has_seeded() -> None:
    random.seed(3)
    before = random.getstate()
    assert 1.0 <= Backoff(2.0, 10.0, spread=0.5).delay_s(1) <= 2.0
    assert random.getstate() == before


def test_more_failures_than_the_limit_end_the_job_when_its_pods_are_gone() -> None:
    made = running(2, backoffLimit=0)
    ending = step(made, pod(0, phase="Failed", code=1), pod(1))
    assert read_condition({"status": ending.status}, "FailureTarget") == "True"
    assert read_condition({"status": ending.status}, "Failed") == ""
    assert len(ending.stop) == 1
    ended = step(made | {"status": ending.status}, pod(0, phase="Failed", code=1, tracked=False))
    assert read_condition({"status": ended.status}, "Failed") == "True"
    assert "worker 0 failed with exit code 1" in str(ended.status["conditions"])


def test_a_job_ends_in_the_words_of_the_worker_that_failed_and_not_of_one_that_missed_it() -> None:
    makes_way = pod(0, phase="Failed", code=EXIT_RESTART, ended=format_rfc3339(NOW - 2.0))
    failed = pod(1, phase="Failed", code=42, ended=format_rfc3339(NOW - 1.0))
    ended = step(running(2, podFailurePolicy=BY_CODE), makes_way, failed)
    assert "worker 1 failed with exit code 42" in str(ended.status["conditions"])


def test_a_job_that_somebody_fails_by_its_status_ends_in_their_words() -> None:
    target = {"type": "FailureTarget", "status": "True", "reason": "Refused", "message": "why"}
    made = running(1) | {"status": {"conditions": [target], "startTime": format_rfc3339(NOW)}}
    assert len(step(made, pod(0)).stop) == 1
    ended = step(made, pod(0, phase="Failed", code=1, tracked=False)).status["conditions"]
    (failed,) = [one for one in ended if one["type"] == "Failed"]
    assert (failed["reason"], failed["message"]) == ("Refused", "why")


IGNORE = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}
BY_CODE = {
    "rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}],
}


@pytest.mark.parametrize(
    ("policy", "failed", "count", "over"),
    [
        pytest.param(
            IGNORE, pod(0, phase="Failed", code=137, disrupted=True), 0, "", id="disrupted"
        ),
        pytest.param(IGNORE, pod(0, phase="Failed", code=1), 1, "", id="failed by itself"),
        pytest.param(
            BY_CODE, pod(0, phase="Failed", code=42), 1, "True", id="a code that ends all"
        ),
        pytest.param(BY_CODE, pod(0, phase="Failed", code=1), 1, "", id="another code"),
    ],
)
def test_a_pod_failure_policy_says_what_counts(
    policy: Json, failed: Json, count: int, over: str
) -> None:
    found = step(running(1, podFailurePolicy=policy), failed)
    assert found.status.get("failed", 0) == count
    assert read_condition({"status": found.status}, "FailureTarget") == over


def test_a_disrupted_worker_is_replaced_at_once() -> None:
    found = step(
        running(1), pod(0, phase="Failed", code=137, disrupted=True, ended=format_rfc3339(NOW))
    )
    assert created(found) == [0]


def test_all_indexes_succeeded_is_complete_and_an_index_beyond_the_width_does_not_count() -> None:
    partly = step(running(2), pod(0, phase="Succeeded", code=0), pod(5, phase="Succeeded", code=0))
    assert (partly.status["succeeded"], created(partly)) == (1, [1])
    done = step(running(2), pod(0, phase="Succeeded", code=0), pod(1, phase="Succeeded", code=0))
    assert (done.status["succeeded"], done.status["completedIndexes"]) == (2, "0-1")
    assert read_condition({"status": done.status}, "Complete") == "True"


def test_a_job_past_its_active_deadline_fails() -> None:
    made = running(1, activeDeadlineSeconds=60)
    early = step(made, pod(0), now=CREATED_AT + 59)
    assert early.again_at == CREATED_AT + 60
    late = step(made, pod(0), now=CREATED_AT + 60)
    assert read_condition({"status": late.status}, "FailureTarget") == "True"


def test_pods_carry_what_kubernetes_gives_them() -> None:
    (made,) = step(running(1)).create
    labels = json_tree.labels_of(made)
    assert labels["batch.kubernetes.io/job-name"] == "job"
    assert labels["batch.kubernetes.io/controller-uid"] == "uid-of-job"
    assert pods.owner_of(made) == ("default/job", "uid-of-job")
    assert pods.index_of(made) == 0
    assert made["spec"]["hostname"] == "job-0"


def test_instants_are_read_back_as_written() -> None:
    for at in (CREATED_AT, CREATED_AT + 0.125):
        assert instant_at(format_rfc3339(at)) == at
