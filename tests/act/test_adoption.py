"""A file that is applied again and again: its Job is started anew once the applier has been silent."""

from dataclasses import replace

import pytest

from laxity import names
from laxity_k8s.act.adoption import SILENT_S, find_correction
from laxity_k8s.cluster_api import Json
from laxity_k8s.objects.status_annotation import (
    JobStatusRecord,
    digest_terms,
    read_status,
    verdict_text,
)
from laxity_scheduler.inflight import with_follow_ups
from laxity_scheduler.policies.qos import decide
from tests.support.builders import MINUTE_EPOCHS, promise
from tests.support.empty_cluster import Observed
from tests.support.manifests import CREATED_AT, EVER_SUSPENDED, job, node

RAN = JobStatusRecord(wanted=1, resumed_at=CREATED_AT, terms="x")
NOW = CREATED_AT + 5.0


def applied(status: JobStatusRecord, *, suspend: bool = True, width: int = 1) -> Json:
    """Argo CD has set its size."""
    made = job(suspend=suspend, width=width, status=EVER_SUSPENDED)
    made["metadata"]["annotations"][names.STATUS] = status.to_text()
    fields: Json = {"f:spec": {"f:suspend": {}, "f:parallelism": {}}}
    made["metadata"]["managedFields"] = [{"manager": "argocd-controller", "fieldsV1": fields}]
    return made


def after(made: Json, now: float) -> tuple[JobStatusRecord, str]:
    """The state that is written then, and what is told."""
    tending = find_correction(made, now=now)
    assert tending is not None
    assert tending.code == "applied_again"
    notes = tending.patch.body["metadata"]["annotations"]
    return read_status({"metadata": {"annotations": notes}}), tending.words


def test_first_time_it_starts_again_at_once() -> None:
    state, words = after(applied(RAN), NOW)

    assert (state.wanted, state.applied, state.not_before <= NOW) == (0, 1, True)
    assert words == "a file was applied again and stopped it: it starts again as soon as it can"


def test_each_start_that_is_stopped_soon_is_put_off_twice_as_long() -> None:
    state, now, waits = RAN, NOW, []
    for _ in range(5):
        state, words = after(applied(state), now)
        waits.append(max(0.0, state.not_before - now))
        now = max(now, state.not_before) + 3.0
        state = replace(state, wanted=1, resumed_at=now - 3.0)

    assert waits == [0.0, 60.0, 120.0, 240.0, 480.0]
    assert "/spec/suspend, /spec/parallelism and /spec/completions under ignoreDifferences" in words


def test_applier_that_was_silent_begins_anew() -> None:
    state = replace(RAN, applied=4, applied_at=NOW, resumed_at=NOW + 600.0)

    now = NOW + 600.0 + SILENT_S

    again, _ = after(applied(state), now)

    assert (again.applied, again.not_before <= now) == (1, True)


def test_job_that_a_file_starts_before_its_turn_is_not_put_off() -> None:
    state = replace(RAN, wanted=0, applied=3, applied_at=NOW)

    again, words = after(applied(state, suspend=False), NOW + 3.0)

    assert (again.applied, again.not_before) == (4, 0.0)
    assert "suspended until it comes" in words


@pytest.mark.parametrize("times", [1, 2])
def test_width_that_a_file_set_stays_for_a_while_from_the_second_time(times: int) -> None:
    state = replace(RAN, wanted=4, applied=times - 1, applied_at=NOW)

    again, words = after(applied(state, suspend=False, width=1), NOW)

    assert (again.wanted, again.not_before > NOW) == (1, times > 1)
    assert "it runs on 1" in words


@pytest.mark.parametrize("manager", ["argocd-controller", "kubectl-edit"])
def test_promised_job_that_a_file_has_just_stopped_is_in_no_danger(manager: str) -> None:
    """The file came after the last look for corrections: a Job pinned by hand has no end in sight."""
    made = applied(RAN)
    made["metadata"]["managedFields"][0]["manager"] = manager
    made["metadata"]["annotations"][names.VERDICT] = verdict_text(promise(CREATED_AT + 7200.0))
    status = replace(RAN, terms=digest_terms(made)).to_text()
    made["metadata"]["annotations"][names.STATUS] = status
    seen = Observed()
    seen.put(node("a", gpus=4), made)

    plan = with_follow_ups(decide)(seen.observe(NOW), MINUTE_EPOCHS)

    danger = [one for one in plan.decisions if one.reason.code == "promise_in_danger"]
    assert bool(danger) == (manager == "kubectl-edit")
