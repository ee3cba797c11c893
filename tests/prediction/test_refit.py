"""`laxity refit` registers what was learned in MLflow, each change once, and draws how good it is."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from laxity import names
from laxity.exits import AWAY, FAILED, NOT_FOUND, USAGE, CommandError
from laxity_profiler import tables
from laxity_profiler.commands import register
from laxity_profiler.estimate import NO_PROGRESS
from laxity_profiler.learner import Learner
from laxity_profiler.lease import LeaseHeldError, held
from laxity_profiler.overhead_trained import NAME as OVERHEAD
from laxity_profiler.refit import Refit, refit
from laxity_profiler.registry import EXPERIMENT, TAG_DIGEST
from tests.prediction.builders import START_AT, history_in, trained, workload

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


class Place:
    """A store with two models' runs and finished jobs, and a real MLflow store beside it."""

    def __init__(self, folder: Path, blank: Path) -> None:
        self.folder = folder
        self.uri = f"sqlite:///{folder}/mlflow.db"
        shutil.copy(blank, folder / "mlflow.db")
        self.history = history_in(folder)
        for run in range(6):
            pace = 1.0 + 0.02 * run
            trained(self.history, f"a{run}", "mlp", epoch_s=[pace] * 8, width=1 + run % 2)
            trained(self.history, f"b{run}", "it's/2", epoch_s=[9.0 * pace] * 8, batch_size=32)
        learner = Learner(self.history)
        predictor, what = learner.predictor(), workload("mlp", epochs=20)
        for run in range(4):
            said = predictor.epoch_time(what, 1)
            learner.note_prediction(
                f"j{run}", what, stage="start", at=0.0, estimate=said, version=predictor.version
            )
            learner.observe_finish(f"j{run}", at=said.p50_s * (0.97 + 0.02 * run))

    def stopped(self, *resume_s: float, model: str = "mlp", after: int = 0) -> None:
        """Starts of a model that took so long, and stops that took a fifth of it."""
        for number, seconds in enumerate(resume_s, after):
            uid, what = f"{model}{number}", workload(model)
            for kind, took_s in (("resume", seconds), ("suspend", seconds / 5)):
                self.history.observe_stop(
                    uid,
                    what,
                    kind=kind,
                    workers=1 + number % 2,
                    seconds=took_s,
                    at=START_AT + number,
                )

    def refit(self) -> Refit:
        return refit(self.history.engine, self.uri, say=lambda _: None)

    @property
    def client(self) -> Any:
        from mlflow import MlflowClient

        return MlflowClient(tracking_uri=self.uri)

    def versions(self, name: str) -> list[Any]:
        found = self.client.search_model_versions(f"name = '{name}'")
        return sorted(found, key=lambda version: int(version.version))


@pytest.fixture(scope="module")
def blank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An MLflow store with its tables and nothing in them: to make them takes ten seconds."""
    from mlflow import MlflowClient

    path = tmp_path_factory.mktemp("blank") / "mlflow.db"
    MlflowClient(tracking_uri=f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture(scope="module")
def place(blank: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    place = Place(tmp_path_factory.mktemp("refit"), blank)
    place.refit()
    yield place
    place.history.engine.dispose()


@pytest.fixture(scope="module")
def costly(blank: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Two models that were stopped and started eight times each."""
    place = Place(tmp_path_factory.mktemp("costly"), blank)
    place.stopped(*(40.0 + 0.3 * number for number in range(8)))
    place.stopped(*(4.0 + 0.03 * number for number in range(8)), model="rnn")
    place.refit()
    yield place
    place.history.engine.dispose()


def test_each_model_is_registered_and_answers_like_the_predictor(place: Place) -> None:
    import mlflow
    import pandas as pd

    mlflow.set_tracking_uri(place.uri)
    served = mlflow.pyfunc.load_model("models:/laxity.mlp@champion")
    said = served.predict(pd.DataFrame({"workers": [1, 2, 4], "epochs": [5, 5, 5]}))

    predictor = Learner(place.history).predictor()
    what = workload("mlp", epochs=5)
    for workers, row in zip((1, 2, 4), said.to_dict("records"), strict=True):
        whole = predictor.remaining(what, NO_PROGRESS, workers)
        assert (row["p10_s"], row["p50_s"]) == pytest.approx((whole.p10_s, whole.p50_s))
        assert (row["mean_s"], row["p90_s"]) == pytest.approx((whole.mean_s, whole.p90_s))
        assert row["source"] == whole.source


def test_a_version_says_what_it_was_trained_on_and_how_far_off_it_was(place: Place) -> None:
    (version,) = place.versions("laxity.mlp")
    run = place.client.get_run(version.run_id)

    assert run.data.params["runs"] == "6"
    assert run.data.params["epochs"] == "48"
    assert run.data.params["widths"] == "1,2"
    assert run.data.params["first_epoch_at"].startswith("1970-01-12T")
    assert 0.0 < run.data.metrics["error/median_ape"] < 0.1
    assert 0.0 <= run.data.metrics["coverage/p90"] <= 1.0
    assert "6 runs" in version.description
    assert version.tags["runs"] == "6"


def test_a_key_that_no_registry_takes_gets_a_name_of_its_own(place: Place) -> None:
    found = [model for model in place.client.search_registered_models() if "2" in model.name]

    assert len(found) == 1
    assert found[0].name.startswith("laxity.it-s-2-")
    assert found[0].tags["laxity.predicts"] == "it's/2"


def test_a_refit_without_news_changes_nothing(place: Place) -> None:
    before = {run.info.run_id for run in runs_of(place)}

    again = place.refit()

    assert again.new == ()
    assert not again.is_view_new
    assert [len(place.versions(one.name)) for one in again.published] == [1, 1]
    assert {run.info.run_id for run in runs_of(place)} == before


def test_the_view_holds_both_pictures_and_coverage_in_time(place: Place) -> None:
    view = place.refit().view
    run = place.client.get_run(view)

    found = {file.path: file.file_size for file in place.client.list_artifacts(view)}
    assert set(found) == {"calibration.png", "predicted_vs_actual.png", "outcomes.csv"}
    assert min(found["calibration.png"], found["predicted_vs_actual.png"]) > 10_000
    assert run.data.metrics["coverage/live_start_p90"] == 1.0
    assert run.data.metrics["error/live_start_n"] == 4.0
    assert "coverage/backtest_half_p90" in run.data.metrics
    assert "| live, start | 4 |" in run.data.tags["mlflow.note.content"]


def test_only_what_changed_gets_a_new_version(blank: Path, tmp_path: Path) -> None:
    place = Place(tmp_path, blank)
    place.refit()
    log_a_run(place, "rnn")
    trained(place.history, "a9", "mlp", epoch_s=[1.3] * 8)

    after = place.refit()

    assert {one.name for one in after.new} == {"laxity.mlp", "laxity.rnn"}
    assert after.runs_read == 1
    assert after.is_view_new
    champion = place.client.get_model_version_by_alias("laxity.mlp", "champion")
    assert (str(champion.version), len(place.versions("laxity.mlp"))) == ("2", 2)
    steps = place.client.get_metric_history(after.view, "coverage/backtest_start_p90")
    assert len(steps) == 2
    place.history.engine.dispose()


def test_a_refit_that_died_is_finished_by_the_next_one(
    blank: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before the model, its files, the version, the alias, the pictures."""
    from mlflow import MlflowClient

    place = Place(tmp_path, blank)

    def dies(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    for step in (
        "create_registered_model",
        "log_model_artifacts",
        "create_model_version",
        "set_registered_model_alias",
        "log_figure",
    ):
        for run in range(2):
            trained(place.history, f"{step}{run}", f"m{step.replace('_', '-')}", epoch_s=[2.0] * 4)
        with monkeypatch.context() as patched:
            patched.setattr(MlflowClient, step, dies)
            with pytest.raises(KeyboardInterrupt):
                place.refit()
        place.refit()

    found = [one.name for one in place.refit().published]
    assert len(found) == 7
    assert [len(place.versions(name)) for name in found] == [1] * 7
    for name in found:
        assert str(place.client.get_model_version_by_alias(name, "champion").version) == "1"
    digests = [run.data.tags.get(TAG_DIGEST) for run in runs_of(place)]
    assert len(digests) == len(set(digests)) == 8  # seven models and the view
    place.history.engine.dispose()


def test_overheads_are_registered_and_answer_like_the_predictor(costly: Place) -> None:
    import mlflow
    import pandas as pd

    mlflow.set_tracking_uri(costly.uri)
    served = mlflow.pyfunc.load_model(f"models:/{OVERHEAD}@champion")
    asked = [("mlp", 1), ("mlp", 4), ("rnn", 2), ("never seen", 1)]
    said = served.predict(pd.DataFrame(asked, columns=["model", "workers"]))

    predictor = Learner(costly.history).predictor()
    for (model, workers), row in zip(asked, said.to_dict("records"), strict=True):
        for side, cost in (("suspend", predictor.suspend_cost), ("resume", predictor.resume_cost)):
            expected = cost(workload(model), workers)
            for figure in ("p10_s", "p50_s", "mean_s", "p90_s"):
                assert row[f"{side}_{figure}"] == pytest.approx(getattr(expected, figure))
            assert row[f"{side}_source"] == expected.source
    assert said["resume_p50_s"][0] > 5 * said["resume_p50_s"][2], "each model has costs of its own"


def test_overheads_say_what_they_were_trained_on_and_how_far_off_they_were(costly: Place) -> None:
    (version,) = costly.versions(OVERHEAD)
    run = costly.client.get_run(version.run_id)
    said, figures = run.data.params, run.data.metrics

    assert (said["n_resume"], said["n_suspend"], said["models"]) == ("16", "16", "3")
    assert (said["widths"], said["model_keys"]) == ("1,2", "it's/2, mlp, rnn")
    assert said["first_observed_at"].startswith("1970-01-12T")
    assert figures["error/resume_n"] == figures["error/suspend_n"] == 16.0
    assert 0.0 < figures["error/resume_median_ape"] < 0.1
    assert 0.0 <= figures["coverage/resume_p90"] <= 1.0
    assert "held back: mean error" in version.description


def test_overheads_get_a_new_version_only_if_they_changed(costly: Place) -> None:
    assert costly.refit().new == ()
    costly.stopped(90.0, 95.0, after=50)

    again = costly.refit()

    assert [one.name for one in again.new] == [OVERHEAD]
    assert costly.refit().new == ()
    champion = costly.client.get_model_version_by_alias(OVERHEAD, "champion")
    assert (str(champion.version), len(costly.versions(OVERHEAD))) == ("2", 2)


def test_where_nothing_was_stopped_no_overheads_are_registered(place: Place) -> None:
    assert place.versions(OVERHEAD) == []


def test_two_refits_at_once_are_one(place: Place) -> None:
    with (
        held(place.history.engine, "refit"),
        pytest.raises(LeaseHeldError, match=rf"process {os.getpid()} on {socket.gethostname()}"),
    ):
        place.refit()
    answer = command(place, "--json")
    assert answer.exception is None


def test_the_lease_of_a_dead_process_is_taken_over(place: Place) -> None:
    dead = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    write_lease(place, f"{socket.gethostname()} {dead} {time.time() + 600:.3f}")

    with held(place.history.engine, "refit"):
        pass


@pytest.mark.parametrize(
    "left_s", [pytest.param(600.0, id="goes on"), pytest.param(-1.0, id="ended")]
)
def test_a_lease_of_another_machine_is_waited_for(left_s: float, place: Place) -> None:
    write_lease(place, f"elsewhere 1 {time.time() + left_s:.3f}")

    if left_s < 0.0:
        with held(place.history.engine, "refit") as lease:
            lease.renew()
    else:
        with (
            pytest.raises(LeaseHeldError, match="on elsewhere"),
            held(place.history.engine, "refit"),
        ):
            pass
        answer = command(place)
        assert isinstance(answer.exception, CommandError)
        assert answer.exception.code == FAILED
    write_lease(place, "")


def test_a_lease_that_was_lost_is_not_renewed(place: Place) -> None:
    with held(place.history.engine, "refit") as lease:
        write_lease(place, f"elsewhere 1 {time.time() + 600:.3f}")
        with pytest.raises(LeaseHeldError, match="taken over"):
            lease.renew()
    write_lease(place, "")


def test_the_command_says_what_it_did(place: Place) -> None:
    said = json.loads(command(place, "--json").stdout)

    assert (said["models"], said["new_versions"], said["view_is_new"]) == (2, [], False)
    assert "2 models, new versions: none" in command(place).stdout


def test_without_mlflow_the_command_says_so_at_once(place: Place) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        uri = f"http://127.0.0.1:{free.getsockname()[1]}"

    error = command(place, "--tracking-uri", uri).exception

    assert isinstance(error, CommandError)
    assert error.code == AWAY
    assert f"MLflow at {uri} does not answer" in str(error)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        pytest.param(("--tracking-uri", "sqlite:////no/such/folder/x.db"), AWAY, "no folder", id="no folder"),
        pytest.param(("--store", "postgresql://x@127.0.0.1:1/x"), AWAY, "did not do it", id="no database"),
        pytest.param(("--every", "soon"), USAGE, "--every soon", id="no duration"),
        pytest.param(("--every", "0.2s"), USAGE, "at least 1 s", id="too often"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_said(words: tuple[str, ...], code: int, said: str, place: Place) -> None:
    error = command(place, *words).exception

    assert isinstance(error, CommandError)
    assert (error.code, said in str(error)) == (code, True)


def test_a_home_without_history_is_said(tmp_path: Path) -> None:
    error = CliRunner().invoke(app(), ["refit"], env={"LAXITY_HOME": str(tmp_path)}).exception

    assert isinstance(error, CommandError)
    assert error.code == NOT_FOUND


def test_on_a_schedule_it_outlives_an_mlflow_that_is_away(place: Place) -> None:
    uri = "http://127.0.0.1:1"
    asked = ("refit", "--every", "1s", "--tracking-uri", uri)
    with subprocess.Popen(
        [sys.executable, "-m", "laxity_profiler", *asked],
        env=os.environ | {"LAXITY_HOME": str(place.folder)},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        lines = [process.stderr.readline() for _ in range(2)]
        process.terminate()

    assert all("does not answer" in line and "again in 1s" in line for line in lines)


def app() -> typer.Typer:
    found = typer.Typer()
    found.callback()(lambda: None)
    register(found)
    return found


def command(place: Place, *words: str) -> Result:
    env = {"LAXITY_HOME": str(place.folder), "MLFLOW_TRACKING_URI": "", "COLUMNS": "200"}
    return CliRunner().invoke(app(), ["refit", *words], env=env)


def runs_of(place: Place) -> list[Any]:
    experiment = place.client.get_experiment_by_name(EXPERIMENT).experiment_id
    return list(place.client.search_runs([experiment]))


def write_lease(place: Place, position: str) -> None:
    with tables.transaction(place.history.engine) as connection:
        tables.write_watermark(connection, "lease:refit", position)


def log_a_run(place: Place, model: str) -> None:
    """A training that only MLflow knows."""
    from mlflow.entities import Metric

    client = place.client
    run = client.create_run(
        client.create_experiment("by hand", artifact_location=str(place.folder / "x")),
        tags={names.TAG_MODEL: model},
    )
    points = [Metric(names.EPOCH_ACTUAL, 2.0, 1_000 * epoch, epoch) for epoch in range(1, 6)]
    client.log_batch(run.info.run_id, metrics=points)
    client.set_terminated(run.info.run_id)
