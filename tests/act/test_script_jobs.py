"""A Job whose command knows nothing of laxity: what its row says, and which pod speaks for it."""

import json
from typing import Any

import pytest

from laxity import names
from laxity_k8s.cluster_api import Json
from laxity_k8s.objects.script_pods import find_script_pod
from laxity_profiler.estimate import Progress
from laxity_scheduler.live import Report
from tests.support.manifests import CREATED_AT, job, pod
from tests.support.rows import row

STOP = json.dumps({"at": CREATED_AT + 60.0, "for": "default/urgent"})


def script(**said: Any) -> Json:
    """A running Job that names no epochs."""
    made = job(suspend=False, nodes='["a"]', **said)
    del made["metadata"]["annotations"][names.EPOCHS]
    return made


@pytest.mark.parametrize(
    ("said", "may_stop"),
    [
        pytest.param({}, (False, False), id="it says nothing"),
        pytest.param({"resumes": "true"}, (True, True), id="it resumes"),
        pytest.param({"resumes": "true", "preemptible": "false"}, (False, True), id="yet stays"),
        pytest.param({"preemptible": "true"}, (True, False), id="it begins anew"),
    ],
)
def test_script_is_stopped_for_others_if_it_resumes_or_says_so(
    said: dict[str, str], may_stop: tuple[bool, bool]
) -> None:
    made = row(script(**said))

    assert (made.preemptible, made.stops_anywhere) == may_stop
    assert made.workload.whole


def test_script_that_began_at_zero_again_stays_from_then_on() -> None:
    began_anew = Report(Progress(3), since=CREATED_AT + 9.0, formed=1, holds_state=False)

    made = row(script(resumes="true"), (pod(0, node="a"),), began_anew)

    assert (made.preemptible, made.stops_anywhere) == (False, False)


@pytest.mark.parametrize("done", [0, 41])
def test_script_is_not_waited_for_when_it_is_told_to_stop(done: int) -> None:
    """It hears of that by SIGTERM, whether it has posted anything or not."""
    said = Report(Progress(done), since=CREATED_AT + 9.0, formed=1) if done else Report()

    assert row(script(stop=STOP, resumes="true"), (pod(0, node="a"),), said).parked_epoch == done
    assert row(job(suspend=False, nodes='["a"]', stop=STOP)).parked_epoch is None


def test_per_cents_that_it_has_posted_are_its_epochs_and_the_estimate_is_of_all() -> None:
    said = Report(Progress(41), since=CREATED_AT + 9.0, formed=1, declared=(("epochs", 100),))

    made = row(script(epoch_estimate="10m"), (pod(0, node="a"),), said)

    assert (made.workload.epochs, made.workload.user_epoch_s) == (100, 6.0)
    assert row(script(epoch_estimate="10m")).workload.user_epoch_s == 600.0


def test_pod_of_index_0_speaks_for_its_job() -> None:
    made, own = script(resumes="true"), (pod(0, node="a"), pod(1, node="a"))
    leader, other = (one["metadata"]["name"] for one in own)

    found = find_script_pod(made, own, leader)

    assert found is not None
    assert (found.name, found.resumes, found.is_told_to_stop) == (leader, True, False)
    assert find_script_pod(made, own, other) is None
    assert find_script_pod(made, own, "another-jobs-pod") is None


def test_pod_that_leaves_speaks_until_the_next_one_is_there() -> None:
    leaving = named(pod(0, node="a", leaving=True), "old")
    coming = named(pod(0, node="a"), "new")

    alone = find_script_pod(script(), (leaving,), "old")

    assert alone is not None
    assert alone.is_told_to_stop
    assert find_script_pod(script(), (leaving, coming), "old") is None
    assert find_script_pod(script(), (leaving, coming), "new") is not None


@pytest.mark.parametrize("change", [{"stop": STOP}, {"suspend": True}])
def test_ordered_stop_is_known_before_the_pod_is_told(change: dict[str, Any]) -> None:
    made = script(**{key: text for key, text in change.items() if isinstance(text, str)})
    made["spec"]["suspend"] = change.get("suspend", False)

    found = find_script_pod(made, (pod(0, node="a"),), "")

    assert found is not None
    assert found.is_told_to_stop


def test_container_that_starts_again_in_its_pod_is_another_start() -> None:
    again = pod(0, node="a")
    status = {
        "name": "train",
        "restartCount": 1,
        "state": {"running": {"startedAt": "2026-11-21T09:00:00Z"}},
    }
    again["spec"]["containers"] = [{"name": "train"}]
    again["status"]["containerStatuses"] = [{"name": "proxy", "restartCount": 7}, status]

    first, second = (find_script_pod(script(), (one,), "") for one in (pod(0, node="a"), again))

    assert first is not None
    assert second is not None
    assert first.start != second.start
    assert second.began_at == CREATED_AT + 3600.0


def named(made: Json, name: str) -> Json:
    return made | {"metadata": made["metadata"] | {"name": name}}
