"""Past runs predicted from the others, and how often their quantiles held."""

from types import SimpleNamespace
from typing import Any

import pytest

from laxity_profiler.charts import calibration_chart, curve_chart, scatter_chart
from laxity_profiler.history.history import Epoch, TrainingRun
from laxity_profiler.learning.backtest import (
    CalibrationPoint,
    PredictionOutcome,
    TrainingSummary,
    calibration_curve,
    error_metrics,
    live_outcomes,
    run_backtests,
)
from laxity_profiler.learning.stretches import Stretch
from laxity_profiler.model.model_fit import ModelFit, WorkloadSetting
from laxity_profiler.registry.calibration_run import (
    coverage_of,
    digest_of,
    markdown_note,
    outcomes_csv,
)
from laxity_profiler.registry.predictor_entry import (
    TrainedModel,
    description_of,
    params_of,
    registry_name,
)
from tests.support.runs import World, workload


def outcome(actual_s: float, *, model: str = "mlp", stage: str = "start") -> PredictionOutcome:
    return PredictionOutcome(model, stage, 10.0, actual_s, (0.1, 0.5, 0.9), (8.0, 10.0, 12.0))


def test_a_quantile_of_past_runs_holds_as_often_as_it_says() -> None:
    world = World(3, spread=0.08, noise=0.06)
    found = run_backtests("mlp", [Stretch(WorkloadSetting(), 2, world.run(20)) for _ in range(400)])

    for stage in ("start", "half"):
        points = calibration_curve([one for one in found if one.stage == stage])
        assert [point.n for point in points] == [200] * 9
        for point in points:
            low, high = point.interval
            assert low <= point.level <= high, point


def test_an_error_that_the_model_does_not_know_of_shows_as_missed_quantiles() -> None:
    runs = [(10.0 + 0.1 * (k % 3),) * 6 for k in range(40)]
    runs += [(13.0 + 3.0 * (k % 2),) * 6 for k in range(6)]
    found = run_backtests("mlp", [Stretch(WorkloadSetting(), 1, run) for run in runs])

    last = [one for one in found if one.stage == "start"][-6:]
    assert sum(one.actual_s <= one.quantiles_s[-1] for one in last) < 6


def test_the_first_runs_are_judged_by_assumed_factors() -> None:
    found = run_backtests(
        "mlp",
        [Stretch(WorkloadSetting(), 1, (2.0, 2.1)), Stretch(WorkloadSetting(), 1, (2.2, 2.0))],
    )

    assert [one.stage for one in found] == ["start", "half", "start", "half"]
    assert all(
        low < high
        for one in found
        for low, high in zip(one.quantiles_s, one.quantiles_s[1:], strict=False)
    )


def test_one_run_has_no_others_to_be_predicted_from() -> None:
    assert run_backtests("mlp", [Stretch(WorkloadSetting(), 1, (2.0, 2.1, 1.9))]) == []
    assert error_metrics([]) == {}


def test_an_interval_is_that_of_wilson() -> None:
    low, high = CalibrationPoint(0.9, 0.9, 60).interval

    assert (low, high) == pytest.approx((0.7985, 0.9534), abs=1e-4)


def test_errors_and_coverage_are_metrics_by_name() -> None:
    found = error_metrics([outcome(10.0), outcome(12.5), outcome(8.0), outcome(11.0, stage="half")])

    assert found["error/n"] == 3.0
    assert found["error/median_ape"] == pytest.approx(0.2)
    assert (found["coverage/p10"], found["coverage/p50"]) == pytest.approx((1 / 3, 2 / 3))
    assert found["coverage/p90"] == pytest.approx(2 / 3)


def test_only_predictions_that_came_to_an_end_are_live_outcomes() -> None:
    row = {"model": "mlp", "stage": "start", "p10_s": 1.0, "p50_s": 2.0, "p90_s": 3.0}
    rows = [SimpleNamespace(**row, actual_s=actual_s) for actual_s in (None, 2.5)]

    (found,) = live_outcomes(rows)

    assert (found.predicted_s, found.actual_s) == (2.0, 2.5)


def test_the_view_is_the_same_for_the_same_outcomes_and_another_for_others() -> None:
    one = {"live": [outcome(10.0)], "backtest": [outcome(9.0)]}

    assert digest_of(one) == digest_of({"backtest": [outcome(9.0)], "live": [outcome(10.0)]})
    assert digest_of(one) != digest_of({"live": [outcome(10.0)], "backtest": [outcome(9.1)]})
    assert set(coverage_of(one)) >= {"coverage/live_start_p90", "error/backtest_start_median_ape"}
    assert (
        "| live, start | 1 | 0.0 % | 100.0 % | 100.0 % (20.7 to 100.0) | 0.0 % |"
        in markdown_note("r", one)
    )
    assert (
        outcomes_csv({"live": [outcome(9.0, model='a "b", c')]})
        .splitlines()[1]
        .startswith('live,"a ""b"", c",start,8,10,12,9')
    )


def test_what_a_fit_was_made_of_is_counted() -> None:
    epochs = tuple(Epoch(n, 1 + n % 2, 2.0, at=100.0 * n) for n in (1, 2, 3))
    lesson = TrainingSummary.of(
        [
            TrainingRun("u", workload(batch_size=32), epochs),
            TrainingRun("v", workload(), epochs[:1]),
        ]
    )

    assert (lesson.runs, lesson.epochs, lesson.widths) == (2, 4, (1, 2))
    assert (lesson.batch_sizes, lesson.samples) == ((32,), ())
    assert (lesson.first_at, lesson.last_at) == (100.0, 300.0)


def test_a_fit_without_past_runs_says_so_by_saying_nothing_of_errors() -> None:
    trained = TrainedModel(ModelFit("a/b", ()), TrainingSummary.of([]))

    assert params_of(trained)["model"] == "a/b"
    assert "first_epoch_at" not in params_of(trained)
    assert "median error" not in description_of(trained)


def test_models_have_names_that_the_registry_takes() -> None:
    assert registry_name("mlp-digits_2.0") == "laxity.mlp-digits_2.0"
    assert registry_name("a/b").startswith("laxity.a-b-")
    assert registry_name("a/b") != registry_name("a:b")


def legend_of(axes: Any) -> set[str]:
    return {text.get_text() for text in axes.get_legend().get_texts()}


def test_the_pictures_hold_what_they_are_given() -> None:
    points = [CalibrationPoint(0.5, 0.4, 10), CalibrationPoint(0.9, 0.95, 10)]
    calibrated = calibration_chart({"live, start": points, "nothing": []}).axes[0]
    scattered = scatter_chart([outcome(9.0), outcome(11.0, model="cnn")]).axes[0]
    curved = curve_chart("mlp", {"mlp": [(1, 1.0, 2.0, 3.0), (4, 0.5, 1.0, 1.5)]}, [(1, 2.0)]).axes[
        0
    ]

    labels = legend_of(calibrated)
    assert labels == {"calibrated", "live, start (n = 10)"}
    assert legend_of(scattered) == {"mlp", "cnn"}
    assert (scattered.get_xscale(), scattered.get_yscale()) == ("log", "log")
    assert [tick.get_text() for tick in curved.get_xticklabels()] == ["1", "4"]
    scatter_chart([]).canvas.draw()
