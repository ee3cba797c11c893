"""Kubernetes quantities as numbers."""

import re
from typing import Final

QUANTITY: Final = re.compile(
    r"(\d{1,18}(?:\.\d{0,9})?|\.\d{1,9})([numkKMGTPE]?i?|[eE][+-]?\d{1,2})"
)
SUFFIXES: Final = {
    "n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1.0,
    **{letter: 1e3 ** (power + 1) for power, letter in enumerate("kMGTPE")},
    **{f"{letter}i": 1024.0 ** (power + 1) for power, letter in enumerate("KMGTPE")},
}  # fmt: skip


def parse_quantity(text: object) -> float | None:
    """A Kubernetes quantity as a number: 500m, 4Gi, 2."""
    match = QUANTITY.fullmatch(str(text)) if isinstance(text, str | int | float) else None
    if match is None:
        return None
    number, suffix = match.groups()
    if suffix in SUFFIXES:
        return float(number) * SUFFIXES[suffix]
    return float(f"{number}{suffix}") if suffix[:1] in ("e", "E") else None
