"""CronJobs, and what their Jobs say."""

from typing import Any

from tests.support.kubernetes.place import HARD, Place
from tests.support.kubernetes.service import Json, training_job


def cron_job(there: Place, policy: str, deadline: str) -> Json:
    job = training_job(there.namespace, "nightly", {**HARD, "deadline": deadline}, run_s=1.0)
    metadata = {key: job["metadata"][key] for key in ("labels", "annotations")}
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "nightly", "namespace": there.namespace},
        "spec": {
            "schedule": "0 0 1 1 *",
            "concurrencyPolicy": policy,
            "failedJobsHistoryLimit": 1,
            "jobTemplate": {"metadata": metadata, "spec": job["spec"]},
        },
    }


def condition(job: Json, kind: str) -> dict[str, Any]:
    found = (one for one in job["status"].get("conditions", []) if one["type"] == kind)
    return next((dict(one) for one in found if one["status"] == "True"), {})
