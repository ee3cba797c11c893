"""What inference needs: values that cannot be are refused, others are read as the nearest that can."""

from math import inf, nan, sin
from typing import Any

import numpy as np
import pytest

from laxity_scheduler.loans.demand_forecast import (
    SeasonalForecast,
    interpolate_quantile,
)
from laxity_scheduler.model.cluster import DemandError, InferenceDemand
from laxity_scheduler.store.codec import CodecError, from_json, to_json

SLOTS_A_DAY = 144


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        pytest.param("needed_gpus", -1.0, "needed_gpus is -1.0", id="negative"),
        pytest.param("needed_gpus", nan, "needed_gpus is nan", id="not a number"),
        pytest.param("forecast_gpus", -2.0, "forecast_gpus is -2.0", id="negative forecast"),
        pytest.param("forecast_gpus", nan, "forecast_gpus is nan", id="no forecast"),
        pytest.param("horizon_at", nan, "horizon_at is not a number", id="no horizon"),
        pytest.param("reclaim_by", nan, "reclaim_by is not a number", id="no instant"),
    ],
)
def test_demand_that_cannot_be_is_refused(field: str, value: float, words: str) -> None:
    fields: dict[str, Any] = {"needed_gpus": 4.0, field: value}
    with pytest.raises(DemandError, match=words):
        InferenceDemand(**fields)


def test_demand_larger_than_the_fleet_keeps_all_of_it() -> None:
    demand = InferenceDemand(needed_gpus=99.0)
    assert demand.lendable_gpus(16) == 0.0
    assert demand.find_problems(16, 0.0) == [
        "inference needs 99 GPUs and has 16: all are kept for it"
    ]
    assert InferenceDemand(needed_gpus=inf).lendable_gpus(16) == 0.0


def test_reclaim_by_a_moment_in_the_past_means_now() -> None:
    demand = InferenceDemand(8.0, reclaim_by=40.0)
    assert demand.due_at(100.0) == 100.0
    assert demand.find_problems(16, 100.0) == [
        "GPUs were wanted back 60s ago: they are wanted back now"
    ]
    assert demand.find_problems(16, 30.0) == []


def test_demand_in_a_journal_that_cannot_be_is_an_error_of_the_journal() -> None:
    demand = InferenceDemand(3.0, 5.0, 1_800.0)
    assert from_json(InferenceDemand, to_json(demand)) == demand
    with pytest.raises(CodecError, match="needed_gpus is -3"):
        from_json(InferenceDemand, {"needed_gpus": -3.0})


def test_the_quantile_of_a_few_slots_is_numpys_to_the_bit() -> None:
    draw = np.random.default_rng(5)
    for count in (1, 2, 3, 6):
        for share in (0.0, 0.3, 0.5, 0.95, 1.0):
            values = draw.uniform(0.0, 1e3, count).tolist()
            assert interpolate_quantile(values, share) == float(np.quantile(values, share))


def test_forecast_is_of_the_same_slot_of_yesterday_and_last_week() -> None:
    needs = [10.0] * (8 * SLOTS_A_DAY)
    needs[-SLOTS_A_DAY] = 50.0  # yesterday, one slot ahead of the last
    needs[-7 * SLOTS_A_DAY] = 40.0
    method = SeasonalForecast(quantile=1.0, headroom=0.1, around=0)
    assert method.forecast(needs, 1) == pytest.approx(55.0)
    assert method.forecast(needs, 2) == pytest.approx(11.0)
    assert method.peak(needs) == pytest.approx(55.0)


def test_without_history_what_is_needed_now_is_forecast() -> None:
    method = SeasonalForecast(headroom=0.05)
    assert method.peak([]) == 0.0
    assert method.peak([20.0, 30.0]) == pytest.approx(31.5)


def test_a_drop_of_need_is_not_forecast_below_it() -> None:
    needs = [10.0] * (2 * SLOTS_A_DAY) + [80.0]
    assert SeasonalForecast().peak(needs) == 80.0


def test_a_careful_forecast_holds_in_more_slots_than_a_bold_one() -> None:
    draw = np.random.default_rng(7)
    needs = [
        60.0 + 30.0 * sin(6.283 * slot / SLOTS_A_DAY) + draw.normal(0.0, 3.0)
        for slot in range(14 * SLOTS_A_DAY)
    ]
    careful, bold = (
        share_within(needs, method)
        for method in (SeasonalForecast(), SeasonalForecast(quantile=0.5, headroom=0.0))
    )
    assert 0.9 < careful <= 1.0
    assert 0.5 < bold < careful


def share_within(needs: list[float], method: SeasonalForecast) -> float:
    """Of the slots of the second week, those in which the need stayed within the slot's forecast."""
    slots = range(7 * SLOTS_A_DAY, len(needs))
    return sum(needs[slot] <= method.peak(needs[:slot]) for slot in slots) / len(slots)


@pytest.mark.parametrize(
    ("gpus", "until_at"), [(2.0, 900.0), (5.0, 300.0), (6.0, 100.0), (8.0, 100.0), (9.0, 0.0)]
)
def test_gpus_are_idle_until_the_horizon_or_as_long_as_the_outlook_says(
    gpus: float, until_at: float
) -> None:
    outlook = ((300.0, 3.0), (900.0, 6.0))
    demand = InferenceDemand(0.0, horizon_at=100.0, outlook=outlook)
    assert demand.idle_until_at(gpus, 8) == until_at


def test_a_demand_with_an_outlook_is_read_back_as_it_was() -> None:
    demand = InferenceDemand(1.0, outlook=((600.0, 2.0), (inf, 3.5)))
    assert from_json(InferenceDemand, to_json(demand)) == demand
