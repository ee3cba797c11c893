"""Step and epoch times over batch sizes and workers, fitted from a few runs."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone

from laxity_profiler.curve import Curve, Level, paying_widths, peak_width, read
from laxity_profiler.scaling import EpochTime, StepTime, fit_curve, four_points
from laxity_profiler.tables_bench import judge_table, judge_tables, node_gpus, read_table

TRUTH = (0.02, 0.004, 0.01, 0.03, 0.005)


def step_s(batch: int, gpus: int, *, node: int = 8) -> float:
    a, b, c, d, e = TRUTH
    nodes = math.ceil(gpus / node)
    return a + b * batch / gpus + c * math.log2(min(gpus, node)) + d * (nodes > 1) + e * (nodes - 1)


def grid(*, most: int = 64) -> list[tuple[int, int]]:
    widths = [2**k for k in range(int(math.log2(most)) + 1)]
    return [(batch, width) for batch in (32, 64, 128) for width in widths]


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


def test_it_keeps_the_convention_of_scikit_learn() -> None:
    original = StepTime(gpus_per_node=4)

    copy = clone(original).set_params(pull=0.0)

    assert copy is not original
    assert copy.get_params() == {"gpus_per_node": 4, "pull": 0.0}
    points = grid(most=8)
    seconds = [step_s(*point, node=4) for point in points]
    assert copy.fit(points, seconds).score(points, seconds) == pytest.approx(1.0)
    assert not hasattr(original, "coef_")


def test_epoch_times_over_widths_keep_it_too() -> None:
    widths = [[1], [2], [4], [8]]
    seconds = [2.0 + 50.0 / width + 0.5 * width for (width,) in widths]

    fitted = clone(EpochTime()).fit(widths, seconds)

    assert fitted.coef_ == pytest.approx([2.0, 50.0, 0.5])
    assert fitted.predict([[16]]) == pytest.approx([2.0 + 50.0 / 16 + 8.0])


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
    assert all(curve.at(width) > 0.0 for width in range(1, 129))


def test_a_curve_goes_through_what_was_measured_and_is_unsure_away_from_it() -> None:
    levels = [Level(1, 10.0, 0.02, 3, 9), Level(4, 4.0, 0.02, 3, 9)]
    curve = Curve(2.0, 8.0)

    at = {width: read(levels, curve, width) for width in (1, 2, 4, 16)}

    assert (at[1], at[4]) == ((10.0, 0.02), (4.0, 0.02))
    assert 4.0 < at[2][0] < 10.0
    assert at[1][1] < at[2][1] < at[16][1]


def test_more_workers_can_be_slower() -> None:
    levels = [
        Level(width, seconds, 0.01, 1, 5)
        for width, seconds in ((1, 8.0), (2, 5.0), (4, 4.0), (8, 4.5))
    ]

    assert peak_width(levels) == 4
    assert paying_widths([1, 2, 4, 8, 16], [8.0, 5.0, 4.0, 4.5, 3.9]) == (1, 2, 4, 16)


def test_tables_are_judged_on_what_was_not_profiled(tmp_path: Path) -> None:
    write_table(tmp_path / "cnn.csv")
    (tmp_path / "notes.csv").write_text("nothing,of,the,kind\n")

    judged = judge_tables(tmp_path)

    assert [table.table for table in judged.tables] == [f"{tmp_path.name}/cnn"]
    assert len(judged.tables[0].errors) == 21 - 4
    assert judged.median_ape < 0.05
    assert judged.models_under_10pct == 1.0
    assert judged.p90_coverage > 0.9
    assert judged.worst.table.endswith("cnn")


def test_what_was_not_measured_is_no_speed_of_zero(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("global_batch_size,1,2,4\n32,1.5,,nan\n64,0,2.5,0.0")

    assert [(b, g) for b, g, _ in read_table(tmp_path / "t.csv")] == [(32, 1), (64, 2)]


def test_a_folder_without_tables_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no table"):
        judge_tables(tmp_path)
    (tmp_path / "empty.csv").write_text("")
    assert judge_table(tmp_path / "empty.csv") is None


def test_the_size_of_a_node_is_known_by_its_gpu() -> None:
    assert (node_gpus("throughputs_T4"), node_gpus("throughputs_A100"), node_gpus("x")) == (4, 8, 8)


def write_table(path: Path) -> None:
    rows = ["global_batch_size,1,2,4,8,16,32,64"]
    for batch in (32, 64, 128):
        speeds = [repr(1.0 / step_s(batch, 2**k)) for k in range(7)]
        rows.append(",".join([str(batch), *speeds]))
    path.write_text("\n".join(rows))
