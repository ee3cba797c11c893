"""A row says when workers began anew after a failure, which is another start than that of a decision."""

import json

import pytest

from laxity import names
from laxity_k8s.cluster_api import Json
from laxity_k8s.objects.status_annotation import JobStatusRecord
from laxity_scheduler.live import Report
from laxity_scheduler.service.views.live_view import view_of
from tests.support.manifests import CREATED_AT, job, pod
from tests.support.rows import row

RESUMED_AT = CREATED_AT + 100.0
AGAIN_AT = RESUMED_AT + 10_800.0


@pytest.mark.parametrize(
    ("report", "restarted_at"),
    [
        pytest.param(
            Report(since=AGAIN_AT, started_at=AGAIN_AT, silent_since=AGAIN_AT - 5.0),
            AGAIN_AT, id="it failed and begins anew",
        ),
        pytest.param(
            Report(since=AGAIN_AT, started_at=AGAIN_AT, silent_since=RESUMED_AT - 5.0),
            None, id="it was stopped before",
        ),
        pytest.param(
            Report(since=RESUMED_AT + 9.0, started_at=RESUMED_AT + 9.0), None, id="its first start"
        ),
        pytest.param(
            Report(
                since=AGAIN_AT, started_at=AGAIN_AT, silent_since=AGAIN_AT - 5.0, formed=1,
                epoch_started_at=AGAIN_AT + 3.0,
            ),
            None, id="it trains again",
        ),
    ],
)  # fmt: skip
def test_workers_that_begin_anew_after_a_failure_have_a_start_of_their_own(
    report: Report, restarted_at: float | None
) -> None:
    made = job(suspend=False, nodes=json.dumps(["a"]))
    made["metadata"]["annotations"][names.STATUS] = JobStatusRecord(
        resumed_at=RESUMED_AT, wanted=1
    ).to_text()

    found = row(made, (), report, now=AGAIN_AT + 4.0)

    assert (found.resumed_at, found.restarted_at) == (RESUMED_AT, restarted_at)


@pytest.mark.parametrize(
    ("phase", "report", "reports"),
    [
        pytest.param("Pending", Report(), True, id="its pod has not started"),
        pytest.param("Running", Report(), False, id="it runs and never said anything"),
        pytest.param("Running", Report(since=RESUMED_AT + 9.0), True, id="it has said something"),
    ],
)
def test_a_job_whose_pods_run_and_say_nothing_does_not_report(
    phase: str, report: Report, reports: bool
) -> None:
    made = job(suspend=False, nodes=json.dumps(["a"]))

    found = row(made, (pod(0, node="a", phase=phase),), report, now=AGAIN_AT)

    assert found.reports is reports


@pytest.mark.parametrize(
    ("ready", "error"),
    [
        pytest.param(None, "worker 1 failed with exit code 7", id="no pod runs yet"),
        pytest.param(1, "worker 1 failed with exit code 7", id="one of two runs"),
        pytest.param(2, "", id="both run"),
    ],
)
def test_error_of_a_worker_is_shown_until_all_workers_run_again(
    ready: int | None, error: str
) -> None:
    def view(status: Json, own: tuple[Json, ...], before: Json | None) -> Json:
        made = job(width=2, suspend=False, nodes='["a", "a"]', status=status)
        found = row(made, own, now=AGAIN_AT)
        return view_of(made, found, report=Report(), before=before, now=AGAIN_AT)

    dead = pod(1, node="a", phase="Failed", code=7)
    failed = view({"ready": 1}, (pod(0, node="a"), dead), None)
    assert failed["error"] == "worker 1 failed with exit code 7"

    new = pod(1, node="a", phase="Pending", created="2026-11-21T09:00:00Z")
    again = view({"ready": ready}, (pod(0, node="a"), dead, new), failed)
    assert again["error"] == error
