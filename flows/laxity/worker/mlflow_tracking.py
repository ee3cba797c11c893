"""Epochs of a training in MLflow, from a thread of their own: the only importer of mlflow here.

One `log_metric` costs 5 to 50 ms and the import 2 s, so points are buffered and written in
batches. MLflow away, slow or broken never holds up the training: points wait and are tried again,
a server is asked for a sign of life before each batch, and calls give up within seconds.
One run per job across all its starts, found again by its tag; an epoch is logged once. The same run
is the one that `mlflow.start_run()` and autolog in the training code resume.
"""

import math
import numbers
import os
import re
import sqlite3
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from laxity import names
from laxity.backoff import Backoff
from laxity.http_login import request_to
from laxity.safe_text import without_secrets
from laxity.stderr import say

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Experiment, Run

EPOCHS_PER_FLUSH: Final = 20
FLUSH_S: Final = 10.0
POINTS_PER_CALL: Final = 1000
EPOCHS_KEPT: Final = 100_000
POINTS_HANDED_OVER: Final = 500  # at most: they go with one report
BACKOFF: Final = Backoff(first_s=1.0, longest_s=60.0)
ANSWER_S: Final = 3.0  # a server that says nothing for so long is away
EXPERIMENT: Final = "laxity"
TRAINING_VIEW: Final = "workflowType=machine_learning"  # else MLflow 3 opens its view for LLMs
# MLflow's own patience is 7 retries of 2 minutes each, while the worker holds its GPUs.
PATIENCE: Final = {"MLFLOW_HTTP_REQUEST_TIMEOUT": "10", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1"}
_SQLITE: Final = "sqlite:///"
UNFIT: Final = re.compile(r"[^/\w.\- :]")  # MLflow refuses a whole batch for one such name
LONGEST_NAME: Final = 250
UNNAMED: Final = "unnamed"


@dataclass(frozen=True, slots=True)
class EpochMetrics:
    """What is logged of one epoch (or after the last one)."""

    epoch: int
    at: float
    values: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, line: Mapping[str, Any]) -> "EpochMetrics":
        """From an `epoch` line of the reports."""
        values = {
            **line.get("metrics", {}),
            names.WORKERS_SERIES: float(line["width"]),
            **({names.BYTES_SERIES: float(line["bytes"])} if line["bytes"] else {}),
            **({names.NODES_SERIES: float(line["nodes"])} if line.get("nodes") else {}),
            names.EPOCH_ACTUAL: float(line["epoch_s"]),  # last: it says that the epoch is complete
        }
        return cls(int(line["epoch"]), float(line["at"]), values)

    @classmethod
    def after(cls, epoch: int, values: Mapping[str, float]) -> "EpochMetrics":
        """Figures logged after the last epoch."""
        return cls(epoch, time.time(), dict(values))

    def to_json(self) -> dict[str, Any]:
        """The fields of a last report; values that JSON does not take are left out."""
        return {"epoch": self.epoch, "at": self.at, "values": finite_numbers(self.values)}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "EpochMetrics":
        """Read what `to_json` wrote; KeyError, TypeError or ValueError if it is something else."""
        return cls(int(document["epoch"]), float(document["at"]), dict(document["values"]))


def ui_command(uri: str, *, program: str = "mlflow") -> str:
    """What starts MLflow's pages of a local store on this machine: in 0.4 GB, by default it takes 2.6."""
    return f"MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false {program} ui --workers 1 --backend-store-uri {uri}"


class Tracker:
    """Logs points into the run of one job. `given_run_id` says which, if somebody else made it."""

    def __init__(
        self, uri: str, *, tags: Mapping[str, str], given_run_id: Callable[[], str] = lambda: ""
    ) -> None:
        self._uri = uri
        self._tags = {key: value for key, value in tags.items() if value}
        self._await_run_id = given_run_id
        self._buffer: list[EpochMetrics] = []
        self._changed = threading.Condition()
        self._due = False  # asked to write what there is
        self._outcome = ""  # how the run ended, "" while it goes on
        self._idle = True
        self._failing = False
        self._client: MlflowClient | None = None
        self._run_id = ""
        self._naming = threading.RLock()
        self._series_names: dict[str, str] = {}  # by the name in training.log
        self._logged = 0  # epochs up to this one were in the run when it was found
        self._complained = False
        threading.Thread(target=self._write_batches, name="laxity-mlflow", daemon=True).start()

    @property
    def opened(self) -> bool:
        """Whether MLflow has answered."""
        return self._client is not None

    def add(self, points: Sequence[EpochMetrics]) -> None:
        """Log these, sooner or later. Beyond 100,000 that wait, the oldest are given up."""
        with self._changed:
            self._buffer = [*self._buffer, *points][-EPOCHS_KEPT:]
            self._idle = False
            self._changed.notify_all()

    def flush(self, *, at_most_s: float, outcome: str = "") -> bool:
        """Write what there is and, with an outcome (FINISHED, FAILED), close the run.

        Returns at once when that fails: the service closes the run, and the reports hold the points.
        """
        with self._changed:
            if self._idle and not self.opened:
                return True  # there is no run to close
            self._due, self._idle, self._outcome, self._failing = True, False, outcome, False
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._idle or self._failing, at_most_s)
            return self._idle

    def take_unlogged(self) -> list[EpochMetrics]:
        """What waits while MLflow is not open yet: it is the caller's now, and not logged here.

        Empty where MLflow is open, or too much waits for one report.
        """
        with self._changed:
            if self.opened or len(self._buffer) > POINTS_HANDED_OVER:
                return []
            points, self._buffer, self._idle = self._buffer, [], True
            return points

    def take_left(self, *, starts_again: bool) -> list[EpochMetrics]:
        """What a flush at the end could not write, the newest that go with one report.

        Some may be in MLflow already: it keeps one of two equal points of a series. Nothing where the
        training may start again and more is left: that start logs what follows the newest epoch there.
        """
        with self._changed:
            if starts_again and len(self._buffer) > POINTS_HANDED_OVER:
                return []
            points, self._buffer = self._buffer[-POINTS_HANDED_OVER:], []
            return points

    def run_id(self) -> str:
        """The run of this job, found or made; raises what MLflow raises, within seconds.

        Whoever asks first says what is wrong: MLflow tries a broken store for ten seconds, and a
        short training may end before the next try does.
        """
        import_mlflow()  # before the lock: whoever imports it may be about to ask this
        with self._naming:
            if not self._run_id:
                try:
                    require_answer(self._uri)
                    self._run_id = self._await_run_id() or self._find_or_make(
                        _make_client(self._uri)
                    )
                except Exception as error:
                    self._complain_once(error)
                    raise
            return self._run_id

    def _write_batches(self) -> None:
        failures = 0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: not self._idle)
                self._changed.wait_for(self._has_enough, FLUSH_S)
                batch, outcome, self._due = self._buffer, self._outcome, False
            try:
                self._write_batch(batch, outcome)
                failures = 0
            except Exception as error:  # noqa: BLE001 - MLflow raises what its stores raise
                failures += 1
                self._complain_once(error)
                with self._changed:
                    self._failing = True
                    self._changed.notify_all()
                    self._changed.wait_for(lambda: self._due, BACKOFF.delay_s(failures))
                continue
            with self._changed:
                self._failing = False
                written = {id(point) for point in batch}
                self._buffer = [point for point in self._buffer if id(point) not in written]
                self._idle = not self._buffer and self._outcome == outcome and not self._due
                self._changed.notify_all()

    def _has_enough(self) -> bool:
        return self._due or len(self._buffer) >= EPOCHS_PER_FLUSH

    def _write_batch(self, batch: Sequence[EpochMetrics], outcome: str) -> None:
        require_answer(self._uri)
        import_mlflow()
        from mlflow.entities import Metric

        client = self._open_run()
        metrics = [
            Metric(self._series_name(name), value, round(1000 * point.at), point.epoch)
            for point in batch
            if point.epoch > self._logged or names.EPOCH_ACTUAL not in point.values
            for name, value in finite_numbers(point.values).items()
        ]
        for first in range(0, len(metrics), POINTS_PER_CALL):
            client.log_batch(self._run_id, metrics=metrics[first : first + POINTS_PER_CALL])
        if outcome:
            client.set_terminated(self._run_id, status=outcome)

    def _open_run(self) -> "MlflowClient":
        """The client, with the run found or made; the first call takes seconds."""
        if self._client is None:
            run_id, client = self.run_id(), _make_client(self._uri)
            history = client.get_metric_history(run_id, names.EPOCH_ACTUAL)
            self._logged = max((point.step for point in history), default=0)
            self._client = client
        return self._client

    def _find_or_make(self, client: "MlflowClient") -> str:
        experiment = _find_experiment(client)
        uid = self._tags.get(names.TAG_UID, "")
        if uid:
            query = f"tags.`{names.TAG_UID}` = '{uid}'"
            for run in client.search_runs([experiment], query, max_results=1):
                client.update_run(run.info.run_id, status="RUNNING")
                return str(run.info.run_id)
        name = self._tags.get(names.TAG_JOB, "").rpartition("/")[2] or None
        return str(client.create_run(experiment, tags=self._tags, run_name=name).info.run_id)

    def _series_name(self, name: str) -> str:
        """The name in MLflow; that it differs is told once."""
        if name not in self._series_names:
            self._series_names[name] = series_name(name)
            if series_name(name) != name:
                say(f"{name!r} is {series_name(name)!r} in MLflow, which does not take that name")
        return self._series_names[name]

    def _complain_once(self, error: Exception) -> None:
        if not self._complained:
            self._complained = True
            say(
                f"MLflow at {self._uri} does not take the epochs "
                f"({type(error).__name__}: {str(error)[:200]}); they wait, training goes on"
            )


def logged_number(name: str, value: Any) -> float:
    """A value of `Training.log` as a float; TypeError if it is no number."""
    if isinstance(value, numbers.Real) or hasattr(value, "item"):
        with suppress(TypeError, ValueError, RuntimeError, OverflowError):  # of several elements
            return float(value)
    shape = getattr(value, "shape", ())
    of = f" of shape {tuple(shape)}" if shape else ""
    raise TypeError(f"log({name}=...): expected a number, not a {type(value).__name__}{of}")


def finite_numbers(values: Mapping[str, float]) -> dict[str, float]:
    """Those that JSON and MLflow take."""
    return {name: value for name, value in values.items() if math.isfinite(value)}


def series_name(name: str) -> str:
    """A name that MLflow takes for what the training calls `name`: acc@1 becomes acc_1."""
    parts = UNFIT.sub("_", name).split("/")
    path = "/".join(part for part in parts if part not in {"", ".", ".."})
    return path[:LONGEST_NAME].rstrip("/") or UNNAMED


def require_answer(uri: str) -> None:
    """ConnectionError unless this store may be asked: a server must answer, with anything, in 3 s."""
    if not uri.startswith(("http://", "https://")):
        return
    try:
        request = request_to(f"{uri.rstrip('/')}/health")
        urllib.request.urlopen(request, timeout=ANSWER_S).close()  # noqa: S310
    except urllib.error.HTTPError as answer:
        answer.close()
    except (OSError, ValueError) as error:  # ValueError: no address
        message = f"MLflow at {uri} does not answer{proxy_text(uri)}: {error}"
        raise ConnectionError(without_secrets(message, uri)) from error


def proxy_text(uri: str) -> str:
    """Through which proxy this address is asked, in words; "" for none.

    MLflow's own client asks the same one, also for an address of this machine.
    """
    parts = urlsplit(uri)
    proxy = urllib.request.getproxies().get(parts.scheme)
    if not proxy or urllib.request.proxy_bypass(parts.netloc.rpartition("@")[2]):
        return ""
    address = proxy.rpartition("@")[2]  # without its password
    return f" through the proxy {address} (NO_PROXY={parts.hostname} asks it directly)"


def read_run(uri: str, run_id: str) -> "Run":
    """The run as MLflow has it now."""
    return _make_client(uri).get_run(run_id)


def import_mlflow() -> None:
    """All of mlflow, before any part of it is imported.

    A thread that begins with a part (`from mlflow.entities import ...`) keeps that part from a
    thread that imports the whole, and waits for the whole itself. Python ends this by handing out
    half-made modules: no import of mlflow works in that process any more.
    """
    import mlflow  # noqa: F401


def _make_client(uri: str) -> "MlflowClient":
    from mlflow import MlflowClient

    write_ahead(uri)
    return MlflowClient(tracking_uri=uri)


def write_ahead(uri: str) -> None:
    """Let readers and writers of a local SQLite store not wait for one another; kept in the file."""
    if not uri.startswith(_SQLITE):
        return
    with suppress(sqlite3.Error), closing(sqlite3.connect(uri.removeprefix(_SQLITE))) as database:
        database.execute("PRAGMA journal_mode=WAL")


def active_id(experiment: "Experiment") -> str:
    """Its id; ValueError where somebody has deleted it: MLflow keeps the name, and takes no run."""
    if experiment.lifecycle_stage == "deleted":
        restore = f"mlflow experiments restore --experiment-id {experiment.experiment_id}"
        raise ValueError(
            f"the experiment {experiment.name} was deleted in MLflow; run: {restore}, or name another "
            "one in MLFLOW_EXPERIMENT_NAME"
        )
    return str(experiment.experiment_id)


def _find_experiment(client: "MlflowClient") -> str:
    """The experiment that MLflow's own variables name, else laxity's."""
    if experiment_id := os.environ.get("MLFLOW_EXPERIMENT_ID"):
        return experiment_id
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)
    experiment = client.get_experiment_by_name(name)
    if experiment is not None:
        return active_id(experiment)
    try:
        return str(client.create_experiment(name))
    except Exception:  # another worker may have made it in between
        time.sleep(0.5)
        experiment = client.get_experiment_by_name(name)
        if experiment is None:
            raise
        return str(experiment.experiment_id)
