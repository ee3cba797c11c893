"""MLflow runs become observed epochs: incrementally, each epoch once, also after MLflow was away.

What counts is the series of epoch times of a run, never its wall time, which holds waiting and
suspension. A job that also reported itself is the same run (by its uid), so nothing counts twice.
This module is the only one here that imports MLflow.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from laxity import names
from laxity.job.widths import MOST_WORKERS
from laxity.parsing import whole_number
from laxity.safe_text import without_secrets
from laxity_profiler.estimate import Workload
from laxity_profiler.history import history_database
from laxity_profiler.history.history import Epoch, History
from laxity_profiler.history.report_values import LONGEST_S, SHORTEST_S
from laxity_profiler.model_key import DEFAULT, model_key

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Run

PAGE: Final = 200
OVERLAP_MS: Final = 3_600_000  # ended runs are looked at again for so long: clocks differ
GAP: Final = 1.5  # epochs further apart than this many epochs: it was stopped in between
GAP_S: Final = 5.0
MOST_EPOCHS: Final = 10_000_000


class MlflowRuns:
    """Reads one MLflow store into a history. `read` may be called at any time, by anybody."""

    def __init__(self, history: History, tracking_uri: str) -> None:
        self._history = history
        self._uri = tracking_uri
        self._source = f"mlflow:{without_secrets(tracking_uri)}"
        self._client: MlflowClient | None = None

    def read(self) -> int:
        """Take what is new; the number of runs looked at. MLflow's own errors come through."""
        from mlflow import MlflowClient

        client = self._client = self._client or MlflowClient(tracking_uri=self._uri)
        with history_database.open_transaction(self._history.engine) as connection:
            before = int(history_database.read_setting(connection, self._source) or 0)
        experiments = [row.experiment_id for row in _read_pages(client.search_experiments)]
        epochs = {run.info.run_id: run for run in _search_changed(client, experiments, before)}
        for run in epochs.values():
            self._add_run(client, run)
        latest = max((int(run.info.end_time or 0) for run in epochs.values()), default=0)
        position = max(before, min(latest, round(1000 * time.time())))
        with history_database.open_transaction(self._history.engine) as connection:
            history_database.write_setting(connection, self._source, str(position))
        return len(epochs)

    def _add_run(self, client: "MlflowClient", run: "Run") -> None:
        run_id = run.info.run_id
        tags: Mapping[str, str] = run.data.tags
        uid = tags.get(names.TAG_UID) or f"mlflow:{run_id}"
        model = tags.get(names.TAG_MODEL, "")
        if not model:
            self._reject_run(uid, run_id, f"it has epoch times and no tag {names.TAG_MODEL}")
            return
        actual = client.get_metric_history(run_id, names.EPOCH_ACTUAL)
        widths = client.get_metric_history(run_id, names.WORKERS_SERIES)
        sizes = client.get_metric_history(run_id, names.BYTES_SERIES)
        nodes = client.get_metric_history(run_id, names.NODES_SERIES)
        placed = _latest_by_step(nodes) or {
            0: float(whole_number(run.data.params.get("nodes")) or 0)
        }
        epochs, doubts = _epochs_of_run(actual, _by_step(widths), _by_step(sizes), placed)
        if doubts:
            self._reject_run(uid, run_id, "; ".join(doubts[:5]))
        if epochs:
            job = tags.get(names.TAG_JOB, "")
            key = model_key(job.rpartition("/")[0] or DEFAULT, model)
            workload = _workload_of_run(key, run.data.params, epochs)
            self._history.add_epochs(uid, job, workload, epochs)

    def _reject_run(self, uid: str, run_id: str, reason: str) -> None:
        """Set aside, once: the same doubt about the same run is not written again."""
        line = f"MLflow run {run_id}"
        rejections = {(row[1], row[2]) for row in self._history.rejections(uid)}
        if (reason, line) not in rejections:
            self._history.reject(uid, reason, line, at=time.time())


def _read_pages(search: Callable[..., Any], *arguments: Any, **options: Any) -> Iterator[Any]:
    """All that this search of MLflow finds, page by page."""
    token = None
    while True:
        page = search(*arguments, **options, max_results=PAGE, page_token=token)
        yield from page
        token = page.token
        if not token:
            return


def _search_changed(
    client: "MlflowClient", experiments: Sequence[str], before_ms: int
) -> Iterator["Run"]:
    """Runs that end after the last reading or go on; with a model's tag, or with epoch times."""
    if not experiments:
        return
    since = f"attributes.end_time > {max(0, before_ms - OVERLAP_MS)}"
    for which in (f"tags.`{names.TAG_MODEL}` LIKE '%'", f"metrics.`{names.EPOCH_ACTUAL}` > 0"):
        for state in (since, "attributes.status = 'RUNNING'"):
            condition, order = f"{which} AND {state}", ["end_time ASC"]
            yield from _read_pages(client.search_runs, list(experiments), condition, order_by=order)


def _epochs_of_run(
    actual: Sequence["Metric"],
    widths: Mapping[int, float],
    sizes: Mapping[int, float],
    nodes: Mapping[int, float],
) -> tuple[list[Epoch], list[str]]:
    """The believable epochs in order of their step, and what was wrong with the others.

    `nodes` by step; at step 0 that of the whole run. What cannot be true is not known.
    """
    epochs: list[Epoch] = []
    doubts: list[str] = []
    for step, point in sorted(_first_by_step(actual).items()):
        seconds, width = float(point.value), widths.get(step, 1.0)
        if not 1 <= step <= MOST_EPOCHS or not SHORTEST_S <= seconds <= LONGEST_S:
            doubts.append(f"epoch {step} of {seconds} s is not believed")
        elif not (1.0 <= width <= MOST_WORKERS and width == int(width)):
            doubts.append(f"epoch {step} on {width} workers is not believed")
        else:
            logged_at = point.timestamp / 1000.0
            size = sizes.get(step, 0.0)
            read = int(size) if 0.0 <= size < 2.0**63 else 0
            first = _is_first(epochs[-1] if epochs else None, step, int(width), seconds, logged_at)
            lay_on = nodes.get(step, nodes.get(0, 0.0))
            placed = int(lay_on) if 1.0 <= lay_on <= width and lay_on == int(lay_on) else None
            epochs.append(Epoch(step, int(width), seconds, read, first, logged_at, placed))
    return epochs, doubts


def _is_first(
    before: Epoch | None, step: int, width: int, seconds: float, logged_at: float
) -> bool:
    """Whether an epoch holds a warm-up: the first one, another width, or a stop in between."""
    if before is None or before.width != width or step != before.epoch + 1:
        return True
    return logged_at - before.at > GAP * seconds + GAP_S


def _first_by_step(points: Sequence["Metric"]) -> dict[int, "Metric"]:
    """What was logged first for each step: a repetition never changes an epoch."""
    first: dict[int, Metric] = {}
    for point in sorted(points, key=lambda point: (point.timestamp, point.step)):
        first.setdefault(int(point.step), point)
    return first


def _latest_by_step(points: Sequence["Metric"]) -> dict[int, float]:
    """What was said last of each step: the workers of an epoch may be placed anew before it."""
    ordered = sorted(points, key=lambda point: (point.timestamp, point.step))
    return {int(point.step): float(point.value) for point in ordered}


def _by_step(points: Sequence["Metric"]) -> dict[int, float]:
    values = {step: float(point.value) for step, point in _first_by_step(points).items()}
    return {step: value for step, value in values.items() if math.isfinite(value)}


def _workload_of_run(model: str, params: Mapping[str, str], epochs: Sequence[Epoch]) -> Workload:
    """What the run says of itself in its parameters, as far as it does."""
    return Workload(
        model,
        max(whole_number(params.get("epochs")) or 0, epochs[-1].epoch),
        whole_number(params.get("samples")),
        whole_number(params.get("batch_size")),
        whole_number(params.get("dataset_bytes")),
        whole_number(params.get("parameters")),
    )
