"""A job's own epochs correct what its model's history says, as much as they are worth."""

from itertools import pairwise

import pytest

from laxity_profiler.estimate import NO_PROGRESS, Progress, Workload
from laxity_profiler.learning.fit_model import fit_model
from laxity_profiler.learning.stretches import Stretch
from laxity_profiler.model.model_fit import WorkloadSetting
from laxity_profiler.predictor.history_predictor import HistoryPredictor


def learned(times: dict[int, list[list[float]]], model: str = "mlp") -> HistoryPredictor:
    found = [
        Stretch(WorkloadSetting(), width, tuple(run))
        for width, runs in times.items()
        for run in runs
    ]
    return HistoryPredictor((fit_model(model, found),))


STEADY = {1: [[10.0, 10.2, 9.8, 10.1]] * 4, 2: [[5.5, 5.6, 5.4, 5.5]] * 4}
JOB = Workload("mlp", 100)


def test_history_is_believed_before_the_first_epoch() -> None:
    rest = learned(STEADY).remaining(JOB, NO_PROGRESS, 2)

    assert rest.source == "history"
    assert rest.p50_s == pytest.approx(550.0, rel=0.03)
    assert rest.n_points == 32


def test_twenty_own_epochs_are_believed_before_history() -> None:
    slow = Progress(50, (7.0,) * 20, (2,) * 20)

    rest = learned(STEADY).remaining(JOB, slow, 2)

    assert rest.source == "observed"
    assert rest.p50_s == pytest.approx(350.0, rel=0.05)


def test_a_slow_job_is_expected_to_be_slow_on_other_widths_too() -> None:
    slow = Progress(50, (7.0,) * 20, (2,) * 20)

    rest = learned(STEADY).remaining(JOB, slow, 1)

    assert rest.p50_s == pytest.approx(50 * 10.0 * 7.0 / 5.5, rel=0.08)
    at_home = learned(STEADY).remaining(JOB, slow, 2)
    assert rest.p90_s / rest.p50_s > at_home.p90_s / at_home.p50_s


def test_each_own_epoch_makes_the_estimate_surer() -> None:
    predictor = learned(STEADY)
    spans = []
    for n in (1, 3, 8, 20):
        rest = predictor.remaining(JOB, Progress(50, (5.5,) * n, (2,) * n), 2)
        spans.append(rest.p90_s / rest.p10_s)

    assert all(later < earlier for earlier, later in pairwise(spans))


def test_after_a_jump_only_the_later_epochs_count() -> None:
    jumped = Progress(50, (5.5,) * 12 + (8.0, 8.1, 7.9, 8.0), (2,) * 16)

    rest = learned(STEADY).remaining(JOB, jumped, 2)

    assert rest.p50_s == pytest.approx(50 * 8.0, rel=0.06)


def test_epochs_at_two_widths_are_both_used() -> None:
    resized = Progress(50, (12.0,) * 8 + (6.6,) * 2, (1,) * 8 + (2,) * 2)

    rest = learned(STEADY).remaining(JOB, resized, 2)

    assert rest.p50_s == pytest.approx(50 * 6.6, rel=0.04)


def test_with_one_known_width_the_others_are_guessed_and_less_sure() -> None:
    predictor = learned({2: [[5.5] * 4] * 4})

    known = predictor.epoch_time(JOB, 2)
    guessed = [predictor.epoch_time(JOB, width) for width in (1, 4, 16)]

    assert [guess.p50_s for guess in guessed] == pytest.approx(
        [5.5 / 0.525, 5.5 * 0.2875 / 0.525, 5.5 * 0.109375 / 0.525], rel=0.02
    )
    spans = [estimate.p90_s / estimate.p50_s for estimate in (known, *guessed)]
    assert spans[0] < spans[1] <= spans[2] < spans[3]


def test_a_width_that_was_slower_stays_slower() -> None:
    falling = {1: [[10.0] * 4], 4: [[4.0] * 4], 8: [[5.0] * 4]}

    predictor = learned(falling)
    times = [predictor.epoch_time(JOB, width).p50_s for width in (1, 2, 4, 6, 8)]

    assert times[0] > times[1] > times[2] < times[3] < times[4]


def test_a_user_estimate_stands_until_epochs_are_seen() -> None:
    job = Workload("new", 10, user_epoch_s=20.0)
    nothing = HistoryPredictor()

    before = nothing.remaining(job, NO_PROGRESS, 1)
    after = nothing.remaining(job, Progress(5, (50.0,) * 4, (1,) * 4), 1)

    assert (before.source, before.p50_s) == ("user", 200.0)
    assert before.p90_s > 1.3 * before.p50_s
    assert after.source == "observed"
    assert after.p50_s == pytest.approx(250.0, rel=0.05)


def test_a_model_that_became_slower_is_expected_slower() -> None:
    runs = [[10.0 + n / 10, 10.1, 9.9] for n in range(12)] + [[15.0, 15.1, 14.9]] * 3

    level = learned({1: runs}).epoch_time(JOB, 1).p50_s

    assert level == pytest.approx(15.0, rel=0.02)
