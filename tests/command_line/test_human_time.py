import math
from datetime import UTC, datetime

import pytest

from laxity.human_time import (
    as_of,
    format_seconds,
    instant_text,
    on_widths,
    relative_text,
    wall_time,
)


@pytest.mark.parametrize(
    ("seconds", "want"),
    [
        pytest.param(0.04, "0.0s", id="nothing"),
        pytest.param(4.23, "4.2s", id="seconds with a decimal"),
        pytest.param(9.97, "10s", id="rounded up to whole seconds"),
        pytest.param(59.6, "1m00s", id="rounded up to a minute"),
        pytest.param(11_100, "3h05m", id="hours"),
        pytest.param(187_200, "2d04h", id="days"),
        pytest.param(-90, "-1m30s", id="past"),
        pytest.param(math.inf, "an unknown time", id="never"),
        pytest.param(math.nan, "-", id="unknown"),
        pytest.param(None, "-", id="nothing known"),
    ],
)
def test_durations_are_said_as_people_say_them(seconds: float | None, want: str) -> None:
    assert format_seconds(seconds) == want


def test_instants_are_told_from_now() -> None:
    assert relative_text(1_100.0, 1_000.0) == "in 1m40s"
    assert relative_text(995.0, 1_000.0) == "5.0s ago"
    assert relative_text(None, 1_000.0) == "-"
    assert instant_text(math.inf, 1_000.0) == "-"


@pytest.mark.parametrize("at", [253_402_300_800.0, 5e11, 1e18])
def test_an_instant_beyond_the_calendar_is_never(at: float) -> None:
    assert wall_time(at, 0.0) == "never"
    assert instant_text(at, 0.0).startswith("never (in ")


def test_an_instant_is_shown_to_the_nearest_second_as_it_is_written_elsewhere() -> None:
    assert wall_time(1_000_000.7, 1_000_000.0) == wall_time(1_000_001.0, 1_000_000.0)
    assert wall_time(1_000_000.2, 1_000_000.0) == wall_time(1_000_000.0, 1_000_000.0)


def test_a_reasons_instants_are_shown_as_seen_from_now() -> None:
    at = datetime(2026, 11, 21, 18, 5, tzinfo=UTC)
    text = "P90 finish 2026-11-21T18:05:00Z, 30s before the deadline"
    local = f"{at.astimezone():%H:%M:%S}"
    assert as_of(at.timestamp() - 60.0, text).startswith(f"P90 finish {local} (in 1m00s), 30s")
    assert as_of(at.timestamp() + 60.0, text).startswith(f"P90 finish {local} (1m00s ago), 30s")


@pytest.mark.parametrize("apart_s", [-0.9, -0.2, 0.0, 0.5])
def test_an_instant_less_than_a_second_away_is_now(apart_s: float) -> None:
    at = datetime(2026, 11, 21, 18, 5, tzinfo=UTC)
    text = "the deadline 2026-11-21T18:05:00Z has passed"
    shown = as_of(at.timestamp() + apart_s, text)
    assert shown == f"the deadline {at.astimezone():%H:%M:%S} (now) has passed"


def test_an_instant_that_one_is_to_write_is_shown_as_it_is_to_be_written() -> None:
    text = "deadline: 2026-11-27T06:00:00 has no time zone; write 2026-11-27T06:00:00Z for UTC"

    assert as_of(0.0, text) == text


@pytest.mark.parametrize(
    ("widths", "said"),
    [((1,), "1 worker"), ((2,), "2 workers"), ((1, 2, 4), "1, 2 or 4 workers")],
)
def test_widths_are_said_in_words(widths: tuple[int, ...], said: str) -> None:
    assert on_widths(widths) == said


def test_an_instant_of_another_year_is_shown_with_its_year() -> None:
    at = datetime(2020, 6, 1, 12, tzinfo=UTC).timestamp()

    assert wall_time(at, datetime(2026, 11, 26, tzinfo=UTC).timestamp()).startswith("2020-06-01")
