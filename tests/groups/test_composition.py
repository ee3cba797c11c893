"""The time of a whole group, and the share of it that each step has."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laxity_scheduler.groups.composition import Z90, StepPart, compose, divide_time, guilty_step

Rng = np.random.Generator


def random_series_parallel(rng: Rng, steps: int) -> list[StepPart]:
    """Steps in series and side by side, each with a time and a spread of its own."""
    parts: list[StepPart] = []
    frontier: tuple[str, ...] = ()
    while len(parts) < steps:
        branches = int(rng.integers(1, 4))
        ends: list[str] = []
        for _ in range(branches):
            after = frontier
            for _ in range(int(rng.integers(1, 3))):
                parts.append(random_part(rng, f"s{len(parts)}", after))
                after = (parts[-1].name,)
            ends += after
        frontier = tuple(ends)
    return parts


def random_part(rng: Rng, name: str, after: tuple[str, ...]) -> StepPart:
    p50_s = float(rng.lognormal(7.0, 1.0))
    count = int(rng.integers(1, 5))
    at_once = int(rng.integers(1, count + 1))
    return StepPart(name, p50_s, p50_s * (1.0 + float(rng.exponential(0.3))), after, count, at_once)


def true_finish_s(rng: Rng, parts: Sequence[StepPart]) -> float:
    """One course of the group, job by job: a freed place is taken by the next job at once."""
    ends: dict[str, float] = {}
    for part in parts:
        free_at = [max((ends[name] for name in part.after), default=0.0)] * part.at_once
        spread = np.log(part.p90_s / part.p50_s) / Z90
        for _ in range(part.count):
            took_s = part.p50_s * float(np.exp(spread * rng.standard_normal()))
            free_at[free_at.index(min(free_at))] += took_s
        ends[part.name] = max(free_at)
    return max(ends.values())


def test_p90_of_the_whole_is_kept_by_ninety_percent_of_random_graphs() -> None:
    rng = np.random.default_rng(7)
    kept = []
    for _ in range(1000):
        parts = random_series_parallel(rng, int(rng.integers(2, 8)))
        sides = [replace(part, at_once=part.count) for part in parts]
        p90_s = compose(sides).quantile_s(0.9)
        kept += [true_finish_s(rng, sides) <= p90_s for _ in range(10)]
    assert np.mean(kept) == pytest.approx(0.90, abs=0.03)


def test_rounds_of_jobs_are_never_promised_too_early() -> None:
    rng = np.random.default_rng(8)
    kept = []
    for _ in range(300):
        parts = random_series_parallel(rng, 4)
        p90_s = compose(parts).quantile_s(0.9)
        kept += [true_finish_s(rng, parts) <= p90_s for _ in range(10)]
    assert np.mean(kept) >= 0.87


def test_very_many_rounds_take_as_long_as_if_all_were_drawn() -> None:
    drawn, many = (compose([StepPart("a", 60.0, 90.0, (), rounds, 1)]) for rounds in (64, 6400))
    assert many.quantile_s(0.5) == pytest.approx(100 * drawn.quantile_s(0.5), rel=0.01)
    spread, wider = (one.quantile_s(0.9) - one.quantile_s(0.5) for one in (drawn, many))
    assert wider == pytest.approx(10 * spread, rel=0.1)


def test_p90_of_a_sum_is_less_than_the_sum_of_p90s() -> None:
    names = [f"s{number}" for number in range(10)]
    parts = [
        StepPart(name, 100.0, 150.0, tuple(names[:place][-1:])) for place, name in enumerate(names)
    ]
    assert 1000.0 < compose(parts).quantile_s(0.9) < 1300.0


def test_same_parts_give_the_same_numbers() -> None:
    parts = random_series_parallel(np.random.default_rng(1), 6)
    assert compose(parts).quantile_s(0.9) == compose(list(parts)).quantile_s(0.9)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), steps=st.integers(1, 8), spare=st.floats(1.0, 4.0))
def test_shares_follow_the_order_of_steps_and_leave_each_its_time(
    seed: int, steps: int, spare: float
) -> None:
    parts = random_series_parallel(np.random.default_rng(seed), steps)
    course = compose(parts)
    critical_s = sum_of_critical(parts, course.mean_takes_s)
    left_s = spare * critical_s
    shares = divide_time(course, left_s)
    assert max(share.due_s for share in shares.values()) == pytest.approx(left_s)
    for part in parts:
        mine = shares[part.name]
        before = max((shares[name].due_s for name in part.after), default=0.0)
        assert mine.due_s <= left_s * (1.0 + 1e-9)
        assert mine.due_s > before or mine.takes_s == 0.0
        if spare >= 2.0:
            assert mine.due_s >= mine.takes_s * (1.0 - 1e-9)


def sum_of_critical(parts: Sequence[StepPart], takes: dict[str, float]) -> float:
    to_end: dict[str, float] = {}
    for part in parts:
        to_end[part.name] = takes[part.name] + max((to_end[p] for p in part.after), default=0.0)
    return max(to_end.values())


def test_late_step_takes_slack_of_later_ones() -> None:
    planned = [StepPart("a", 100.0, 110.0), StepPart("b", 100.0, 110.0, ("a",))]
    late = [StepPart("a", 180.0, 190.0), StepPart("b", 100.0, 110.0, ("a",))]
    on_plan, behind = (divide_time(compose(parts), 300.0) for parts in (planned, late))
    assert on_plan["a"].due_s == pytest.approx(150.0, rel=0.01)
    assert behind["a"].due_s == pytest.approx(193.0, rel=0.02)
    assert behind["b"].due_s == pytest.approx(300.0)


def test_guilty_step_is_the_one_that_shortens_the_rest_most() -> None:
    parts = [
        StepPart("pretrain", 100.0, 120.0),
        StepPart("long", 900.0, 950.0, ("pretrain",)),
        StepPart("beside", 890.0, 940.0, ("pretrain",)),
        StepPart("evaluate", 300.0, 310.0, ("long", "beside")),
    ]
    assert guilty_step(compose(parts)) == "evaluate"
    assert guilty_step(compose(parts[:2])) == "long"


def test_latest_end_of_a_step_leaves_the_later_ones_their_time() -> None:
    nearly_done = [
        StepPart("a", 0.0, 0.0, count=0, running=((1.0, 1.1),)),
        StepPart("b", 100.0, 110.0, ("a",)),
    ]
    share = divide_time(compose(nearly_done), 250.0)["a"]
    assert share.due_s < 10.0
    assert share.latest_s == pytest.approx(150.0, rel=0.02)


def test_jobs_that_run_end_with_the_last_of_them() -> None:
    part = StepPart("a", 0.0, 0.0, count=0, running=((10.0, 11.0), (500.0, 510.0)))
    assert compose([part]).quantile_s(0.9) == pytest.approx(510.0, rel=0.01)
