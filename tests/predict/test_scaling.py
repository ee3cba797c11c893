"""Step and epoch times over batch sizes and workers, fitted from a few runs."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laxity_profiler.model.epoch_curve import (
    Level,
    WidthCurve,
    interpolate_curve,
)
from laxity_profiler.model.scaling import StepTime, fit_curve, four_points
from tests.support.throughput import TRUTH, grid, step_s


def test_the_terms_are_found_again() -> None:
    points = grid()
    fitted = StepTime(pull=0.0).fit(points, [step_s(*point) for point in points])

    assert fitted.coef_ == pytest.approx(TRUTH, rel=1e-6)
    assert fitted.predict([(96, 16)]) == pytest.approx([step_s(96, 16)])


def test_four_runs_inside_a_node_predict_all_others() -> None:
    points = grid(most=8)
    chosen = four_points(*zip(*points, strict=True))
    fitted = StepTime().fit(chosen, [step_s(*point) for point in chosen])

    errors = fitted.predict(points) / [step_s(*point) for point in points] - 1.0

    assert set(chosen) == {(32, 1), (128, 1), (32, 8), (128, 8)}
    assert np.abs(errors).max() < 0.02


@given(
    st.sets(st.sampled_from([2**k for k in range(4, 12)]), min_size=1),
    st.sets(st.sampled_from([1, 2, 4, 8, 16, 32, 64]), min_size=1),
)
def test_the_chosen_points_part_all_terms_that_can_be_parted(
    batches: set[int], widths: set[int]
) -> None:
    chosen = four_points(sorted(batches), sorted(widths))

    assert len(chosen) == len(set(chosen)) <= 4
    assert {batch for batch, _ in chosen} <= batches
    assert {width for _, width in chosen} <= widths
    if len(batches) > 1 and 1 in widths and {8, 64} <= widths:
        batch, gpus = np.array(chosen, dtype=float).T
        terms = np.column_stack([np.ones(4), batch / gpus, np.log2(gpus), gpus > 8])
        assert np.linalg.matrix_rank(terms) == 4


def test_what_was_profiled_is_predicted_as_it_was_measured() -> None:
    points = [(64, 1), (64, 4), (64, 16), (64, 64)]
    erratic = [0.021, 0.018, 0.031, 0.044]

    bent = StepTime().fit(points, erratic)

    assert bent.predict(points) == pytest.approx(erratic)
    assert StepTime(bend=False).fit(points, erratic).predict(points) != pytest.approx(erratic)


def test_a_node_that_was_never_left_makes_wider_runs_unsure() -> None:
    inside = [(32, 1), (128, 1), (32, 8), (128, 8)]
    across = [(32, 1), (128, 1), (128, 8), (128, 64)]

    never, once = (
        StepTime().fit(points, [step_s(*point) for point in points]).relative_error([(128, 32)])
        for points in (inside, across)
    )

    assert never[0] > 0.8
    assert once[0] < 0.2


@pytest.mark.parametrize(
    ("batches", "widths", "chosen"),
    [
        pytest.param(
            [64], [1, 2, 4, 8, 16], {(64, 1), (64, 2), (64, 8), (64, 16)}, id="one batch size"
        ),
        pytest.param(
            [16, 32, 64, 128, 512], [2], {(16, 2), (64, 2), (128, 2), (512, 2)}, id="one width"
        ),
        pytest.param([32, 64], [1, 3, 6], {(32, 1), (64, 1), (32, 6), (64, 6)}, id="odd widths"),
        pytest.param(
            [32, 64], [1, 16], {(32, 1), (64, 1), (64, 16), (32, 16)}, id="nothing between"
        ),
        pytest.param([32], [4], {(32, 4)}, id="one configuration"),
    ],
)
def test_four_runs_are_chosen_where_less_can_be_chosen_from(
    batches: list[int], widths: list[int], chosen: set[tuple[int, int]]
) -> None:
    assert set(four_points(batches, widths)) == chosen


def test_the_nearest_batch_of_the_same_width_stands_in() -> None:
    has = [point for point in grid(most=8) if point != (32, 8)]

    chosen = four_points(*zip(*grid(most=8), strict=True), has=has)

    assert set(chosen) == {(32, 1), (128, 1), (64, 8), (128, 8)}


@pytest.mark.parametrize(
    ("x", "y"),
    [
        pytest.param([[32.0, 1.0]], [0.0], id="no time"),
        pytest.param([[32.0, 1.0]], [math.nan], id="no number"),
        pytest.param([[32.0, 0.0]], [1.0], id="no workers"),
        pytest.param([[32.0]], [1.0], id="a column is missing"),
    ],
)
def test_points_that_cannot_be_are_refused(x: list[list[float]], y: list[float]) -> None:
    with pytest.raises(ValueError, match=r"positive|shape"):
        StepTime().fit(x, y)


@given(st.lists(st.tuples(st.integers(1, 64), st.floats(0.1, 1e4)), min_size=1, max_size=6))
def test_a_curve_is_positive_everywhere(points: list[tuple[int, float]]) -> None:
    curve = fit_curve([width for width, _ in points], [seconds for _, seconds in points])

    assert min(curve.alpha, curve.beta, curve.gamma) >= 0.0
    assert all(curve.epoch_s(width) > 0.0 for width in range(1, 129))


def test_a_curve_goes_through_what_was_measured_and_is_unsure_away_from_it() -> None:
    levels = [Level(1, 10.0, 0.02, 3, 9), Level(4, 4.0, 0.02, 3, 9)]
    curve = WidthCurve(2.0, 8.0)

    at = {width: interpolate_curve(levels, curve, width) for width in (1, 2, 4, 16)}

    assert (at[1], at[4]) == ((10.0, 0.02), (4.0, 0.02))
    assert 4.0 < at[2][0] < 10.0
    assert at[1][1] < at[2][1] < at[16][1]
