"""What comes from outside is read by one parser that never raises."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laxity.instants import LAST_AT, calendar_instant
from laxity.parsing import MOST, finite_number, whole_number

NO_NUMBERS = [
    "²",
    "\u0661",
    "9" * 5000,
    "",
    "-1",
    "+1",
    "1_0",
    " 1",
    "1.0",
    "NaN",
    True,
    1.0,
    None,
    [1],
]


@pytest.mark.parametrize("value", NO_NUMBERS, ids=lambda value: repr(value)[:20])
def test_a_digit_that_is_no_plain_number_is_not_read_as_one(value: object) -> None:
    assert whole_number(value) is None


def test_a_whole_number_is_read_up_to_its_bound() -> None:
    assert whole_number("0042", most=42) == 42
    assert whole_number(str(MOST)) == MOST
    assert whole_number("43", most=42) is None
    assert whole_number(7, least=8) is None


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 10**400, True, "1", None])
def test_only_a_finite_number_is_read_as_one(value: object) -> None:
    assert finite_number(value) is None


@given(st.floats() | st.integers() | st.text() | st.none())
def test_reading_a_value_from_outside_never_raises(value: object) -> None:
    whole_number(value)
    finite_number(value)
    if isinstance(value, float):
        calendar_instant(value)


def test_an_instant_beyond_the_calendar_is_none() -> None:
    assert calendar_instant(LAST_AT) is not None
    assert calendar_instant(LAST_AT + 1.0) is None
    assert calendar_instant(math.inf) is None
