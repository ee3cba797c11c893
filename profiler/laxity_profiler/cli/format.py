"""Words and bars of this floor's tables."""

from typing import Final

BAR: Final = "\u2588"
BARS: Final = 12


def format_duration(seconds: float | None) -> str:
    from laxity.human_time import format_seconds

    if seconds is None:
        return "not known"
    return f"{1_000 * seconds:.0f}ms" if 0.0 < seconds < 0.95 else format_seconds(seconds)


def draw_bar(share: float) -> str:
    """A bar for a share of one."""
    return BAR * round(BARS * share)
