"""One odd epoch costs its own excess; three in a row are a lasting change."""

import random
from collections.abc import Sequence
from statistics import fmean

import numpy as np
import pytest

from laxity_profiler.estimate import NO_PROGRESS, Estimate, Progress, Workload
from laxity_profiler.learning.fit_model import fit_model
from laxity_profiler.learning.stretches import Stretch
from laxity_profiler.model.model_fit import WorkloadSetting
from laxity_profiler.model.run_shape import ShapeRuns
from laxity_profiler.predictor.history_predictor import HistoryPredictor

FIRST_RUN = Workload("mlp", 60, user_epoch_s=1.0)
NOTHING_KNOWN = HistoryPredictor()


def after(epoch_s: Sequence[float], predictor: HistoryPredictor = NOTHING_KNOWN) -> Estimate:
    """What is expected of the rest of 60 epochs, of which one is a second, after these."""
    latest = tuple(epoch_s[-20:])
    return predictor.remaining(FIRST_RUN, Progress(len(epoch_s), latest, (1,) * len(latest)), 1)


def runs(seed: int, n: int, *, rare: float = 0.0) -> list[list[float]]:
    """Runs of 60 epochs of about a second, of which this share takes twenty times as long."""
    draw = random.Random(seed)

    def epoch_s() -> float:
        return draw.lognormvariate(0.0, 0.05) * (20.0 if draw.random() < rare else 1.0)

    return [[epoch_s() for _ in range(60)] for _ in range(n)]


def learned(from_runs: Sequence[Sequence[float]]) -> HistoryPredictor:
    stretches = [Stretch(WorkloadSetting(), 1, tuple(run)) for run in from_runs]
    return HistoryPredictor((fit_model("mlp", stretches),))


@pytest.mark.parametrize("known", [False, True], ids=["first run", "known model"])
def test_one_odd_epoch_does_not_move_the_epochs_left_by_its_length(*, known: bool) -> None:
    predictor = learned(runs(1, 5)) if known else NOTHING_KNOWN

    calm, odd = after([1.0] * 20, predictor), after([*[1.0] * 19, 20.0], predictor)

    assert calm.p50_s == pytest.approx(40.0, rel=0.05)
    assert odd.p50_s == pytest.approx(calm.p50_s, rel=0.05)
    assert calm.p90_s + 19.0 <= odd.p90_s < calm.p90_s + 2.2 * 19.0


@pytest.mark.parametrize("first", [[20.0, 1.0], [1.0, 20.0], [1.0, 1.0, 20.0]])
def test_an_odd_epoch_among_the_first_few_is_told_from_the_usual_ones(first: list[float]) -> None:
    assert after(first).p50_s < 2.5 * (60 - len(first))


@pytest.mark.parametrize("known", [False, True], ids=["first run", "known model"])
def test_three_slow_epochs_in_a_row_are_followed(*, known: bool) -> None:
    predictor = learned(runs(1, 5)) if known else NOTHING_KNOWN

    rest = after([*[1.0] * 15, 5.0, 5.0, 5.0], predictor)

    assert rest.p50_s == pytest.approx(5.0 * 42, rel=0.1)


def test_a_p90_is_kept_by_nine_of_ten_runs_with_rare_long_epochs() -> None:
    """At the start and at half; five in a hundred epochs take twenty times as long."""
    kept: dict[int, list[bool]] = {0: [], 30: []}
    for seed in range(100):
        *past, run, other, third = runs(seed, 25, rare=0.05)
        predictor = learned(past)
        for each in (run, other, third):
            for done, hits in kept.items():
                hits.append(sum(each[done:]) <= after(each[:done], predictor).p90_s)

    assert [fmean(hits) for hits in kept.values()] == pytest.approx([0.9, 0.9], abs=0.04)


def test_an_odd_epoch_of_a_past_run_does_not_widen_what_usual_epochs_take() -> None:
    calm = runs(1, 5)
    disturbed = [[*calm[0][:29], 20.0, *calm[0][30:]], *calm[1:]]

    before, after_it = (learned(past).remaining(FIRST_RUN, NO_PROGRESS, 1) for past in (calm, disturbed))  # fmt: skip

    assert after_it.p50_s == pytest.approx(before.p50_s, rel=0.01)
    assert after_it.p90_s == pytest.approx(before.p90_s + 19.0, abs=1.0)


def test_a_shape_is_learned_beside_an_odd_epoch() -> None:
    ratios = np.array([[1.0, 1.0, 1.0, 5.0] * 5] * 3)
    ratios[1, 9] = 20.0

    shape = ShapeRuns(["a", "b", "c"], ratios / ratios.mean(axis=1, keepdims=True)).shape()

    assert shape is not None
    assert shape.ratio(10) == pytest.approx(shape.ratio(9), rel=0.4)
    assert shape.ratio(12) > 3.0 * shape.ratio(10)


def test_a_width_of_odd_epochs_alone_is_answered_from_the_others() -> None:
    progress = Progress(3, (1.0, 1.0, 40.0), (1, 1, 2))

    rest = [learned(runs(1, 5)).remaining(FIRST_RUN, progress, width).p50_s for width in (1, 2)]

    assert rest[0] == pytest.approx(57.0, rel=0.5)
    assert rest[1] < 2 * rest[0]
