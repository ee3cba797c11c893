"""Numbers and instants that come from outside: one parser, which never raises.

Annotations, pod indexes, quantities and reports are written by anybody. `"²".isdigit()` is true and
`int("²")` raises; `int("9" * 5000)` raises too; a float may be NaN, an instant beyond the calendar.
Whoever reads such a value says what it may be and gets None for anything else.
"""

import math
from datetime import UTC, datetime
from typing import Final

MOST: Final = 2**53  # whole numbers that a double, and so every JSON reader, holds exactly
LONGEST_DIGITS: Final = 19  # of 2**63, the largest that an API server knows
LAST_AT: Final = 253_402_300_799.0  # 9999-12-31T23:59:59Z, in seconds since 1970


def whole_number(value: object, *, least: int = 0, most: int = MOST) -> int | None:
    """An int, or a text of plain decimal digits, from `least` to `most`; None for anything else.

    A text may begin with a minus sign where `least` is below zero.
    """
    if isinstance(value, str):
        digits = value.removeprefix("-") if least < 0 else value
        plain = digits.isascii() and digits.isdigit() and len(digits) <= LONGEST_DIGITS
        number = int(value) if plain else None
    else:
        number = value if isinstance(value, int) and not isinstance(value, bool) else None
    return number if number is not None and least <= number <= most else None


def finite_number(value: object, *, least: float = -MOST, most: float = MOST) -> float | None:
    """A finite int or float from `least` to `most` as a float; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not least <= value <= most:  # NaN and huge whole numbers end here, too
        return None
    return float(value)


def calendar_instant(at: float) -> datetime | None:
    """Seconds since 1970 as a UTC datetime; None for NaN and for what no calendar can say."""
    if not math.isfinite(at) or not 0.0 <= at <= LAST_AT:
        return None
    return datetime.fromtimestamp(at, UTC)


def instant_at(text: object) -> float | None:
    """Seconds since 1970 of an ISO 8601 text with its zone; None for anything else."""
    try:
        instant = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    if instant is None or instant.utcoffset() is None:
        return None
    return instant.timestamp()
