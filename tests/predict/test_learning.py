"""What was observed becomes predictors: new versions when something was learned, and only then."""

import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from laxity_profiler.estimate import NO_PROGRESS, Estimate, Workload
from laxity_profiler.history.history import History
from laxity_profiler.learning.learner import Learner
from tests.support.runs import (
    LATER_AT,
    START_AT,
    OpenHistory,
    World,
    epoch_line,
    line,
    trained,
    workload,
)

SAID = Estimate(90.0, 100.0, 100.0, 120.0, "history", 9)


def taught(history: History, runs: int = 5) -> Learner:
    world = World(7)
    for n in range(runs):
        trained(history, f"u-{n}", epoch_s=world.run(12))
    return Learner(history)


def test_with_no_history_nothing_is_known_but_what_a_start_may_cost(history: History) -> None:
    predictor = Learner(history).predictor()

    assert predictor.remaining(workload(), NO_PROGRESS, 1).p90_s == math.inf
    assert predictor.resume_cost(workload(), 1).source == "prior"
    assert 1.0 < predictor.resume_cost(workload(), 1).p50_s < 10.0


def test_a_cluster_starts_in_tens_of_seconds(history: History) -> None:
    predictor = Learner(history, priors="cluster").predictor()

    assert 30.0 <= predictor.resume_cost(workload(), 1).p50_s <= 60.0


def test_trained_models_are_known(history: History) -> None:
    learner = taught(history)

    rest = learner.predictor().remaining(workload(epochs=20), NO_PROGRESS, 1)

    assert rest.source == "history"
    assert rest.p50_s == pytest.approx(200.0, rel=0.15)
    assert rest.n_points == 5 * 11


def test_two_epochs_of_a_probe_are_history(history: History) -> None:
    trained(history, "probe", "new", epoch_s=[4.0, 3.0])

    rest = Learner(history).predictor().remaining(workload("new"), NO_PROGRESS, 1)

    assert rest.source == "history"
    assert rest.p50_s == pytest.approx(30.0, rel=0.05)
    assert 1.05 < rest.p90_s / rest.p50_s < 1.6


def test_a_single_warm_up_epoch_is_better_than_nothing(history: History) -> None:
    trained(history, "probe", "new", epoch_s=[4.0])

    rest = Learner(history).predictor().remaining(workload("new"), NO_PROGRESS, 1)

    assert rest.source == "history"
    assert rest.p90_s / rest.p50_s > 1.3


def test_a_slow_first_epoch_does_not_outweigh_the_declared_estimate(history: History) -> None:
    estimated = replace(workload("new"), user_epoch_s=1.0)
    before = Learner(history).predictor().remaining(estimated, NO_PROGRESS, 1)
    trained(history, "probe", "new", epoch_s=[15.0])

    rest = Learner(history).predictor().remaining(estimated, NO_PROGRESS, 1)

    assert rest == before


def test_runs_of_one_epoch_predict_the_next_such_run(history: History) -> None:
    for number, seconds in enumerate([60.0, 66.0, 63.0]):
        trained(history, f"run-{number}", "new", epoch_s=[seconds])

    rest = Learner(history).predictor().remaining(Workload("new", 1), NO_PROGRESS, 1)

    assert rest.p50_s == pytest.approx(63.0, rel=0.01)
    assert 1.04 < rest.p90_s / rest.p50_s < 1.15


def test_the_same_predictor_is_given_while_nothing_is_new(history: History) -> None:
    learner = taught(history)

    assert learner.predictor() is learner.predictor()


def test_what_is_learned_makes_a_new_version_and_leaves_the_old_one(history: History) -> None:
    learner = taught(history)
    before = learner.predictor()
    said = before.remaining(workload(), NO_PROGRESS, 1)

    trained(history, "late", epoch_s=[30.0] * 12)
    after = learner.predictor()

    assert after.version != before.version
    assert before.remaining(workload(), NO_PROGRESS, 1) == said
    assert after.remaining(workload(), NO_PROGRESS, 1).p90_s > said.p90_s


def test_a_long_training_makes_few_versions(history: History) -> None:
    learner = Learner(history)
    versions = set()

    for n in range(1, 301):
        history.ingest("u", "default/u", workload(epochs=300), [epoch_line(n, n)])
        versions.add(learner.predictor().version)

    assert 10 < len(versions) < 60


def test_another_process_learns_the_same_version(
    tmp_path: Path, history: History, open_history: OpenHistory
) -> None:
    learner = taught(history)

    assert Learner(open_history(tmp_path)).predictor() == learner.predictor()
    assert history.rejections() == []


def test_observed_starts_and_stops_replace_the_priors(history: History) -> None:
    learner = taught(history)
    before = learner.predictor().resume_cost(workload(), 1)
    for n in range(6):
        at = START_AT + n
        history.observe_stop("u-1", workload(), kind="resume", workers=1, seconds=9.0, at=at)
        history.observe_stop("u-1", workload(), kind="suspend", workers=1, seconds=3.0, at=at)
        saved = line(100 + n, "saved", epoch=1, save_s=1.0, bytes=500)
        history.ingest("u-9", "default/u-9", workload(), [saved], received_at=LATER_AT)

    predictor = learner.predictor()

    assert before.p50_s < 5.0
    assert predictor.resume_cost(workload(), 1).p50_s == pytest.approx(9.0, rel=0.1)
    assert predictor.suspend_cost(workload(), 1).p50_s == pytest.approx(4.0, rel=0.1)
    assert predictor.suspend_cost(workload(), 1).source == "history"


def test_the_warm_up_of_first_epochs_is_part_of_a_start(history: History) -> None:
    for n in range(6):
        trained(history, f"u-{n}", epoch_s=[10.0] + [2.0] * 5)
    learner = Learner(history)

    cost = learner.predictor().resume_cost(workload(), 1)

    assert cost.p50_s == pytest.approx(2.5 + 8.0, rel=0.1)


def test_a_stop_that_cannot_be_is_set_aside(history: History) -> None:
    for seconds in (math.nan, -1.0, 1e9):
        history.observe_stop("u", workload(), kind="resume", workers=1, seconds=seconds, at=1.0)

    assert history.stops() == []
    assert len(history.rejections("u")) == 3


def test_live_predictions_are_held_against_what_came(
    tmp_path: Path, history: History, open_history: OpenHistory
) -> None:
    learner = taught(history)
    for n, took_s in enumerate((80.0, 95.0, 110.0, 150.0)):
        uid = f"live-{n}"
        learner.note_prediction(
            uid, workload(), stage="start", at=START_AT, estimate=SAID, version="v"
        )
        learner.observe_finish(uid, at=START_AT + took_s + 30.0, idle_s=30.0)
        learner.observe_finish(uid, at=START_AT + 1e6)

    (start,) = learner.coverage()

    assert (start.n, start.p10, start.p50, start.p90) == (4, 0.25, 0.5, 0.75)
    assert Learner(open_history(tmp_path)).coverage() == (start,)


def test_predictions_of_another_course_are_dropped(history: History) -> None:
    learner = taught(history)
    learner.note_prediction("a", workload(), stage="start", at=1.0, estimate=SAID, version="v")

    learner.drop_predictions("a")
    learner.observe_finish("a", at=500.0)

    assert learner.coverage() == ()


def test_live_misses_widen_the_next_p90(history: History) -> None:
    learner = taught(history, runs=60)
    before = learner.predictor().remaining(workload(), NO_PROGRESS, 1)

    for n in range(40):
        learner.note_prediction(
            f"m-{n}", workload(), stage="start", at=START_AT, estimate=SAID, version="v"
        )
        learner.observe_finish(f"m-{n}", at=START_AT + 500.0)
    for n in range(7):
        trained(history, f"again-{n}", epoch_s=World(n).run(12))
    after = learner.predictor().remaining(workload(), NO_PROGRESS, 1)

    assert after.p90_s / after.p50_s > before.p90_s / before.p50_s


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("estimate", {"scipy", "sklearn", "sqlmodel", "sqlalchemy", "mlflow", "pandas"}),
        ("predictor.history_predictor", {"scipy", "sklearn", "mlflow", "pandas", "sqlalchemy"}),
    ],
)
def test_values_and_predictors_need_no_database_and_nothing_heavy(
    module: str, heavy: set[str]
) -> None:
    said = f"import sys, laxity_profiler.{module}; print(*sys.modules)"
    shown = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)
    assert "numpy" in shown.stdout.split()
    assert not heavy & set(shown.stdout.split())


def test_a_relative_lends_its_times_with_a_wide_error(history: History) -> None:
    for n, seconds in enumerate((10.0, 14.0, 12.0)):
        trained(history, f"u-{n}", f"resnet{n}", epoch_s=[seconds] * 8)
    predictor = Learner(history).predictor()

    borrowed = predictor.remaining(Workload("resnet-wide", 10), NO_PROGRESS, 1)
    foreign = predictor.remaining(Workload("bert", 10), NO_PROGRESS, 1)

    assert borrowed.source == "family"
    assert borrowed.p50_s == pytest.approx(120.0)
    assert borrowed.p90_s > 1.7 * borrowed.p50_s
    assert foreign.p90_s == math.inf


def test_a_relative_is_scaled_by_the_work_of_an_epoch(history: History) -> None:
    trained(history, "u", "mlp-small", epoch_s=[10.0] * 8, samples=1_000, parameters=100)
    predictor = Learner(history).predictor()

    asked = Workload("mlp-large", 1, samples=2_000, parameters=300)

    assert predictor.remaining(asked, NO_PROGRESS, 1).p50_s == pytest.approx(60.0)


def test_a_setting_never_seen_is_scaled_by_its_samples(history: History) -> None:
    for n in range(4):
        trained(history, f"u-{n}", epoch_s=[10.0] * 8, samples=1_000, batch_size=32)
    predictor = Learner(history).predictor()

    seen = predictor.epoch_time(Workload("mlp", 1, samples=1_000, batch_size=32), 1)
    larger = predictor.epoch_time(Workload("mlp", 1, samples=3_000, batch_size=32), 1)

    assert larger.p50_s == pytest.approx(3 * seen.p50_s)
    assert larger.p90_s / larger.p50_s > seen.p90_s / seen.p50_s


def test_four_settings_are_fitted_over_batch_sizes(history: History) -> None:
    for batch in (32, 128):
        for width in (1, 4):
            seconds = 9_600 / batch * (0.01 + 0.002 * batch / width)
            uid = f"{batch}-{width}"
            epochs = [seconds] * 8
            trained(history, uid, epoch_s=epochs, width=width, samples=9_600, batch_size=batch)
    predictor = Learner(history).predictor()

    between = predictor.epoch_time(Workload("mlp", 1, samples=9_600, batch_size=64), 2)

    assert between.source == "profile"
    assert between.p50_s == pytest.approx(150 * (0.01 + 0.002 * 32), rel=0.03)
