"""Numbers that come from outside: one parser, which never raises.

Annotations, pod indexes, quantities and reports are written by anybody. `"²".isdigit()` is true and
`int("²")` raises; `int("9" * 5000)` raises too; a float may be NaN.
Whoever reads such a value says what it may be and gets None for anything else.
"""

from typing import Final

MOST: Final = 2**53  # whole numbers that a double, and so every JSON reader, holds exactly
LONGEST_DIGITS: Final = 19  # of 2**63, the largest that an API server knows


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
