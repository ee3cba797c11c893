"""MLflow runs become epochs once, however often they are read and whenever MLflow was there."""

from pathlib import Path
from typing import Any

import pytest

from laxity import names
from laxity_profiler.history.history import History
from laxity_profiler.history.mlflow_runs import MlflowRuns
from tests.support.mlflow_store import copy_store
from tests.support.runs import OpenHistory, epoch_line, workload

pytestmark = pytest.mark.slow
MODEL = {names.TAG_MODEL: "mlp", names.TAG_JOB: "default/a"}


class Store:
    """A real MLflow store, and runs as a worker's tracker writes them."""

    def __init__(self, folder: Path, blank: Path) -> None:
        from mlflow import MlflowClient

        self.uri = copy_store(blank, folder)
        self.client = MlflowClient(tracking_uri=self.uri)
        self.experiment = self.client.create_experiment(
            "laxity", artifact_location=str(folder / "artifacts")
        )

    def run(self, tags: dict[str, str] | None = None, params: dict[str, Any] | None = None) -> str:
        run_id = str(self.client.create_run(self.experiment, tags=tags or MODEL).info.run_id)
        for name, value in (params or {}).items():
            self.client.log_param(run_id, name, value)
        return run_id

    def epochs(
        self, run_id: str, times: dict[int, float], *, width: int = 2, at_ms: int = 10_000
    ) -> None:
        from mlflow.entities import Metric

        self.client.log_batch(
            run_id,
            metrics=[
                Metric(name, value, at_ms + 1_000 * step, step)
                for step, seconds in times.items()
                for name, value in (
                    (names.EPOCH_ACTUAL, seconds),
                    (names.WORKERS_SERIES, float(width)),
                    (names.BYTES_SERIES, 64.0),
                )
            ],
        )

    def nodes(self, run_id: str, by_step: dict[int, float]) -> None:
        for step, nodes in by_step.items():
            self.client.log_metric(run_id, names.NODES_SERIES, nodes, step=step)

    def end(self, run_id: str) -> None:
        self.client.set_terminated(run_id)


@pytest.fixture(scope="module")
def store(blank_mlflow: Path, tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("mlflow"), blank_mlflow)


def seen(history: History, model: str) -> list[list[int]]:
    return [[epoch.epoch for epoch in run.epochs] for run in history.epochs(model)]


def test_a_run_that_goes_on_is_read_on(store: Store, history: History) -> None:
    runs = MlflowRuns(history, store.uri)
    run_id = store.run({**MODEL, names.TAG_MODEL: "on"}, {"batch_size": 32, "samples": 900})

    store.epochs(run_id, {1: 2.0, 2: 1.0})
    runs.read()
    first = seen(history, "on")
    store.epochs(run_id, {3: 1.0})
    store.end(run_id)
    runs.read()
    runs.read()

    assert (first, seen(history, "on")) == ([[1, 2]], [[1, 2, 3]])
    (run,) = history.epochs("on")
    assert [epoch.warmup for epoch in run.epochs] == [True, False, False]
    assert (run.workload.batch_size, run.workload.samples, run.epochs[0].width) == (32, 900, 2)


def test_what_was_logged_while_nobody_read_is_read_later(
    store: Store, tmp_path: Path, history: History, open_history: OpenHistory
) -> None:
    MlflowRuns(history, store.uri).read()
    for n in range(3):
        run_id = store.run({**MODEL, names.TAG_MODEL: "away"})
        store.epochs(run_id, {1: 2.0, 2: 1.0 + n})
        store.end(run_id)

    MlflowRuns(open_history(tmp_path), store.uri).read()

    assert seen(history, "away") == [[1, 2]] * 3


def test_a_job_that_reported_itself_counts_once(store: Store, history: History) -> None:
    lines = [epoch_line(n, n, epoch_s=5.0) for n in (1, 2)]
    history.ingest("uid-7", "default/a", workload("both"), lines)
    run_id = store.run({names.TAG_MODEL: "both", names.TAG_UID: "uid-7"})
    store.epochs(run_id, {1: 9.0, 2: 9.0, 3: 6.0})

    MlflowRuns(history, store.uri).read()

    (run,) = history.epochs("both")
    assert [epoch.epoch_s for epoch in run.epochs] == [5.0, 5.0, 6.0]


def test_an_epoch_logged_again_keeps_its_first_time(store: Store, history: History) -> None:
    run_id = store.run({names.TAG_MODEL: "again"})
    store.epochs(run_id, {1: 1.0, 2: 2.0})
    store.epochs(run_id, {2: 7.0}, at_ms=60_000)

    MlflowRuns(history, store.uri).read()

    (run,) = history.epochs("again")
    assert [epoch.epoch_s for epoch in run.epochs] == [1.0, 2.0]


def test_the_epoch_after_a_stop_or_a_resize_holds_a_warm_up(store: Store, history: History) -> None:
    run_id = store.run({names.TAG_MODEL: "stops"})
    store.epochs(run_id, {1: 1.0, 2: 1.0})
    store.epochs(run_id, {3: 1.0}, at_ms=900_000)
    store.epochs(run_id, {4: 1.0}, at_ms=900_000, width=4)
    store.epochs(run_id, {5: 1.0}, at_ms=900_000, width=4)

    MlflowRuns(history, store.uri).read()

    (run,) = history.epochs("stops")
    assert [epoch.warmup for epoch in run.epochs] == [True, False, True, True, False]


def test_foreign_and_broken_runs_are_set_aside_with_a_reason(
    store: Store, history: History
) -> None:
    foreign = store.run({"mlflow.user": "somebody"})
    store.epochs(foreign, {1: 2.0})
    broken = store.run({names.TAG_MODEL: "broken"})
    store.epochs(broken, {0: 1.0, 1: -3.0, 2: 2.0})
    store.epochs(broken, {3: 2.0}, width=0)
    runs = MlflowRuns(history, store.uri)

    runs.read()
    runs.read()

    assert seen(history, "broken") == [[2]]
    (doubt,) = history.rejections(f"mlflow:{foreign}")
    assert "no tag laxity.model" in doubt[1]
    (doubt,) = history.rejections(f"mlflow:{broken}")
    assert "epoch 0 of 1.0 s" in doubt[1]
    assert "epoch 1 of -3.0 s" in doubt[1]
    assert "on 0.0 workers" in doubt[1]


@pytest.mark.parametrize(
    ("model", "series", "params", "kept"),
    [
        pytest.param("n-series", {1: 1.0, 2: 2.0}, {}, [1, 2, None], id="series"),
        pytest.param("n-whole", {}, {"nodes": 2}, [2, 2, 2], id="parameter of the run"),
        pytest.param("n-old", {}, {}, [None, None, None], id="a run of before"),
        pytest.param("n-odd", {1: 9.0, 2: 1.5, 3: -1.0}, {}, [None] * 3, id="cannot be true"),
    ],
)
def test_a_run_says_on_how_many_nodes_its_workers_lay(
    store: Store,
    history: History,
    *,
    model: str,
    series: dict[int, float],
    params: dict[str, Any],
    kept: list[int | None],
) -> None:
    run_id = store.run({**MODEL, names.TAG_MODEL: model}, params)
    store.nodes(run_id, series)
    store.epochs(run_id, {1: 2.0, 2: 2.0, 3: 2.0}, width=4)
    store.end(run_id)

    MlflowRuns(history, store.uri).read()

    assert [epoch.nodes for epoch in history.epochs(model)[0].epochs] == kept
