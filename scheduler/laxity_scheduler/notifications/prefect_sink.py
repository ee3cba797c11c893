"""Flow runs of a Prefect work pool follow their Jobs while these have no pod.

Where the flow run itself is the Job, Prefect hears of it from the pod alone. A refused Job never gets
a pod, and its run would be Pending for ever. So the service sets the state:

- refused: the run is Failed, named Refused, with the reason and the counter-offers. `DeadlineRefused`
  says the same where a flow follows its job. Once an offer is accepted, the run is Pending again.
- waiting: Pending, named after the verdict, with the reason.
- gone, or failed for good: Cancelled or Crashed, unless the pod has set a final state itself.

Each change is a line in the run's log too. Verdict and progress are artifacts on the run's page: the same
two that a flow writes that follows its job (laxity.flow.run_notes), by plain requests.

None of this creates a second Job. Workers take Scheduled runs only. Prefect retries neither Pending
nor a Failed that follows on Pending (its rule for retries starts from Running).
"""

import logging
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from laxity.api.job_view import job_view
from laxity.api.status_text import PROGRESS_KEY, VERDICT_KEY, artifact_of, count_tenths
from laxity_scheduler.notifications.message import Message
from laxity_scheduler.notifications.outbox import NotYetError
from laxity_scheduler.notifications.prefect_api import PrefectApi, PrefectError, flow_run_of
from laxity_scheduler.notifications.prefect_states import RunState, log_lines, state_wanted_for
from laxity_scheduler.service.views.view_fields import TERMINAL_STATES, Json

LOG: Final = logging.getLogger(__name__)
SUSPENDED: Final = "suspended"
ARTIFACT_KEYS: Final = (VERDICT_KEY, PROGRESS_KEY)
MAX_LOOKS: Final = 6  # for a run to name its Job, as far apart as retries: about 10 s


class PrefectSink:
    """Writes to Prefect. A run that no longer exists, or has ended otherwise, is left alone."""

    name = "prefect"

    def __init__(self, api: PrefectApi) -> None:
        self._api = api
        self._artifacts = FlowRunArtifacts(api)
        self._artifact_keys: dict[str, str] = {}  # by uid: of the artifacts that were written last
        self._sent: dict[
            str, tuple[str, RunState | None]
        ] = {}  # by uid: the job's state, the run's
        self._logged: dict[str, tuple[str, ...]] = {}
        self._looks = Counter[str]()  # by uid, in vain

    def deliver(self, message: Message) -> None:
        view, run_id = message.view, flow_run_of(message.view)
        uid, state, wanted = view["uid"], view["state"], state_wanted_for(view)
        state_before, wanted_before = self._sent.get(uid, ("", None))
        suspension = (SUSPENDED,) if state == SUSPENDED != state_before else ()
        artifacts = artifact_key(view) if run_id else ""
        sent_before = (state_before, wanted_before, self._artifact_keys.get(uid))
        is_known = (state, wanted, artifacts) == sent_before
        if not run_id or (not message.events and is_known):
            return
        events = (*message.events, *suspension)
        change = wanted if wanted != wanted_before else None
        try:
            self._update_flow_run(run_id, events, change, view)
        except PrefectError as error:
            if not error.is_permanent:
                raise
            about = {"job": view["id"]}
            LOG.warning(
                "flow run %s of %s was not told: %s", run_id, view["id"], error, extra=about
            )
        self._sent[uid], self._artifact_keys[uid] = (state, wanted), artifacts
        self._logged.pop(uid, None)
        if state in TERMINAL_STATES:
            self._sent.pop(uid)
            self._artifact_keys.pop(uid)
            self._looks.pop(uid, None)

    def _update_flow_run(
        self, run_id: str, events: tuple[str, ...], wanted: RunState | None, view: Json
    ) -> None:
        run = self._api.request("GET", f"/flow_runs/{run_id}")
        if not self._owns_job(run, view):
            return
        self._write_log(run_id, view["uid"], events, view)
        if wanted is not None:
            self._set_state(run, wanted)
        self._artifacts.write_all(run_id, view)

    def _owns_job(self, run: Json, view: Json) -> bool:
        """Whether the run names this Job, too. NotYetError while it may still come to that."""
        uid, infrastructure = view["uid"], run.get("infrastructure_pid")
        if runs_as(run, view["id"]):
            self._looks.pop(uid, None)
            return True
        self._looks[uid] += 1
        problem = (
            f"flow run {run['id']} runs as {infrastructure or 'nothing yet'}, not as {view['id']}"
        )
        if self._looks[uid] < MAX_LOOKS:
            raise NotYetError(problem)
        LOG.warning("%s: it is not told", problem, extra={"job": view["id"]})
        return False

    def _write_log(self, run_id: str, uid: str, events: tuple[str, ...], view: Json) -> None:
        """Write the events once, also if a later step fails and the message is retried."""
        if events and self._logged.get(uid) != events:
            self._api.request("POST", "/logs/", list(log_lines(run_id, events, view)))
            self._logged[uid] = events

    def _set_state(self, run: Json, wanted: RunState) -> None:
        state = run.get("state") or {}
        kind, message = str(state.get("type")), str(state.get("message") or "")
        if (kind, message) == (wanted.kind, wanted.message) or not wanted.may_replace(
            kind, message
        ):
            return
        state_body = {"type": wanted.kind, "name": wanted.name, "message": wanted.message}
        self._api.request("POST", f"/flow_runs/{run['id']}/set_state", {"state": state_body})


def runs_as(run: Mapping[str, Any], job_id: str) -> bool:
    """Whether this flow run's infrastructure is that Job.

    prefect-kubernetes writes "<namespace>:<Job>". Older versions put a cluster's uid in front, which
    is not compared: laxity may not read the object that it comes from.
    """
    parts = str(run.get("infrastructure_pid") or "").split(":")
    return len(parts) in (2, 3) and parts[-2:] == job_id.split("/", 1)


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
