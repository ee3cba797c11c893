"""GPUs over time: slots, shares that start once and only grow, and finishes to the second."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laxity_profiler.estimate import Ask, Estimates
from laxity_scheduler.frame.curve import Quantile
from laxity_scheduler.frame.remaining import Forecasts
from laxity_scheduler.model.job import Job
from laxity_scheduler.promising.planner import Planner
from laxity_scheduler.promising.reservations import Reservations
from laxity_scheduler.promising.reserve import (
    SLOTS,
    Claim,
    Profile,
    Share,
    slot_edges,
)
from tests.support.builders import MINUTE_EPOCHS, Curve, cluster, job, promised


@given(horizon_s=st.floats(1.0, 1e9))
def test_slots_grow_by_a_constant_ratio_up_to_the_horizon(horizon_s: float) -> None:
    edges = slot_edges(horizon_s)
    widths = [after - before for before, after in pairwise(edges[: SLOTS + 1])]
    assert len(edges) == SLOTS + 2
    assert edges[0] == 0.0
    assert edges[SLOTS] == pytest.approx(horizon_s, rel=1e-3)
    assert widths[0] <= 60.0 + 1e-6
    assert all(after >= before - 1e-6 * before for before, after in pairwise(widths))


def test_a_touched_slot_is_taken_whole() -> None:
    profile = Profile.of(slot_edges(float(SLOTS)), 4)
    profile.reserve(Share(((0.5, 3),), 2.1), lambda workers: np.array([float(workers)]))
    assert profile.free[:4].tolist() == [1.0, 1.0, 1.0, 4.0]


def test_what_is_busy_is_free_afterwards() -> None:
    profile = Profile.of(slot_edges(float(SLOTS)), 4)
    profile.occupy([2.0, 3.5, float("inf")], [1, 1, 1])
    assert profile.free[:5].tolist() == [1.0, 1.0, 2.0, 2.0, 3.0]
    assert profile.free[-1] == 3.0


def planner(one: Job, predictor: Curve = MINUTE_EPOCHS, *, grows: bool = True) -> Planner:
    state = cluster(gpus=8, jobs=[one])
    return Planner(Forecasts(state, predictor), (), grows)


def test_a_share_waits_until_there_is_room_then_only_grows() -> None:
    one = job("a", workers=(1, 2, 4))
    profile = Profile.of(slot_edges(2560.0), 4)
    profile.add(0.0, 100.0, -4.0)
    profile.add(100.0, 200.0, -3.0)
    share = planner(one).least(Claim(one, 350.0), profile)
    assert share is not None
    assert share.steps == ((0.0, 0), (100.0, 1), (200.0, 4))
    assert share.finish_s == 100.0 + 2 * 60.0 + 8 * 15.0


def test_where_jobs_cannot_grow_a_share_has_one_width() -> None:
    one = job("a", workers=(1, 2, 4))
    profile = Profile.of(slot_edges(2560.0), 4)
    profile.add(0.0, 200.0, -3.0)
    share = planner(one, grows=False).least(Claim(one, 360.0), profile)
    assert share is not None
    assert share.steps == ((0.0, 0), (200.0, 4))


def test_a_share_ends_before_gpus_are_needed_by_others() -> None:
    one = job("a", epochs=2)
    profile = Profile.of(slot_edges(2560.0), 1)
    profile.add(130.0, 2560.0, -1.0)
    found = planner(one)
    assert found.least(Claim(one, 1000.0), profile) is not None
    profile.add(110.0, 130.0, -1.0)
    assert found.least(Claim(one, 1000.0), profile) is None


def test_growth_takes_effect_at_the_first_epochs_end_after_the_new_workers_are_up() -> None:
    """Asked at 70 s, up at 90 s: they join at 120 s; re-forming takes 5 s; then 30 s an epoch."""
    one = job("a", epochs=4, running=1, workers=(1, 2))
    predictor = Curve(start_s=20.0, stop_s=5.0)
    forecasts = Forecasts(cluster(jobs=[one]), predictor)
    assert forecasts.finish_s(one, ((0.0, 1), (70.0, 2))) == 120.0 + 5.0 + 2 * 30.0


def test_a_job_that_makes_way_pays_a_restart_and_no_epoch() -> None:
    one = job("a", epochs=4, running=1)
    forecasts = Forecasts(cluster(jobs=[one]), Curve(start_s=20.0, stop_s=5.0))
    assert forecasts.finish_s(one, ((0.0, 0), (300.0, 1))) == 300.0 + 20.0 + 3 * 60.0


@given(now=st.floats(0.0, 59.0), done=st.integers(0, 9))
def test_a_finish_does_not_move_while_an_epoch_goes_as_predicted(now: float, done: int) -> None:
    one = job("a", running=1, done=done)
    forecasts = Forecasts(cluster(jobs=[one], now=now), Curve(spread=0.3))
    halfway_to_p90_s = max(60.0, (now + 78.0) / 2)  # the mean of an epoch that has lasted so long
    rest_s = (9 - done) * 60.0
    assert now + forecasts.rest_s(one, 1, "mean") == pytest.approx(rest_s + halfway_to_p90_s)
    assert now + forecasts.rest_s(one, 1, "p90") == pytest.approx((10 - done) * 78.0)


@pytest.mark.parametrize("quantile", ["p50", "mean", "p90"])
def test_an_overdue_epoch_takes_longer_by_what_it_is_overdue(quantile: Quantile) -> None:
    one = job("a", running=1, done=9)

    rest_s = [
        Forecasts(cluster(jobs=[one], now=now), MINUTE_EPOCHS).rest_s(one, 1, quantile)
        for now in (59.9, 60.0, 90.0, 500.0)
    ]

    assert rest_s[0] > 0.0
    assert rest_s[1] < rest_s[2] < rest_s[3]
    assert rest_s[3] >= 500.0 - 60.0


def test_the_p90_of_what_is_overdue_is_later_than_its_p50() -> None:
    one = job("a", running=1, done=9)
    for now in (30.0, 59.0, 60.0, 65.0, 77.99, 78.0, 90.0, 500.0):
        forecasts = Forecasts(cluster(jobs=[one], now=now), Curve(spread=0.3))
        p50_s, p90_s = (forecasts.rest_s(one, 1, quantile) for quantile in ("p50", "p90"))
        assert 0.0 < p50_s <= p90_s


@pytest.mark.parametrize("quantile", ["p50", "mean", "p90"])
def test_a_run_is_not_over_before_its_finishing_is(quantile: Quantile) -> None:
    """Twenty seconds of export: known before, expected while they last, later once overdue."""
    predictor = Curve(finishing_s=20.0)
    one, running = job("a", running=1, done=10), job("b", running=1, done=9)

    left_s = [
        Forecasts(cluster(jobs=[one], now=now), predictor).rest_s(one, 1, quantile)
        for now in (0.0, 15.0, 19.99, 30.0)
    ]
    forecasts = Forecasts(cluster(jobs=[running]), predictor)

    assert left_s[:2] == [20.0, 5.0]
    assert left_s[2] > 0.0
    assert left_s[3] >= 10.0
    assert forecasts.rest_s(running, 1, quantile) == 80.0
    assert forecasts.boundary_s(running) == 60.0
    assert forecasts.time_to_free_s(running) == 80.0


def test_a_start_that_is_overdue_is_not_taken_for_done() -> None:
    one = replace(job("a", running=1), formed=0, epoch_started_at=None, resumed_at=0.0)
    for now, left_s in ((0.0, 20.0), (15.0, 5.0), (60.0, 120.2)):
        forecasts = Forecasts(cluster(jobs=[one], now=now), Curve(start_s=20.0))
        assert forecasts.rest_s(one, 1) == pytest.approx(600.0 + left_s)


def test_rows_are_asked_for_once() -> None:
    asked: list[int] = []

    class Counting(Curve):
        def table(self, asks: Sequence[Ask]) -> Estimates:
            asked.append(len(asks))
            return super().table(asks)

    state = cluster(jobs=[job("a", workers=(1, 2)), job("b", workers=(1, 2)), job("c", done=1)])
    predictor = Counting()
    for _ in range(3):
        Forecasts(state, predictor)
    assert asked == [3], "a and b share two rows, c has one"


def test_a_job_that_must_grow_claims_what_it_grows_to() -> None:
    """Two GPUs: one promised job needs both soon, so another cannot run beside it."""
    grows = promised("grows", 700.0, epochs=20, running=1, workers=(1, 2))
    waits = promised("waits", 5000.0)
    predictor = MINUTE_EPOCHS
    alone = cluster(gpus=2, jobs=[grows])
    both = cluster(gpus=2, jobs=[grows, waits])
    assert Reservations(alone, Forecasts(alone, predictor)).roomy
    planned = Reservations(both, Forecasts(both, predictor))
    assert not planned.roomy
    assert planned.late == frozenset()
    assert planned.shares["team/waits"].starts_s >= 600.0
