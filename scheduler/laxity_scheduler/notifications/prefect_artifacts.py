"""Verdict and progress of a work pool's flow run, as artifacts on its page in Prefect.

The same two that a flow writes that follows its job (laxity.flow_notes), by plain requests.
"""

from typing import Final

from laxity.api.job_view import job_view
from laxity.api.status_text import PROGRESS_KEY, VERDICT_KEY, artifact_of, count_tenths
from laxity_scheduler.notifications.prefect_api import PrefectApi
from laxity_scheduler.service.view_fields import Json

ARTIFACT_KEYS: Final = (VERDICT_KEY, PROGRESS_KEY)


def artifact_key(view: Json) -> str:
    """Changes when the artifacts are worth writing again: after a tenth of the epochs, or a new promise."""
    job = job_view(view)
    return repr((job.state, job.verdict, job.deadline_at, job.promised_p90_at, count_tenths(job)))


class FlowRunArtifacts:
    """Written once for each run and key, and updated from then on."""

    def __init__(self, api: PrefectApi) -> None:
        self._api = api

    def write_all(self, run_id: str, view: Json) -> None:
        job, ids = job_view(view), self._artifact_ids(run_id)
        for key in ARTIFACT_KEYS:
            artifact = artifact_of(key, job)
            if key in ids:
                change = {name: artifact[name] for name in ("data", "description")}
                self._api.request("PATCH", f"/artifacts/{ids[key]}", change)
            else:
                self._api.request("POST", "/artifacts/", {**artifact, "flow_run_id": run_id})

    def _artifact_ids(self, run_id: str) -> dict[str, str]:
        query = {"flow_run_id": {"any_": [run_id]}, "key": {"any_": list(ARTIFACT_KEYS)}}
        rows = self._api.request("POST", "/artifacts/filter", {"artifacts": query})
        return {row["key"]: row["id"] for row in rows}
