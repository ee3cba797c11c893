"""A CronJob goes on after a run that was refused, whatever its concurrency policy."""

import json

import pytest

from laxity import names
from tests.support.kubernetes.cron import condition, cron_job
from tests.support.kubernetes.place import HARD, Place, annotations
from tests.support.kubernetes.service import Json, verdict_of

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(240)]


def test_the_refused_run_of_a_cron_job_ends_and_lets_the_next_one_come(there: Place) -> None:
    there.apply(cron_job(there, "Forbid", "5s"))
    long_ago = json.dumps({"status": {"lastScheduleTime": "2025-12-31T00:00:00Z"}})
    there.kubectl(
        "patch", "cronjob", "nightly", "--subresource=status", "--type=merge", "-p", long_ago
    )
    there.until(lambda: len(there.jobs()) == 1, "the run that was missed")
    run = there.jobs()[0]["metadata"]["name"]
    ended = there.until_job(run, lambda job: bool(condition(job, "Failed")), "ends")
    assert condition(ended, "Failed")["reason"] == names.REFUSED
    assert condition(ended, "Failed")["message"] == annotations(ended)[names.REASON]
    assert verdict_of(ended)["kind"] == "refusal"
    there.until(lambda: not active(there), "the CronJob to count no active run")


def active(there: Place) -> list[Json]:
    found = json.loads(there.kubectl("get", "cronjob", "nightly", "-o", "json"))
    return list(found["status"].get("active", []))


def test_a_refused_job_of_nobody_waits_for_another_deadline(there: Place) -> None:
    there.apply(there.job("mine", {**HARD, "deadline": "5s"}, run_s=1.0))
    told = there.until_job("mine", lambda job: bool(verdict_of(job)), "is judged")
    assert verdict_of(told)["kind"] == "refusal"
    there.kubectl("annotate", "job", "mine", "--overwrite", f"{names.DEADLINE}=30m")
    there.until_job("mine", lambda job: bool(condition(job, "Complete")), "finishes")
