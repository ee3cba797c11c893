"""What the net sees, and how GPUs are dealt out by its scores."""

from dataclasses import replace

import numpy as np
import pytest

from laxity_scheduler.learned.allocation_loop import Take, allocate
from laxity_scheduler.learned.job_features import (
    FEATURES,
    FREE_LEVELS,
    JobNumbers,
    describe_steps,
    free_level,
    stop_rows,
)
from laxity_scheduler.learned.scoring_net import ScoringNet, masked_softmax

SHORT = JobNumbers((1, 2, 4), (4_000.0, 2_200.0, 1_400.0))
LONG = JobNumbers((1, 2, 4), (40_000.0, 22_000.0, 14_000.0))


def linear(bias: float = 0.0, **weights: float) -> ScoringNet:
    """A net of one layer that weighs these features."""
    column = np.array([[weights.get(name, 0.0)] for name in FEATURES])
    return ScoringNet((column,), (np.array([bias]),))


def room(gpus: int, jobs: list[JobNumbers]) -> Take:
    left = [gpus]

    def take(number: int, before: int, after: int) -> bool:
        more = (after - before) * jobs[number].gpus_per_worker
        if more > left[0]:
            return False
        left[0] -= more
        return True

    return take


def widths(net: ScoringNet, jobs: list[JobNumbers], gpus: int) -> list[int]:
    return allocate(net, jobs, room(gpus, jobs), free_gpus=gpus, cluster_gpus=gpus)


def test_everybody_gets_its_least_width_before_anybody_gets_more() -> None:
    assert widths(linear(stop=-9.0), [LONG, SHORT, SHORT], 4) == [2, 1, 1]
    assert widths(linear(stop=-9.0), [LONG, SHORT, SHORT], 2) == [1, 1, 0]


def test_the_best_scored_job_gets_its_next_width_first() -> None:
    assert widths(linear(rest_least=1.0, stop=-9.0), [SHORT, LONG], 5) == [1, 4]
    assert widths(linear(rest_least=-1.0, stop=-9.0), [SHORT, LONG], 5) == [4, 1]


def test_a_step_that_does_not_fit_leaves_its_gpus_to_others() -> None:
    big = replace(LONG, gpus_per_worker=4)
    assert widths(linear(rest_least=1.0, stop=-9.0), [big, SHORT], 7) == [1, 2]


def test_a_net_that_scores_stopping_higher_leaves_gpus_idle() -> None:
    assert widths(linear(stop=9.0), [LONG, SHORT], 8) == [1, 1]


def test_stopping_sees_how_many_gpus_are_free() -> None:
    """With weight on the free share, it stops as long as much is free; against it, once little is."""
    thrifty = linear(stop=0.5, free=-1.0)  # jobs score -6/8 as dealt out; stopping 0.5 - free / 8
    assert widths(thrifty, [SHORT, LONG], 8) == [1, 1]
    until_half = linear(bias=0.0, stop=0.0, free=-1.0)
    assert widths(until_half, [SHORT, LONG], 8) == [2, 1]


def test_all_numbers_are_bounded_and_finite_whatever_jobs_are_like() -> None:
    odd = [
        JobNumbers((1, 2), (float("inf"), float("inf"))),
        JobNumbers((1, 2), (float("nan"), 3.0), left=0.0),
        JobNumbers((1, 512), (0.0, 0.0), gpus_per_worker=8, workers=1, spare_s=-1e9),
        JobNumbers((3,), (1e12,), spare_s=0.0),
    ]
    steps = describe_steps(odd, cluster_gpus=0, free_gpus=0)
    assert steps.features.shape == (3, len(FEATURES))
    assert np.isfinite(steps.features).all()
    assert np.abs(steps.features).max() <= 1.0


def test_a_deadline_that_is_near_is_seen_as_little_slack() -> None:
    slack = FEATURES.index("slack")
    far, near, none = (
        describe_steps([replace(SHORT, spare_s=spare)], cluster_gpus=8, free_gpus=7).features
        for spare in (7_000.0, 4_500.0, float("inf"))
    )
    assert near[0, slack] == pytest.approx(500.0 / 4_000.0)
    assert near[0, slack] < far[0, slack] < none[0, slack] == 1.0


def test_rows_do_not_depend_on_a_models_name_or_the_order_of_jobs() -> None:
    first = describe_steps([SHORT, LONG], cluster_gpus=8, free_gpus=6).features
    second = describe_steps([LONG, SHORT], cluster_gpus=8, free_gpus=6).features
    np.testing.assert_allclose(first, np.vstack([second[2:], second[:2]]), atol=1e-12)


def test_stopping_has_a_row_for_each_share_of_free_gpus() -> None:
    rows = stop_rows(describe_steps([SHORT], cluster_gpus=8, free_gpus=7))
    assert rows.shape == (FREE_LEVELS + 1, len(FEATURES))
    assert rows[free_level(4, 8), FEATURES.index("free")] == 0.5
    assert free_level(9, 8) == FREE_LEVELS


def test_what_is_masked_has_no_probability() -> None:
    shares = masked_softmax(np.array([1e4, 0.0, 0.0]), np.array([False, True, True]))
    assert shares.tolist() == [0.0, 0.5, 0.5]
    with pytest.raises(ValueError, match="nothing is allowed"):
        masked_softmax(np.zeros(2), np.zeros(2, dtype=np.bool_))
