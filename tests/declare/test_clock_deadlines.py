"""Deadlines by the clock: the next such instant in a zone, also on nights when the clock changes."""

import time as time_module
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, time
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laxity.clock_time import ClockTime, local_zone_name, parse_clock_time
from laxity.durations import deadline_instant, parse_deadline, parse_zoned_deadline, with_local_zone
from laxity.job.annotations import read_qos, write_qos
from laxity.job.qos import QoS, QoSError

BERLIN = ZoneInfo("Europe/Berlin")


def due(text: str, submitted: str) -> str:
    """When a deadline of a job ends that was submitted at this wall time in Berlin."""
    at = datetime.fromisoformat(submitted)
    submitted_at = (at if at.tzinfo else at.replace(tzinfo=BERLIN)).timestamp()
    ends_at = deadline_instant(parse_deadline(text), submitted_at)
    return datetime.fromtimestamp(ends_at, BERLIN).isoformat()


@pytest.fixture
def live_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Sets the zone of this process."""

    def set_zone(zone: str) -> None:
        monkeypatch.setenv("TZ", zone)
        monkeypatch.setattr("tzlocal.unix._cache_tz_name", None)
        time_module.tzset()

    yield set_zone
    monkeypatch.undo()
    time_module.tzset()


@pytest.mark.parametrize(
    ("text", "submitted", "ends"),
    [
        ("06:00 Europe/Berlin", "2026-11-21T01:00", "2026-11-21T06:00:00+01:00"),
        ("06:00 Europe/Berlin", "2026-11-21T06:00", "2026-11-22T06:00:00+01:00"),
        ("6:00 Europe/Berlin", "2026-11-21T23:59", "2026-11-22T06:00:00+01:00"),
        ("06:00:30 Europe/Berlin", "2026-11-21T06:00", "2026-11-21T06:00:30+01:00"),
        ("06:00Z", "2026-11-21T01:00", "2026-11-21T07:00:00+01:00"),
        ("06:00-05:00", "2026-11-21T01:00", "2026-11-21T12:00:00+01:00"),
        ("06:00 America/New_York", "2026-07-01T01:00", "2026-07-01T12:00:00+02:00"),
        ("Fri 18:00 Europe/Berlin", "2026-11-21T01:00", "2026-11-27T18:00:00+01:00"),
        ("friday 18:00 Europe/Berlin", "2026-11-27T17:59", "2026-11-27T18:00:00+01:00"),
        ("Fri 18:00 Europe/Berlin", "2026-11-27T18:00", "2026-12-04T18:00:00+01:00"),
        ("Wednesday 00:00 Europe/Berlin", "2026-12-29T10:00", "2026-12-30T00:00:00+01:00"),
    ],
)
def test_a_clock_deadline_is_the_next_such_instant(text: str, submitted: str, ends: str) -> None:
    assert due(text, submitted) == ends


@pytest.mark.parametrize(
    ("text", "submitted", "ends"),
    [
        pytest.param(
            "06:00 Europe/Berlin", "2026-03-29T01:00", "2026-03-29T06:00:00+02:00",
            id="spring: four hours later, not five",
        ),
        pytest.param(
            "06:00 Europe/Berlin", "2026-10-25T01:00", "2026-10-25T06:00:00+01:00",
            id="autumn: six hours later, not five",
        ),
        pytest.param(
            "02:30 Europe/Berlin", "2026-03-29T01:00", "2026-03-29T03:00:00+02:00",
            id="spring: a skipped time is the jump over it",
        ),
        pytest.param(
            "02:30 Europe/Berlin", "2026-03-29T03:00", "2026-03-30T02:30:00+02:00",
            id="spring: the jump has passed",
        ),
        pytest.param(
            "02:30 Europe/Berlin", "2026-10-25T01:00", "2026-10-25T02:30:00+02:00",
            id="autumn: the first of two",
        ),
        pytest.param(
            "02:30 Europe/Berlin", "2026-10-25T02:30:00+02:00", "2026-10-25T02:30:00+01:00",
            id="autumn: the second of two",
        ),
        pytest.param(
            "02:30 Europe/Berlin", "2026-10-25T02:30:00+01:00", "2026-10-26T02:30:00+01:00",
            id="autumn: both have passed",
        ),
        pytest.param(
            "02:15 Australia/Lord_Howe", "2026-10-03T16:00", "2026-10-03T17:30:00+02:00",
            id="a clock that jumps by half an hour",
        ),
        pytest.param(
            "Sun 02:30 Europe/Berlin", "2026-03-23T10:00", "2026-03-29T03:00:00+02:00",
            id="spring: on a weekday",
        ),
    ],
)  # fmt: skip
def test_nights_on_which_the_clock_changes(text: str, submitted: str, ends: str) -> None:
    assert due(text, submitted) == ends


@given(
    st.builds(
        ClockTime,
        st.times().map(lambda at: at.replace(microsecond=0)),
        st.none() | st.integers(0, 6),
        st.sampled_from(["Z", "+05:30", "-03:00", "UTC", "Europe/Berlin", "Pacific/Apia"]),
    ),
    st.datetimes(datetime(1990, 1, 1), datetime(2037, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
)
def test_the_next_instant_lies_within_eight_days_and_text_reads_back(
    clock: ClockTime, submitted: datetime
) -> None:
    ends = clock.next_after(submitted)
    assert 0 < (ends - submitted).total_seconds() <= 8 * 86_400 + 3_600
    assert parse_clock_time(str(clock)) == clock


def test_a_claimed_instant_at_the_end_of_the_calendar_harms_nobody() -> None:
    clock = parse_deadline("06:00 Asia/Tokyo")
    last_at = datetime(9999, 12, 31, 23, tzinfo=UTC).timestamp()
    assert deadline_instant(clock, last_at) == last_at


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("24:00", "24:00 is no time of the day; write 00:00 to 23:59"),
        ("6:5", "is no deadline; write 90s, 20m, 2h"),
        ("06:00 Berlin", "'Berlin' is no time zone; write one such as Europe/Berlin"),
        ("06:00 Europe", "'Europe' is no time zone"),
        ("06:00 ../etc/passwd", "is no time of the day"),
        ("Fry 18:00", "'Fry' is no weekday; write Mon, Tue"),
        ("tomorrow 06:00", "'tomorrow' is no weekday"),
        ("06:00Z Europe/Berlin", "is no time of the day"),
        ("06:00+25:00", "is no time zone"),
    ],
)
def test_what_is_no_time_by_the_clock_is_said(text: str, problem: str) -> None:
    with pytest.raises(QoSError, match=problem.replace("+", r"\+")) as error:
        QoS.of(deadline=text)
    assert error.value.field == "deadline"


@pytest.mark.parametrize(
    ("at", "text"),
    [
        (time(6, tzinfo=BERLIN), "06:00 Europe/Berlin"),
        (time(6, 30, 15, tzinfo=UTC), "06:30:15+00:00"),
    ],
)
def test_a_time_of_day_with_its_zone_is_a_deadline(at: time, text: str) -> None:
    assert QoS.of(deadline=at).deadline_text == text


def test_a_clock_deadline_carries_the_zone_of_its_submitter(
    live_in: Callable[[str], None],
) -> None:
    qos = QoS.of(deadline="Fri 18:00")
    live_in("Asia/Tokyo")
    annotations = write_qos(qos)
    assert annotations["laxity.dev/deadline"] == "Fri 18:00 Asia/Tokyo"
    assert with_local_zone("06:00") == "06:00 Asia/Tokyo"
    assert with_local_zone("2h") == "2h"
    assert read_qos(annotations).deadline == parse_deadline("Fri 18:00 Asia/Tokyo")


def test_a_zone_without_a_name_is_no_other_zone(live_in: Callable[[str], None]) -> None:
    live_in("CET-1CEST")
    with pytest.raises(ValueError, match="time zone has no name: write one, such as 06:00 Europe"):
        local_zone_name()


def test_a_job_of_anybody_must_name_the_zone() -> None:
    with pytest.raises(ValueError, match=r"names no time zone.*write 06:00 Europe/Berlin"):
        parse_zoned_deadline("06:00")
    with pytest.raises(QoSError, match="names no time zone"):
        read_qos({"laxity.dev/deadline": "06:00"})
