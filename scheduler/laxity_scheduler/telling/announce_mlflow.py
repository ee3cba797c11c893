"""Predictions and promises in MLflow, beside the epochs that the training itself logs.

One run per job: found by its tag, made at the verdict if there is none, with the same steps as the
training's own series, so that predicted and actual stand in one chart. MLflow is imported here
alone, in the courier's thread: its import takes two seconds and its first use of a new SQLite file
eight.
"""

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

from laxity import names
from laxity.safe_text import markdown
from laxity.tracking import EXPERIMENT, import_mlflow, write_ahead
from laxity_scheduler.service.views import ENDED, Json
from laxity_scheduler.telling.announce import Word

if TYPE_CHECKING:
    from mlflow import MlflowClient

POINTS_PER_CALL: Final = 1000
LONGEST_TAG: Final = 4_000
NOTE: Final = "mlflow.note.content"  # what the run's page shows first
SHOWN_AS_TRAINING: Final = ("mlflow.experimentKind", "custom_model_development")


class MlflowRuns:
    """Tells MLflow. `on_run(job id, uid, run id)` is called for a run that the Job does not name."""

    name = "mlflow"

    def __init__(self, uri: str, on_run: Callable[[str, str, str], None]) -> None:
        self._uri = uri
        self._on_run = on_run
        self._client: MlflowClient | None = None
        self._experiment = ""
        self._runs: dict[str, str] = {}
        self._open_runs: set[str] = set()  # uids whose run is known to be neither refused nor ended

    def tell(self, word: Word) -> None:
        import_mlflow()
        from mlflow.entities import Metric, RunTag

        if word.view["verdict"] == "none":
            return
        client = self._open()
        run_id = self._run(client, word.view)
        metrics = [
            Metric(name, value, round(1000 * point.at), point.epoch)
            for point in word.points
            for name, value in point.values.items()
            if math.isfinite(value)
        ]
        metrics += [
            Metric(name, value, round(1000 * word.view["finished_at"]), word.view["epochs_done"])
            for name, value in final_figures(word.view)
        ]
        said = tags_of(word.view) | {NOTE: note_of(word.view, run_id, self._experiment)}
        tags = [RunTag(name, value) for name, value in said.items()]
        for first in range(0, len(metrics), POINTS_PER_CALL):
            client.log_batch(run_id, metrics=metrics[first : first + POINTS_PER_CALL])
        client.log_batch(run_id, tags=tags)
        self._end(client, run_id, word.view)

    def _open(self) -> "MlflowClient":
        if self._client is None:
            from mlflow import MlflowClient

            client = MlflowClient(tracking_uri=self._uri)
            name = os.environ.get("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)
            found = client.get_experiment_by_name(name)
            write_ahead(self._uri)
            self._experiment = found.experiment_id if found else client.create_experiment(name)
            client.set_experiment_tag(self._experiment, *SHOWN_AS_TRAINING)
            self._client = client
        return self._client

    def _run(self, client: "MlflowClient", view: Json) -> str:
        uid = view["uid"]
        if uid not in self._runs:
            known = self._named(client, view) or self._found(client, uid)
            self._runs[uid] = known or self._made(client, view)
            if self._runs[uid] != view["run_id"]:
                self._on_run(view["id"], uid, self._runs[uid])
        return self._runs[uid]

    def _named(self, client: "MlflowClient", view: Json) -> str:
        """The run that the Job names, if that run names the Job, too: anybody may write on Jobs."""
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

    def _found(self, client: "MlflowClient", uid: str) -> str:
        asked = f"tags.`{names.TAG_UID}` = '{uid}'"
        runs = client.search_runs([self._experiment], asked, max_results=1)
        return str(runs[0].info.run_id) if runs else ""

    def _made(self, client: "MlflowClient", view: Json) -> str:
        run = client.create_run(
            self._experiment,
            start_time=round(1000 * (view["submitted_at"] or 0.0)),
            tags=tags_of(view),
            run_name=view["id"].rpartition("/")[2],
        )
        return str(run.info.run_id)

    def _end(self, client: "MlflowClient", run_id: str, view: Json) -> None:
        """Close the run of a job that ended or was refused; a refused one may be asked for again."""
        uid = view["uid"]
        if view["state"] == "refused":
            client.set_tag(run_id, names.TAG_OUTCOME, "refused")
            client.set_terminated(run_id, "KILLED")
            self._open_runs.discard(uid)
            return
        if uid not in self._open_runs:
            self._open_runs.add(uid)
            _reopen(client, run_id)
        if view["state"] not in ENDED:
            return
        status = {"finished": "FINISHED", "failed": "FAILED"}.get(view["state"], "KILLED")
        client.set_terminated(run_id, status, end_time=round(1000 * view["finished_at"]))
        self._runs.pop(uid, None)
        self._open_runs.discard(uid)


CHARTS: Final[Mapping[str, tuple[str, ...]]] = {
    "Epoch time: actual, P50 and P90": (names.EPOCH_ACTUAL, names.EPOCH_P50, names.EPOCH_P90),
    "Finish: P50, P90 and the deadline": (
        names.FINISH_P50, names.FINISH_P90, names.FINISH_DEADLINE,
    ),
}  # fmt: skip


def _reopen(client: "MlflowClient", run_id: str) -> None:
    """A run that was refused, perhaps before this service started, goes on."""
    run = client.get_run(run_id)
    if run.data.tags.get(names.TAG_OUTCOME) == "refused":
        client.delete_tag(run_id, names.TAG_OUTCOME)
        client.update_run(run_id, status="RUNNING")


def tags_of(view: Mapping[str, Any]) -> dict[str, str]:
    """What runs are filtered by."""
    said = {
        names.TAG_JOB: view["id"],
        names.TAG_UID: view["uid"],
        names.TAG_MODEL: view["model"],
        names.TAG_CLASS: view["class"],
        names.TAG_DEADLINE: "" if view["deadline_at"] is None else f"{view['deadline_at']:.3f}",
        names.TAG_VERDICT: view["verdict"],
        names.TAG_REASON: view["reason"],
        names.TAG_OUTCOME: "broken" if view["broken"] and not view["outcome"] else view["outcome"],
    }
    return {name: str(value)[:LONGEST_TAG] for name, value in said.items() if value}


def note_of(view: Mapping[str, Any], run_id: str, experiment: str) -> str:
    """The description of a run: what it was told and why, and its charts with all their series."""
    lines = [f"**{view['verdict']}** {markdown(view['reason'])}"]
    for title, shown in CHARTS.items():
        query = {
            "runs": json.dumps([run_id]),
            "metric": json.dumps(shown[0]),
            "experiments": json.dumps([experiment]),
            "plot_metric_keys": json.dumps(shown),
            "x_axis": "step",  # as it is: in quotes the page does not load
        }
        lines.append(f"[{title}](#/metric?{urlencode(query, quote_via=quote)})")
    return "\n\n".join(lines)


def final_figures(view: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Predicted at the first verdict against actual, once the job has finished."""
    began, ended, said = view["submitted_at"], view["finished_at"], view.get("first_p50_at")
    if view["state"] != "finished" or began is None or ended is None or ended <= began:
        return
    yield names.FINAL_ACTUAL, ended - began
    if said is not None:
        yield names.FINAL_PREDICTED, said - began
        yield names.FINAL_ERROR, 100.0 * abs(said - ended) / (ended - began)
