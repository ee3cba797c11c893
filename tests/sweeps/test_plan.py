"""What a sweep promises, and when another trial starts, from a frozen state."""

from dataclasses import replace

import pytest

from laxity.human_time import wall_time
from laxity.sweeps.trial_plan import SweepState, TrialTime, count_starts, forecast, promise_text

HOUR = 3600.0
HALF_HOUR = TrialTime(1800.0, 1900.0)


def state(**changes: object) -> SweepState:
    """64 trials of half an hour on 4 slots in 8 hours."""
    return replace(SweepState(0.0, 8 * HOUR, 64, 4, HALF_HOUR), **changes)  # type: ignore[arg-type]


def test_trials_fill_the_slots_that_are_free() -> None:
    begun = state(running_s=(10.0, 20.0, 30.0))
    starts = count_starts(begun)
    assert starts == 1


@pytest.mark.parametrize(
    ("shares", "needs_s"),
    [pytest.param((), 1900.0, id="first: P90"), pytest.param((1.0,), 1800.0, id="later: P50")],
)
def test_no_trial_starts_that_cannot_reach_full_length(
    shares: tuple[float, ...], needs_s: float
) -> None:
    late = state(now=8 * HOUR - needs_s + 1.0, shares=shares)
    in_time = state(now=8 * HOUR - needs_s - 1.0, shares=shares)
    assert (count_starts(late), count_starts(in_time)) == (0, 4)


def test_no_more_trials_start_than_are_wanted() -> None:
    nearly_over = state(trials=10, shares=(1.0,) * 7, running_s=(5.0, 5.0))
    starts = count_starts(nearly_over)
    assert starts == 1


def test_trials_of_one_length_come_to_slots_times_rounds() -> None:
    even = state(whole=TrialTime(1800.0, 1800.0))
    outlook = forecast(even)
    assert outlook is not None
    assert (outlook.least, outlook.most) == (64, 64)
    assert outlook.all_at == pytest.approx(8 * HOUR)


def test_fewer_trials_are_promised_where_they_do_not_all_fit() -> None:
    half = state(deadline_at=4 * HOUR, whole=TrialTime(1800.0, 1800.0))
    outlook = forecast(half)
    assert outlook is not None
    assert (outlook.least, outlook.most) == (32, 32)
    assert outlook.more_slots == 4


def test_pruned_trials_make_room_for_more() -> None:
    before, pruned = state(deadline_at=4 * HOUR), (0.1,) * 8 + (1.0,)
    after = replace(before, trials=64, shares=pruned)
    first, second = forecast(before), forecast(after)
    assert first is not None
    assert second is not None
    assert second.least - len(pruned) > first.least
    assert second.most == 64


def test_forecast_counts_what_has_ended_and_what_runs() -> None:
    late = state(now=8 * HOUR - 60.0, shares=(1.0,) * 20, running_s=(1790.0,) * 4)
    outlook = forecast(late)
    assert outlook is not None
    assert outlook.least == outlook.most == 24


def test_wide_spread_of_times_is_a_wide_promise() -> None:
    spread = state(deadline_at=4 * HOUR, whole=TrialTime(1800.0, 3600.0))
    outlook = forecast(spread)
    assert outlook is not None
    assert outlook.least < outlook.most < 32


@pytest.mark.parametrize(
    ("changes", "begins", "holds"),
    [
        pytest.param({"whole": None}, "forecast: ", "nothing is known", id="no history"),
        pytest.param({"deadline_at": 1800.0}, "refused: ", "takes 31m40s at P90", id="too short"),
        pytest.param({"trials": 4}, "promised: ", "all 4 trials by", id="all"),
        pytest.param({"trials": 3}, "promised: ", "if other jobs leave it 3 GPUs", id="few"),
        pytest.param({"deadline_at": 4 * HOUR}, "promised: ", "of 64 trials by", id="some"),
    ],
)
def test_verdict_is_one_sentence(changes: dict[str, object], begins: str, holds: str) -> None:
    text = promise_text(state(**changes))
    assert text.startswith(begins)
    assert holds in text


def test_verdict_names_the_time_that_all_need() -> None:
    short = state(deadline_at=4 * HOUR, whole=TrialTime(1800.0, 1800.0))
    text = promise_text(short)
    assert f"all 64 need until {wall_time(8 * HOUR, 0.0)}, or 4 more GPUs" in text


def test_same_state_is_the_same_promise() -> None:
    spread = state(whole=TrialTime(1800.0, 3600.0), shares=(0.2, 1.0))
    texts = {promise_text(spread) for _ in range(3)}
    assert len(texts) == 1


def test_thousand_trials_are_forecast_in_a_second() -> None:
    large = state(trials=1000, slots=64, deadline_at=6 * HOUR)
    outlook = forecast(large)
    assert outlook is not None
    assert 600 <= outlook.least <= outlook.most <= 1000
