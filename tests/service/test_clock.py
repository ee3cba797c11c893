"""Deadlines count by the API server's clock where this machine's is apart from it."""

import logging

import pytest

from laxity_scheduler.service_clock import ServiceClock

TOLD_AT = 1_800_000_000.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ServiceClock:
    """On a machine whose clock stands at 1,000 s before the other one's."""
    monkeypatch.setattr("time.time", lambda: TOLD_AT - 1_000.0)
    return ServiceClock()


def answer(clock: ServiceClock, ahead_s: float, *, took_s: float = 0.1) -> None:
    """The other clock is in the middle of a second."""
    middle = TOLD_AT + 0.5 + ahead_s
    clock.compare(TOLD_AT, middle - took_s / 2.0, middle + took_s / 2.0)


@pytest.mark.parametrize("ahead_s", [-1_000.0, -2.6, 2.6, 240.0])
def test_the_other_clock_counts_where_the_two_are_apart(
    clock: ServiceClock, ahead_s: float
) -> None:
    before = clock.now()

    answer(clock, ahead_s)

    assert clock.now() == pytest.approx(before - ahead_s)
    assert f"{abs(ahead_s):.0f} s {'ahead of' if ahead_s > 0 else 'behind'}" in clock.warning


@pytest.mark.parametrize("ahead_s", [-1.9, 0.0, 1.9])
def test_what_whole_seconds_cannot_show_changes_nothing(
    clock: ServiceClock, ahead_s: float
) -> None:
    before = clock.now()

    answer(clock, ahead_s)

    assert (clock.now(), clock.warning) == (before, "")


def test_an_answer_that_took_long_says_nothing_of_clocks(clock: ServiceClock) -> None:
    answer(clock, 240.0, took_s=5.0)

    assert clock.warning == ""


def test_it_is_warned_of_once_and_again_when_the_distance_changes(
    clock: ServiceClock, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        for ahead_s in (240.0, 241.0, 239.5, 30.0, 1.5, 0.4, 0.0):
            answer(clock, ahead_s)

    told = [(line.levelname, line.message.split(":")[0]) for line in caplog.records]
    assert told == [
        ("WARNING", "this machine's clock is 240 s ahead of the API server's"),
        ("WARNING", "this machine's clock is 30 s ahead of the API server's"),
        ("WARNING", "this machine's clock is 2 s ahead of the API server's"),
        ("INFO", "this machine's clock agrees with the API server's again"),
    ]
