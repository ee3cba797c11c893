"""Instants and durations in words: local time for the clock, relative time for the meaning."""

import math
from typing import Final

from laxity.checked import LAST_AT, calendar_instant

NONE: Final = "-"
NEVER: Final = "never"
_DAY_S: Final = 86_400
LAST_SHOWN_AT: Final = LAST_AT - _DAY_S  # beyond it, another time zone has no calendar any more


def words(seconds: float | None) -> str:
    """Seconds as people say them: 4.2s, 45s, 12m30s, 3h05m, 2d04h; a minus sign when past."""
    if seconds is None or math.isnan(seconds):
        return NONE
    if math.isinf(seconds):
        return "forever" if seconds > 0 else NONE
    sign, length_s = ("-" if seconds < 0 else ""), abs(seconds)
    if length_s < 9.95:
        return f"{sign}{length_s:.1f}s"
    minutes, secs = divmod(round(length_s), 60)
    if not minutes:
        return f"{sign}{secs}s"
    hours, minutes = divmod(minutes, 60)
    if not hours:
        return f"{sign}{minutes}m{secs:02d}s"
    days, hours = divmod(hours, 24)
    return f"{sign}{days}d{hours:02d}h" if days else f"{sign}{hours}h{minutes:02d}m"


def relative(at: float | None, now: float) -> str:
    """An instant as seen from now: "in 3m20s", "5.0s ago"."""
    if at is None or not math.isfinite(at):
        return NONE
    return f"in {words(at - now)}" if at >= now else f"{words(now - at)} ago"


def clock(at: float | None, now: float) -> str:
    """Local wall time, with the date when it is more than half a day away."""
    if at is None or not math.isfinite(at):
        return NONE
    at_utc = calendar_instant(at)
    if at_utc is None or at > LAST_SHOWN_AT:
        return NEVER
    local = at_utc.astimezone()
    return f"{local:%H:%M:%S}" if abs(at - now) < _DAY_S / 2 else f"{local:%b %d %H:%M}"


def instant(at: float | None, now: float) -> str:
    """Both: "14:02:11 (in 3m20s)"."""
    if at is None or not math.isfinite(at):
        return NONE
    return f"{clock(at, now)} ({relative(at, now)})"
