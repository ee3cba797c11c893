"""A refit registers each model that changed, draws its calibration, and survives its own death."""

from pathlib import Path
from typing import Any

import pytest

from laxity import names
from laxity_profiler.estimate import NO_PROGRESS
from laxity_profiler.learning.learner import Learner
from laxity_profiler.registry.mlflow_registry import EXPERIMENT, TAG_DIGEST, TAG_PAGE
from tests.support.refitting import Place
from tests.support.runs import trained, workload

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_each_model_is_registered_and_answers_like_the_predictor(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow
    import pandas as pd

    monkeypatch.setenv("MLFLOW_TRACKING_URI", place.uri)
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


def test_only_what_changed_gets_a_new_version(blank_mlflow: Path, tmp_path: Path) -> None:
    place = Place(tmp_path, blank_mlflow)
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


def test_a_version_that_an_older_laxity_serves_gets_a_successor(
    blank_mlflow: Path, tmp_path: Path
) -> None:
    place = Place(tmp_path, blank_mlflow)
    place.refit()
    (old,) = place.versions("laxity.mlp")
    place.client.set_model_version_tag("laxity.mlp", old.version, TAG_PAGE, "older")
    place.client.set_tag(old.run_id, TAG_PAGE, "older")

    after = place.refit()

    assert [(one.name, one.version) for one in after.new] == [("laxity.mlp", "2")]
    champion = place.client.get_model_version_by_alias("laxity.mlp", "champion")
    assert str(champion.version) == "2"
    assert {run.info.run_id for run in runs_of(place)} >= {old.run_id, champion.run_id}
    assert place.refit().new == ()
    place.history.engine.dispose()


def test_a_refit_that_died_is_finished_by_the_next_one(
    blank_mlflow: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before the model, its files, the version, the alias, the pictures."""
    from mlflow import MlflowClient

    place = Place(tmp_path, blank_mlflow)

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


def runs_of(place: Place) -> list[Any]:
    experiment = place.client.get_experiment_by_name(EXPERIMENT).experiment_id
    return list(place.client.search_runs([experiment]))


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
