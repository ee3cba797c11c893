"""A refit registers what stops and starts cost, with how far off that was."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from laxity_profiler.learning.learner import Learner
from laxity_profiler.registry.overhead_entry import NAME as OVERHEAD
from tests.support.refitting import Place
from tests.support.runs import workload

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def costly(blank_mlflow: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Two models that were stopped and started eight times each."""
    place = Place(tmp_path_factory.mktemp("costly"), blank_mlflow)
    place.stopped(*(40.0 + 0.3 * number for number in range(8)))
    place.stopped(*(4.0 + 0.03 * number for number in range(8)), model="rnn")
    place.refit()
    yield place
    place.history.engine.dispose()


def test_overheads_are_registered_and_answer_like_the_predictor(
    costly: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow
    import pandas as pd

    monkeypatch.setenv("MLFLOW_TRACKING_URI", costly.uri)
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


def test_a_refit_assumes_what_the_world_that_is_served_costs(
    blank_mlflow: Path, tmp_path: Path
) -> None:
    place = Place(tmp_path, blank_mlflow)
    Learner(place.history, priors="cluster")
    place.stopped(50.0, model="new")

    place.refit()

    offline = Learner(place.history)
    assert offline.predictor().resume_cost(workload("never seen"), 1).p50_s > 20.0
    run = place.client.get_run(place.versions(OVERHEAD)[0].run_id)
    assert run.data.metrics["error/resume_median_ape"] < 0.5, "one event, predicted by the prior"
    place.history.engine.dispose()
