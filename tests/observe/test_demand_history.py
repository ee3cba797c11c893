"""What inference needed slot by slot, and what it may need soon."""

import pytest

from laxity_k8s.observe.demand_history import DemandHistory
from laxity_scheduler.loans.demand_forecast import DAY_S

SLOT_S = 600.0
BEGAN = 1_000 * SLOT_S


def after(*needs: tuple[float, float]) -> DemandHistory:
    """(GPUs, seconds after the first slot began) of each change."""
    history = DemandHistory()
    for gpus, at_s in needs:
        history.add(gpus, BEGAN + at_s)
    return history


def test_without_a_day_of_history_a_quarter_more_and_one_more_pod_are_kept_free() -> None:
    assert after((0.0, 0.0)).forecast_gpus(2) == 2.0
    assert after((4.0, 0.0)).forecast_gpus(2) == 6.0
    assert after((40.0, 0.0)).forecast_gpus(2) == 50.0


@pytest.mark.parametrize(
    ("later_s", "gpus"),
    [
        pytest.param(60.0, 8.0, id="in the same slot"),
        pytest.param(SLOT_S, 8.0, id="in the next one"),
        pytest.param(2 * SLOT_S, 0.0, id="after two slots"),
    ],
)
def test_gpus_that_are_no_longer_needed_are_free_to_lend_after_ten_to_twenty_minutes(
    later_s: float, gpus: float
) -> None:
    history = after((8.0, 0.0), (0.0, 30.0), (0.0, later_s))
    assert history.forecast_gpus(1) == gpus + max(1.0, gpus / 4)


def test_a_need_that_nobody_changed_stayed_while_nobody_looked() -> None:
    assert after((8.0, 0.0), (8.0, 50 * SLOT_S)).forecast_gpus(1) == 10.0


def test_after_a_day_the_same_time_of_yesterday_counts() -> None:
    night_s, peak_s = DAY_S - 12 * SLOT_S, DAY_S + SLOT_S
    history = after((2.0, 0.0), (8.0, SLOT_S), (8.0, 3 * SLOT_S), (2.0, 4 * SLOT_S), (2.0, night_s))
    assert history.forecast_gpus(1) == 3.0, "not a day yet"
    history.add(2.0, BEGAN + peak_s)
    assert history.forecast_gpus(1) == pytest.approx(8.0 * 1.05), "yesterday's peak is due"
    history.add(2.0, BEGAN + DAY_S + 12 * SLOT_S)
    assert history.forecast_gpus(1) == pytest.approx(2.0 * 1.05), "it is over"


def test_a_clock_that_goes_back_loses_nothing() -> None:
    history = after((8.0, 5 * SLOT_S), (1.0, 0.0), (1.0, 5 * SLOT_S))
    assert history.forecast_gpus(1) == 10.0


def test_the_forecast_reaches_half_an_hour_beyond_the_running_slot() -> None:
    history = after((1.0, 10.0))
    assert (history.slot_end_at, history.horizon_at) == (BEGAN + SLOT_S, BEGAN + 4 * SLOT_S)
