"""One MLflow run per group of jobs: the runs of its jobs are nested in it.

It is made with the first of them and found again by its tag. It is open while one of them is, has
their verdict, and ends as they do: failed where a step failed and no later attempt finished. A trial
of a sweep may fail.
"""

from typing import TYPE_CHECKING, Final

from laxity import names
from laxity_scheduler.service.views.view_fields import TERMINAL_STATES, Json

if TYPE_CHECKING:
    from mlflow import MlflowClient

PARENT_TAG: Final = "mlflow.parentRunId"


class GroupRuns:
    """The runs of groups whose jobs are told of, by experiment and group."""

    def __init__(self) -> None:
        self._run_ids: dict[tuple[str, str], str] = {}
        self._open: dict[str, set[str]] = {}  # uids of jobs that go on, by run
        self._verdicts: dict[str, str] = {}

    def parent_tags(self, client: "MlflowClient", experiment: str, view: Json) -> dict[str, str]:
        """The tag that nests the run of this job; {} for a job of no group. Opens and closes the parent."""
        if not view.get("group"):
            return {}
        group = f"{view['id'].partition('/')[0]}/{view['group']}"
        key = experiment, group
        if key not in self._run_ids:
            self._run_ids[key] = _find_run(client, *key) or _create_run(client, *key, view)
        run_id = self._run_ids[key]
        self._follow_state(client, experiment, run_id, view)
        return {PARENT_TAG: run_id}

    def _follow_state(
        self, client: "MlflowClient", experiment: str, run_id: str, view: Json
    ) -> None:
        if view["verdict"] not in ("none", self._verdicts.get(run_id)):
            self._verdicts[run_id] = view["verdict"]
            client.set_tag(run_id, names.TAG_VERDICT, view["verdict"])
        jobs = self._open.setdefault(run_id, set())
        had_jobs = bool(jobs)
        if view["state"] not in TERMINAL_STATES:
            jobs.add(view["uid"])
            if not had_jobs:
                client.update_run(run_id, status="RUNNING")
            return
        jobs.discard(view["uid"])
        if not jobs:
            ended_ms = round(1000 * view["finished_at"])
            client.set_terminated(run_id, _end(client, experiment, run_id, view), end_time=ended_ms)


def _end(client: "MlflowClient", experiment: str, run_id: str, last: Json) -> str:
    """How a group ended: by the runs of its jobs, the last of each, and this view of the last one."""
    if last["step"].startswith(names.TRIAL):
        return "FINISHED"
    nested = client.search_runs(
        [experiment], f"tags.`{PARENT_TAG}` = '{run_id}'", order_by=["start_time ASC"]
    )
    ends = {run.data.tags[names.TAG_JOB]: run.info.status for run in nested}
    ends[last["id"]] = run_status(last)
    return min(set(ends.values()) & {"FAILED", "KILLED"}, default="FINISHED")


def run_status(view: Json) -> str:
    """MLflow's word for how this job ended."""
    return {"finished": "FINISHED", "failed": "FAILED"}.get(view["state"], "KILLED")


def _find_run(client: "MlflowClient", experiment: str, group: str) -> str:
    query = f"tags.`{names.TAG_GROUP_RUN}` = '{group}'"
    runs = client.search_runs([experiment], query, max_results=1)
    return str(runs[0].info.run_id) if runs else ""


def _create_run(client: "MlflowClient", experiment: str, group: str, view: Json) -> str:
    run = client.create_run(
        experiment,
        start_time=round(1000 * (view["submitted_at"] or 0.0)),
        tags={names.TAG_GROUP_RUN: group},
        run_name=view["group"],
    )
    return str(run.info.run_id)
