"""What inference needed slot by slot, and what it may need soon."""

import pytest

from laxity_scheduler.loans.demand_history import DemandHistory
from laxity_scheduler.model.job import DAY_S

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


def test_a_history_that_was_kept_goes_on_where_it_ended() -> None:
    night_s = DAY_S - 12 * SLOT_S
    changes = [(2.0, 0.0), (8.0, SLOT_S), (8.0, 3 * SLOT_S), (2.0, 4 * SLOT_S), (2.0, night_s)]
    before, restored = after(*changes), DemandHistory()
    restored.restore(before.find_unsaved())
    assert restored.find_unsaved() == []
    for history in (before, restored):
        history.add(2.0, BEGAN + DAY_S + SLOT_S)
    assert before.forecast_gpus(1) == restored.forecast_gpus(1) == pytest.approx(8.0 * 1.05)


def test_only_slots_that_are_new_or_have_changed_are_saved_again() -> None:
    history = after((1.0, 0.0), (2.0, SLOT_S))
    assert [row.needed_gpus for row in history.find_unsaved()] == [1.0, 2.0]
    history.mark_saved()
    history.add(2.0, BEGAN + SLOT_S + 1.0)
    assert history.find_unsaved() == []
    history.add(3.0, BEGAN + SLOT_S + 2.0)
    history.add(1.0, BEGAN + 2 * SLOT_S)
    assert [row.needed_gpus for row in history.find_unsaved()] == [3.0, 3.0]


def test_slots_older_than_eight_days_are_kept_no_longer() -> None:
    history = after((1.0, 0.0))
    history.mark_saved()
    history.add(1.0, BEGAN + 9 * DAY_S)
    rows = history.find_unsaved()
    assert (rows[0].slot, len(rows)) == (history.first_slot, round(8 * DAY_S / SLOT_S))


def test_slots_in_which_nobody_could_forecast_do_not_count_for_its_coverage() -> None:
    history = DemandHistory()
    assert history.coverage()[1] == 0
    for slot, gpus in ((0, 1.0), (1, 2.0), (5, 9.0), (6, 9.0), (7, 99.0), (8, 0.0)):
        history.add(gpus, BEGAN + slot * SLOT_S)
        history.forecast_gpus(1)
    share, slots = history.coverage()
    assert (share, slots) == (2 / 3, 3), "slots 1, 6 and 7"


def test_after_a_day_the_outlook_says_how_much_is_needed_up_to_when() -> None:
    peak = (8.0, 20 * SLOT_S), (8.0, 22 * SLOT_S), (2.0, 23 * SLOT_S)
    history = after((2.0, 0.0), *peak, (2.0, DAY_S - SLOT_S))
    assert history.outlook() == (), "not a day yet"
    history.add(2.0, BEGAN + DAY_S)
    outlook = history.outlook()
    assert outlook[0] == pytest.approx((BEGAN + DAY_S + 19 * SLOT_S, 2.1)), "a slot before the peak"
    assert outlook[-1] == pytest.approx((BEGAN + 2 * DAY_S + SLOT_S, 8.4))
    assert list(outlook) == sorted(outlook)
    assert history.outlook() is outlook, "it is made once in a slot"
