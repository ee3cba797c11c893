"""Verdict and progress of a work pool's flow run, as artifacts on its page in Prefect.

The same two that a flow writes that follows its job (laxity.flow.run_notes), by plain requests.
"""

from typing import Final

from laxity.api.outcome import PROGRESS_KEY, VERDICT_KEY, artifact_of, tenth
from laxity.api.views import job_view
from laxity_scheduler.service.views import Json
from laxity_scheduler.telling.prefect_api import PrefectApi

KEYS: Final = (VERDICT_KEY, PROGRESS_KEY)


def page_of(view: Json) -> str:
    """What makes both artifacts worth writing again: a tenth of the epochs, another promise."""
    job = job_view(view)
    return repr((job.state, job.verdict, job.deadline_at, job.promised_p90_at, tenth(job)))


class Artifacts:
    """Written once for each run and key, and updated from then on."""

    def __init__(self, api: PrefectApi) -> None:
        self._api = api

    def write(self, run_id: str, view: Json) -> None:
        job, ids = job_view(view), self._ids(run_id)
        for key in KEYS:
            artifact = artifact_of(key, job)
            if key in ids:
                change = {name: artifact[name] for name in ("data", "description")}
                self._api.ask("PATCH", f"/artifacts/{ids[key]}", change)
            else:
                self._api.ask("POST", "/artifacts/", {**artifact, "flow_run_id": run_id})

    def _ids(self, run_id: str) -> dict[str, str]:
        asked = {"flow_run_id": {"any_": [run_id]}, "key": {"any_": list(KEYS)}}
        rows = self._api.ask("POST", "/artifacts/filter", {"artifacts": asked})
        return {row["key"]: row["id"] for row in rows}
