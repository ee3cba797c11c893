"""Flow runs that are cancelled in Prefect while their Jobs have no pod that could see it.

A pod ends its own run; a Job that waits, or was stopped for another one, has none. Prefect's worker
deletes the Job of a run that never started, if the worker is there; the Job of a run that has
started and waits for its next pod is deleted by nobody, and its run would stay Cancelling. The pod
of a run that has ended Cancelled waits for its Job to be deleted (laxity.pool): to complete would
count as a kept promise. A Job that names another's run can only lose itself by that.
"""

from collections.abc import Callable, Iterable
from typing import Final

from laxity_scheduler.notifications.prefect_api import PrefectApi, flow_run_of
from laxity_scheduler.service.views.view_fields import TERMINAL_STATES, Json

INTERVAL_S: Final = 5.0
RUNS_PER_CALL: Final = 200  # Prefect answers no more rows
WITHOUT_PODS: Final = frozenset({"queued", "suspended", "refused"})
CANCELLING: Final = "CANCELLING"
CANCELLED: Final = "CANCELLED"


class PrefectCancellations:
    """Cancels jobs whose flow runs are cancelled; jobs with pods only once the run has ended."""

    def __init__(
        self,
        api: PrefectApi,
        views: Callable[[], Iterable[Json]],
        cancel: Callable[[str], object],
    ) -> None:
        self._api, self._views, self._cancel = api, views, cancel

    def cancel_jobs(self) -> int:
        """Ask Prefect about all runs of unfinished jobs once; returns their number. Raises what the API raises."""
        going_on: dict[str, list[Json]] = {}  # a run that was retried by hand has several Jobs
        for view in self._views():
            if (run_id := flow_run_of(view)) and view["state"] not in TERMINAL_STATES:
                going_on.setdefault(run_id, []).append(view)
        ids = list(going_on)
        for first in range(0, len(ids), RUNS_PER_CALL):
            query = {
                "id": {"any_": ids[first : first + RUNS_PER_CALL]},
                "state": {"type": {"any_": [CANCELLING, CANCELLED]}},
            }
            for run in self._api.request("POST", "/flow_runs/filter", {"flow_runs": query}):
                has_ended = (run.get("state") or {}).get("type") == CANCELLED
                for view in going_on[run["id"]]:
                    if has_ended or view["state"] in WITHOUT_PODS:
                        self._cancel(view["id"])
        return len(ids)
