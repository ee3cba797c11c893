"""A row says when workers began anew after a failure, which is another start than that of a decision."""

import json

import pytest

from laxity import names
from laxity_k8s.objects.status_annotation import JobStatusRecord
from laxity_scheduler.live import Report
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
