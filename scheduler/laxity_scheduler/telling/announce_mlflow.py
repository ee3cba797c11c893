"""Predictions and promises in MLflow, beside the epochs that the training itself logs.

One run per job: found by its tag, made at the verdict if there is none, with the same steps as the
training's own series, so that predicted and actual stand in one chart. MLflow is imported here
alone, in the courier's thread: its import takes two seconds and its first use of a new SQLite file
eight.
"""

import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

from laxity import names
from laxity.api.outcome import instant, standing_text
from laxity.api.views import job_view
from laxity.safe_text import markdown
from laxity.worker.mlflow_tracking import (
    PATIENCE,
    TRAINING_VIEW,
    import_mlflow,
    require_answer,
    write_ahead,
)
from laxity_scheduler.service.views import ENDED, Json
from laxity_scheduler.telling.announce import Word
from laxity_scheduler.telling.origin import Origin, origin_of

if TYPE_CHECKING:
    from mlflow import MlflowClient

POINTS_PER_CALL: Final = 1000
PARAMS_PER_CALL: Final = 100
LONGEST_TAG: Final = 4_000
LONGEST_LINE: Final = 1_000
PAGE: Final = re.compile(r"https?://[^\s()<>]{1,500}")  # in Markdown it stays a link and no more
NOTE: Final = "mlflow.note.content"  # what the run's page shows first
SHOWN_AS_TRAINING: Final = ("mlflow.experimentKind", "custom_model_development")


@dataclass(frozen=True, slots=True)
class Known:
    """What is remembered of a job while it goes on."""

    run_id: str
    experiment: str
    origin: Origin


class MlflowRuns:
    """Tells MLflow. `on_run(job id, uid, experiment id, run id)`: for a run that the Job does not name.

    A job that is refused makes no run: nothing is trained. The code of a training may end the run
    for itself, as `with mlflow.start_run()` does: it goes on as long as the job does.
    """

    name = "mlflow"

    def __init__(
        self,
        uri: str,
        on_run: Callable[[str, str, str, str], None],
        manifest_of: Callable[[str], Json] = lambda _job_id: {},
    ) -> None:
        self._uri = uri
        self._on_run = on_run
        self._manifest_of = manifest_of
        self._client: MlflowClient | None = None
        self._experiments: dict[str, str] = {}  # ids by name
        self._known: dict[str, Known] = {}

    def tell(self, word: Word) -> None:
        if word.view["verdict"] == "none":
            return
        require_answer(self._uri)
        import_mlflow()
        from mlflow.entities import Metric, RunTag

        client = self._open()
        known = self._run(client, word.view)
        if known is None:
            return
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
        said = {**known.origin.tags, **tags_of(word.view), NOTE: note_of(word.view, known)}
        tags = [RunTag(name, value) for name, value in said.items()]
        for first in range(0, len(metrics), POINTS_PER_CALL):
            client.log_batch(known.run_id, metrics=metrics[first : first + POINTS_PER_CALL])
        client.log_batch(known.run_id, tags=tags)
        self._settle(client, known, word.view)

    def _open(self) -> "MlflowClient":
        if self._client is None:
            from mlflow import MlflowClient

            for name, value in PATIENCE.items():
                os.environ.setdefault(name, value)
            write_ahead(self._uri)
            self._client = MlflowClient(tracking_uri=self._uri)
        return self._client

    def _experiment(self, client: "MlflowClient", name: str) -> str:
        """The id of an experiment, made where there is none."""
        if name not in self._experiments:
            found = client.get_experiment_by_name(name)
            made = found.experiment_id if found else client.create_experiment(name)
            client.set_experiment_tag(made, *SHOWN_AS_TRAINING)
            self._experiments[name] = made
        return self._experiments[name]

    def _run(self, client: "MlflowClient", view: Json) -> Known | None:
        uid = view["uid"]
        if uid not in self._known:
            origin = self._origin(view)
            experiment = self._experiment(client, origin.experiment)
            run_id = self._named(client, view) or self._found(client, experiment, uid)
            if not run_id and view["verdict"] == "refused":
                return None  # also if it was cancelled since
            run_id = run_id or self._made(client, experiment, view)
            self._known[uid] = Known(run_id, experiment, origin)
            if (experiment, run_id) != (view.get("experiment"), view["run_id"]):
                self._on_run(view["id"], uid, experiment, run_id)
        return self._known[uid]

    def _origin(self, view: Json) -> Origin:
        try:
            return origin_of(self._manifest_of(view["id"]), view)
        except KeyError:  # the Job is gone
            return origin_of({}, view)

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

    def _found(self, client: "MlflowClient", experiment: str, uid: str) -> str:
        asked = f"tags.`{names.TAG_UID}` = '{uid}'"
        runs = client.search_runs([experiment], asked, max_results=1)
        return str(runs[0].info.run_id) if runs else ""

    def _made(self, client: "MlflowClient", experiment: str, view: Json) -> str:
        run = client.create_run(
            experiment,
            start_time=round(1000 * (view["submitted_at"] or 0.0)),
            tags=tags_of(view),
            run_name=view["id"].rpartition("/")[2],
        )
        return str(run.info.run_id)

    def _settle(self, client: "MlflowClient", known: Known, view: Json) -> None:
        """Running while the job is not over, whoever ended the run; closed with the job."""
        run = client.get_run(known.run_id)
        if view["state"] not in ENDED:
            if run.info.status != "RUNNING":
                client.update_run(known.run_id, status="RUNNING")
            return
        self._log_parameters(client, known, run.data.params)
        status = {"finished": "FINISHED", "failed": "FAILED"}.get(view["state"], "KILLED")
        client.set_terminated(known.run_id, status, end_time=round(1000 * view["finished_at"]))
        self._known.pop(view["uid"], None)

    def _log_parameters(
        self, client: "MlflowClient", known: Known, logged: Mapping[str, str]
    ) -> None:
        """At the end, those that the code did not log: what it logs later under one name would raise."""
        from mlflow.entities import Param

        missing = {
            name: value for name, value in known.origin.parameters.items() if name not in logged
        }
        params = [Param(name, value) for name, value in missing.items()]
        for first in range(0, len(params), PARAMS_PER_CALL):
            client.log_batch(known.run_id, params=params[first : first + PARAMS_PER_CALL])


CHARTS: Final[Mapping[str, tuple[str, ...]]] = {
    "Epoch time: actual, P50 and P90": (names.EPOCH_ACTUAL, names.EPOCH_P50, names.EPOCH_P90),
    "Finish: P50, P90 and the deadline": (
        names.FINISH_P50, names.FINISH_P90, names.FINISH_DEADLINE,
    ),
}  # fmt: skip


def tags_of(view: Mapping[str, Any]) -> dict[str, str]:
    """What runs are filtered by."""
    said = {
        names.TAG_JOB: view["id"],
        names.TAG_UID: view["uid"],
        names.TAG_MODEL: view["model"],
        names.TAG_CLASS: view["class"],
        names.TAG_DEADLINE: instant(view["deadline_at"]),
        names.TAG_VERDICT: view["verdict"],
        names.TAG_REASON: view["reason"],
        names.TAG_FLOW_RUN: view["followed_by"] or view["flow_run"],
        names.TAG_OUTCOME: "broken" if view["broken"] and not view["outcome"] else view["outcome"],
    }
    return {name: str(value)[:LONGEST_TAG] for name, value in said.items() if value}


def note_of(view: Mapping[str, Any], known: Known) -> str:
    """The description of a run: how it stands, what it was given, and its charts."""
    job = job_view(view)
    why = job.error if job.state == "failed" else "" if job.ended else job.reason
    lines = [f"**{standing_text(job)}** {markdown(why)}".strip()]
    if given := known.origin.parameters:
        said = ", ".join(f"{name}={value}" for name, value in given.items())
        lines.append(markdown(said[:LONGEST_LINE]))
    for title, shown in CHARTS.items():
        query = {
            "runs": json.dumps([known.run_id]),
            "metric": json.dumps(shown[0]),
            "experiments": json.dumps([known.experiment]),
            "plot_metric_keys": json.dumps(shown),
            "x_axis": "step",  # as it is: in quotes the page does not load
        }
        lines.append(f"[{title}](#/metric?{urlencode(query, quote_via=quote)}&{TRAINING_VIEW})")
    if PAGE.fullmatch(view["followed_by"]):
        lines.append(f"[Prefect flow run]({view['followed_by']})")
    return "\n\n".join(lines)


def final_figures(view: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Predicted at the first verdict against actual, once the job has finished.

    From submission to finish, and the run time alone: its error does not count waiting and stops.
    """
    began, ended, said = view["submitted_at"], view["finished_at"], view.get("first_p50_at")
    if view["state"] != "finished" or began is None or ended is None or ended <= began:
        return
    yield names.FINAL_ACTUAL, ended - began
    if said is not None:
        yield names.FINAL_PREDICTED, said - began
    ran_s, predicted_s = _run_s(view["width_history"], ended), view.get("first_run_s")
    if ran_s > 0.0 and predicted_s is not None:
        yield names.FINAL_RUN_ACTUAL, ran_s
        yield names.FINAL_RUN_PREDICTED, predicted_s
        yield names.FINAL_ERROR, 100.0 * abs(predicted_s - ran_s) / ran_s


def _run_s(widths: Sequence[Sequence[float]], ended: float) -> float:
    """How long it had workers."""
    until = [*(at for at, _ in widths[1:]), ended]
    spans = zip(widths, until, strict=True) if widths else ()
    return sum(max(0.0, end - at) for (at, workers), end in spans if workers)
