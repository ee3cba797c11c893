"""Predictions and promises in MLflow, beside the epochs that the training itself logs.

One run per job, found by its tag or created at the verdict, or with the first points where a worker
is faster than the cycle that started it. Predictions have the same steps as the
training's own series, so one chart shows both. MLflow is imported in the outbox's thread only: the
import takes two seconds, and the first use of a new SQLite file eight.
"""

import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

from laxity import names
from laxity.api.job_view import JobView, job_view
from laxity.api.prediction import comparison_text, prediction_error_pct, run_time_s
from laxity.api.status_text import ending_text, instant_text, standing_text
from laxity.safe_text import markdown
from laxity.worker.mlflow_tracking import (
    PATIENCE,
    TRAINING_VIEW,
    active_id,
    import_mlflow,
    require_answer,
    write_ahead,
)
from laxity_scheduler.notifications.group_runs import GroupRuns, run_status
from laxity_scheduler.notifications.message import Message
from laxity_scheduler.notifications.run_origin import RunOrigin, flow_run_url, origin_of
from laxity_scheduler.notifications.run_picture import FILE, RunPictures
from laxity_scheduler.service.views.borrowing import count_borrowed_gpu_h
from laxity_scheduler.service.views.view_fields import TERMINAL_STATES, Json

if TYPE_CHECKING:
    from mlflow import MlflowClient

POINTS_PER_CALL: Final = 1000
PARAMS_PER_CALL: Final = 100
MAX_TAG_LENGTH: Final = 4_000
MAX_LINE_LENGTH: Final = 1_000
NOTE_TAG: Final = "mlflow.note.content"  # what the run's page shows first
EXPERIMENT_KIND_TAG: Final = ("mlflow.experimentKind", "custom_model_development")


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """The MLflow run of a job that has not ended yet."""

    run_id: str
    experiment: str
    origin: RunOrigin


class MlflowSink:
    """Writes to MLflow. `on_run(job id, uid, experiment id, run id)`: a run that the Job does not name.

    A refused job gets no run. Code that ends the run itself, as `with mlflow.start_run()` does, ends
    it for a moment only: the run stays open as long as the job.
    """

    name = "mlflow"

    def __init__(
        self,
        uri: str,
        on_run: Callable[[str, str, str, str], None],
        manifest_of: Callable[[str], Json] = lambda _job_id: {},
        page_url: str = "",
    ) -> None:
        self._uri = uri
        self._on_run = on_run
        self._manifest_of = manifest_of
        self._page_url = page_url
        self._pictures = RunPictures()
        self._client: MlflowClient | None = None
        self._experiments: dict[str, str] = {}  # ids by name
        self._runs: dict[str, TrackedRun] = {}
        self._groups = GroupRuns()

    def deliver(self, message: Message) -> None:
        view = message.view
        if view["verdict"] == "none" and not (
            message.points or view["uid"] in self._runs or view["run_id"]
        ):
            return
        require_answer(self._uri)
        import_mlflow()
        from mlflow.entities import Metric, RunTag

        client = self._open_client()
        tracked = self._run_for(client, message.view)
        if tracked is None:
            return
        metrics = [
            Metric(name, value, round(1000 * point.at), point.epoch)
            for point in message.points
            for name, value in point.values.items()
            if math.isfinite(value)
        ]
        metrics += [
            Metric(
                name, value, round(1000 * message.view["finished_at"]), message.view["epochs_done"]
            )
            for name, value in (() if message.points_only else final_metrics(message.view))
        ]
        for first in range(0, len(metrics), POINTS_PER_CALL):
            client.log_batch(tracked.run_id, metrics=metrics[first : first + POINTS_PER_CALL])
        if not message.points_only or message.view["state"] in TERMINAL_STATES:
            self._update_picture(client, tracked, message.view)
        if message.points_only:
            return
        note = {NOTE_TAG: note_of(message.view, tracked, self._page_url)}
        parent = self._groups.parent_tags(client, tracked.experiment, message.view)
        tag_values = {**tracked.origin.tags, **tags_of(message.view), **note, **parent}
        tags = [RunTag(name, value) for name, value in tag_values.items()]
        client.log_batch(tracked.run_id, tags=tags)
        self._update_status(client, tracked, message.view)

    def _open_client(self) -> "MlflowClient":
        if self._client is None:
            from mlflow import MlflowClient

            for name, value in PATIENCE.items():
                os.environ.setdefault(name, value)
            write_ahead(self._uri)
            self._client = MlflowClient(tracking_uri=self._uri)
        return self._client

    def _experiment_id(self, client: "MlflowClient", name: str) -> str:
        """The id of an experiment, which is created if it does not exist."""
        if name not in self._experiments:
            experiment = client.get_experiment_by_name(name)
            new_id = (
                active_id(experiment)
                if experiment
                else client.create_experiment(name, artifact_location=artifact_folder(self._uri))
            )
            client.set_experiment_tag(new_id, *EXPERIMENT_KIND_TAG)
            self._experiments[name] = new_id
        return self._experiments[name]

    def _run_for(self, client: "MlflowClient", view: Json) -> TrackedRun | None:
        uid = view["uid"]
        if uid not in self._runs:
            origin = self._read_origin(view)
            experiment = self._experiment_id(client, origin.experiment)
            run_id = self._run_of_job(client, view) or self._find_run(client, experiment, uid)
            if not run_id and view["verdict"] == "refused":
                return None  # also if it was cancelled since
            try:
                run_id = run_id or self._create_run(client, experiment, view)
            except Exception:  # it may be gone: it is looked up by its name at the next try
                self._experiments.pop(origin.experiment, None)
                raise
            self._runs[uid] = TrackedRun(run_id, experiment, origin)
            if (experiment, run_id) != (view.get("experiment"), view["run_id"]):
                self._on_run(view["id"], uid, experiment, run_id)
        return self._runs[uid]

    def _read_origin(self, view: Json) -> RunOrigin:
        try:
            return origin_of(self._manifest_of(view["id"]), view)
        except KeyError:  # the Job is gone
            return origin_of({}, view)

    def _run_of_job(self, client: "MlflowClient", view: Json) -> str:
        """The run that the Job names, if that run also names the Job: anybody may write on Jobs."""
        from mlflow.exceptions import MlflowException

        if not view["run_id"]:
            return ""
        try:
            tags = client.get_run(view["run_id"]).data.tags
        except MlflowException as error:
            if error.error_code not in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
                raise
            return ""
        return str(view["run_id"]) if tags.get(names.TAG_UID) == view["uid"] else ""

    def _find_run(self, client: "MlflowClient", experiment: str, uid: str) -> str:
        query = f"tags.`{names.TAG_UID}` = '{uid}'"
        runs = client.search_runs([experiment], query, max_results=1)
        return str(runs[0].info.run_id) if runs else ""

    def _create_run(self, client: "MlflowClient", experiment: str, view: Json) -> str:
        run = client.create_run(
            experiment,
            start_time=round(1000 * (view["submitted_at"] or 0.0)),
            tags=tags_of(view),
            run_name=view["id"].rpartition("/")[2],
        )
        return str(run.info.run_id)

    def _update_picture(self, client: "MlflowClient", tracked: TrackedRun, view: Json) -> None:
        job = job_view(view)
        title = f"{job.id}: {standing_text(job)}"
        is_last = view["state"] in TERMINAL_STATES
        self._pictures.update(client, tracked.run_id, title, view["epochs"], is_last=is_last)

    def _update_status(self, client: "MlflowClient", tracked: TrackedRun, view: Json) -> None:
        """Keep the run open while the job goes on, and close it with the job."""
        run = client.get_run(tracked.run_id)
        if view["state"] not in TERMINAL_STATES:
            if run.info.status != "RUNNING":
                client.update_run(tracked.run_id, status="RUNNING")
            return
        self._log_parameters(client, tracked, run.data.params)
        ended_ms = round(1000 * view["finished_at"])
        client.set_terminated(tracked.run_id, run_status(view), end_time=ended_ms)
        self._runs.pop(view["uid"], None)

    def _log_parameters(
        self, client: "MlflowClient", tracked: TrackedRun, logged: Mapping[str, str]
    ) -> None:
        """Log at the end the parameters that the code did not: logged earlier, the code's own would raise."""
        from mlflow.entities import Param

        missing = {
            name: value for name, value in tracked.origin.parameters.items() if name not in logged
        }
        params = [Param(name, value) for name, value in missing.items()]
        for first in range(0, len(params), PARAMS_PER_CALL):
            client.log_batch(tracked.run_id, params=params[first : first + PARAMS_PER_CALL])


def artifact_folder(uri: str) -> str | None:
    """Beside the file of a SQLite store: MLflow's own default is the folder that one stands in."""
    path = uri.removeprefix("sqlite:///")
    return None if path == uri else str(Path(path).absolute().with_name("mlartifacts"))


CHARTS: Final[Mapping[str, tuple[str, ...]]] = {
    "Epoch time: actual, P50 and P90": (names.EPOCH_ACTUAL, names.EPOCH_P50, names.EPOCH_P90),
    "Finish: P50, P90 and the deadline": (
        names.FINISH_P50, names.FINISH_P90, names.FINISH_DEADLINE,
    ),
}  # fmt: skip


def tags_of(view: Mapping[str, Any]) -> dict[str, str]:
    """Tags by which runs can be filtered."""
    tags = {
        names.TAG_JOB: view["id"],
        names.TAG_UID: view["uid"],
        names.TAG_MODEL: view["model"],
        names.TAG_CLASS: view["class"],
        names.TAG_DEADLINE: instant_text(view["deadline_at"]),
        names.TAG_GROUP: "/".join(filter(None, (view.get("group"), view.get("step")))),
        names.TAG_VERDICT: view["verdict"],
        names.TAG_REASON: ending_text(job_view(view)) or view["reason"],
        names.TAG_STALLED: _stalled_tag(view),
        names.TAG_CODE_CHANGED: view.get("code_changed", ""),
        names.TAG_FLOW_RUN: view["followed_by"] or view["flow_run"],
        names.TAG_BORROWED: _gpu_hours_text(
            count_borrowed_gpu_h(view, view["finished_at"] or time.time())
        ),
        names.TAG_OUTCOME: "broken" if view["broken"] and not view["outcome"] else view["outcome"],
    }
    return {name: str(value)[:MAX_TAG_LENGTH] for name, value in tags.items() if value}


def _stalled_tag(view: Mapping[str, Any]) -> str:
    """Since when no epoch ends; "over" where one has ended since, "" where that never was so."""
    since = view.get("stalled_since")
    return instant_text(since) or ("over" if view.get("has_stalled") else "")


def _gpu_hours_text(gpu_h: float) -> str:
    """Four digits, so that a run that borrowed for a second has the tag as well; "" for none."""
    return f"{gpu_h:.4g}" if gpu_h > 0.0 else ""


def note_of(view: Mapping[str, Any], tracked: TrackedRun, page_url: str = "") -> str:
    """The description of a run in Markdown: its status, prediction and truth, links, picture, parameters.

    MLflow folds what is more than a few lines, so what matters comes first.
    """
    job = job_view(view)
    explanation = job.error if job.state == "failed" else "" if job.ended else job.reason
    links = [_chart_link(title, shown, tracked) for title, shown in CHARTS.items()]
    if page_url:
        links.append(f"[laxity's page]({page_url.rstrip('/')}/?{urlencode({'job': job.id})})")
    if url := flow_run_url(view):
        links.append(f"[Prefect flow run]({url})")
    lines = [
        f"**{standing_text(job)}** {markdown(explanation)}".strip(),
        " · ".join([*_comparison(job), *links]),
        f"![Predicted and measured](get-artifact?path={FILE}&run_uuid={tracked.run_id})",
    ]
    if parameters := tracked.origin.parameters:
        assignments = ", ".join(f"{name}={value}" for name, value in parameters.items())
        lines.append(markdown(assignments[:MAX_LINE_LENGTH]))
    return "\n\n".join(lines)


def _comparison(job: JobView) -> Iterator[str]:
    """What the first verdict predicted beside what it took, once the job has finished."""
    if text := comparison_text(job):
        yield text[0].upper() + text[1:]


def _chart_link(title: str, shown: Sequence[str], tracked: TrackedRun) -> str:
    query = {
        "runs": json.dumps([tracked.run_id]),
        "metric": json.dumps(shown[0]),
        "experiments": json.dumps([tracked.experiment]),
        "plot_metric_keys": json.dumps(shown),
        "x_axis": "step",  # as it is: in quotes the page does not load
    }
    return f"[{title}](#/metric?{urlencode(query, quote_via=quote)}&{TRAINING_VIEW})"


def final_metrics(view: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Once the job has finished: what the first verdict predicted, and what it took, in seconds.

    From submission to finish, and for the run time alone, without waiting and stops.
    """
    began, ended, first_p50_at = view["submitted_at"], view["finished_at"], view.get("first_p50_at")
    if view["state"] != "finished" or began is None or ended is None or ended <= began:
        return
    yield names.FINAL_ACTUAL, ended - began
    if first_p50_at is not None and not view.get("finished_early"):
        yield names.FINAL_PREDICTED, first_p50_at - began
    job = job_view(view)
    error_pct = prediction_error_pct(job)
    if error_pct is not None and job.first_run_s is not None:
        yield names.FINAL_RUN_ACTUAL, run_time_s(job)
        yield names.FINAL_RUN_PREDICTED, job.first_run_s
        yield names.FINAL_ERROR, error_pct
