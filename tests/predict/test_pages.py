"""What people see in MLflow's pages: the registered model, the calibration, a job's two series.

The model's family is that of test_refit; the job's run is written by the service's own listener.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from laxity import names
from laxity_profiler.registry.refit import refit
from laxity_scheduler.notifications.message import Message
from laxity_scheduler.notifications.mlflow_sink import MlflowSink
from tests.support.browser import Page, browser
from tests.support.mlflow_store import copy_store, mlflow_server
from tests.support.runs import history_in, trained

pytestmark = [pytest.mark.browser, pytest.mark.timeout(900)]
PICTURES_THERE: Final = "[...document.images].filter(i => i.src.includes('get-artifact') && i.naturalWidth > 300).length"


class Shown:
    """A store after a refit, its server, and the ids that addresses need."""

    def __init__(self, folder: Path, blank: Path) -> None:
        from mlflow import MlflowClient

        uri = copy_store(blank, folder)
        history = history_in(folder)
        for run in range(8):
            pace = 1.0 + 0.03 * (run % 5)
            trained(history, f"a{run}", "mlp", epoch_s=[pace] * 8, width=1 + run % 2)
        self.view = refit(history.engine, uri, say=lambda _: None).view
        history.engine.dispose()
        client = MlflowClient(tracking_uri=uri)
        self.experiment = client.get_run(self.view).info.experiment_id
        self.job, self.job_experiment = self._finished_job(client, uri)

    def _finished_job(self, client: Any, uri: str) -> tuple[str, str]:
        """The run of a job that was promised, trained ten epochs and finished in time."""
        listener = MlflowSink(uri, lambda *_: None)
        listener.deliver(Message(view_of("running", epochs_done=0), ()))
        (experiment,) = listener._experiments.values()
        (run,) = client.search_runs([experiment], f"tags.`{names.TAG_UID}` = 'u1'")
        log_series(client, run.info.run_id)
        listener.deliver(Message(view_of("finished", epochs_done=10), ()))
        return str(run.info.run_id), str(run.info.experiment_id)


def view_of(state: str, *, epochs_done: int) -> dict[str, Any]:
    return {
        "id": "default/digits", "uid": "u1", "model": "mlp", "class": "hard", "verdict": "promised",
        "reason": "fits", "state": state, "outcome": "kept" if state == "finished" else "",
        "broken": False, "deadline_at": 5_000.0, "submitted_at": 1_000.0, "run_id": "",
        "finished_at": 1_021.0 if state == "finished" else None, "epochs_done": epochs_done,
        "first_p50_at": 1_020.0, "followed_by": "", "flow_run": "", "first_run_s": 20.0,
        "width_history": [[1_000.0, 1]], "error": "", "reason_code": "fits", "epochs": 10,
    }  # fmt: skip


def log_series(client: Any, run_id: str) -> None:
    from mlflow.entities import Metric

    client.log_batch(
        run_id,
        metrics=[
            Metric(name, value, 1_000_000 + 2_000 * epoch, epoch)
            for epoch in range(1, 11)
            for name, value in (
                (names.EPOCH_ACTUAL, 2.0 + 0.02 * (epoch % 3)),
                (names.EPOCH_P50, 2.0),
                (names.EPOCH_P90, 2.3),
            )
        ],
    )


@pytest.fixture(scope="module")
def shown(
    blank_mlflow: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Shown, str, Page]]:
    folder = tmp_path_factory.mktemp("pages")
    there = Shown(folder, blank_mlflow)
    with mlflow_server(folder) as url, browser(folder) as page:
        yield there, url, page


def kept(page: Page, name: str) -> None:
    """The picture, for whoever wants to look: LAXITY_PICTURES names a folder."""
    if folder := os.environ.get("LAXITY_PICTURES"):
        page.picture(Path(folder) / f"{name}.png")


def test_a_registered_model_shows_its_alias_and_what_it_was_trained_on(
    shown: tuple[Shown, str, Page],
) -> None:
    _, url, page = shown

    page.open(f"{url}/#/models/laxity.mlp/versions/1")

    page.shows("champion", "Trained on 64 epochs of 8 runs", "median error", "within P90")
    kept(page, "version")
    page.open(f"{url}/#/models/laxity.mlp")
    page.shows("How long an epoch of mlp takes", "Version 1", "champion")
    kept(page, "model")


def test_the_calibration_run_shows_both_pictures(shown: tuple[Shown, str, Page]) -> None:
    there, url, page = shown

    page.open(f"{url}/#/experiments/{there.experiment}/runs/{there.view}")
    page.shows("in P90 (95 % interval)", "backtest, start")
    page.wait_for(f"{PICTURES_THERE} === 2")
    page.value(
        "[...document.querySelectorAll('button,span')].find(b => b.innerText === 'Show more')?.click()"
    )
    page.wait_for("document.body.innerText.includes('Show less')")
    page.value("document.images[document.images.length - 1].scrollIntoView()")

    kept(page, "calibration")
    page.open(f"{url}/#/experiments/{there.experiment}/runs/{there.view}/artifacts/calibration.png")
    page.shows("calibration.png", "predicted_vs_actual.png")
    page.wait_for("[...document.images].some(i => i.naturalWidth > 300)")
    kept(page, "artifact")


def test_a_jobs_run_links_to_one_chart_of_predicted_and_actual(
    shown: tuple[Shown, str, Page],
) -> None:
    there, url, page = shown

    page.open(f"{url}/#/experiments/{there.job_experiment}/runs/{there.job}")
    page.shows("Epoch time: actual, P50 and P90", "kept")
    kept(page, "job")
    chart = "[...document.links].find(a => a.innerText.startsWith('Epoch time')).href"
    page.open(page.value(chart))  # a click would open another tab

    page.wait_for(  # MLflow draws each series twice: as it is and smoothed
        "[...document.querySelectorAll('.js-plotly-plot')].some(plot => plot.data?.length === 6"
        " && plot.data.every(series => series.y.length === 10))"
    )
    page.shows("epoch_s/actual", "epoch_s/p50", "epoch_s/p90")
    kept(page, "chart")
