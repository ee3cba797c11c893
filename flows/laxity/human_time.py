"""Instants and durations in words: local time for the clock, relative time for the meaning."""

import math
import re
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from laxity.instants import LAST_AT, calendar_instant

NONE: Final = "-"
NEVER: Final = "never"
_DAY_S: Final = 86_400
_YEAR_S: Final = 365 * _DAY_S
LAST_SHOWN_AT: Final = LAST_AT - _DAY_S  # beyond it, another time zone has no calendar any more
_UTC: Final = re.compile(
    r"(?<!write )\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
)  # not one to be written as it is


def format_seconds(seconds: float | None) -> str:
    """Seconds as people say them: 4.2s, 45s, 12m30s, 3h05m, 2d04h; a minus sign when past."""
    if seconds is None or math.isnan(seconds):
        return NONE
    if math.isinf(seconds):
        return "an unknown time" if seconds > 0 else NONE
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


def relative_text(at: float | None, now: float) -> str:
    """An instant as seen from now: "in 3m20s", "5.0s ago"."""
    if at is None or not math.isfinite(at):
        return NONE
    return f"in {format_seconds(at - now)}" if at >= now else f"{format_seconds(now - at)} ago"


def wall_time(at: float | None, now: float) -> str:
    """Local wall time, with the date when it is over half a day away, and the year over half a year."""
    if at is None or not math.isfinite(at):
        return NONE
    at_utc = calendar_instant(round(at))  # as everywhere else: the same second in each view
    if at_utc is None or at > LAST_SHOWN_AT:
        return NEVER
    local = at_utc.astimezone()
    if abs(at - now) < _DAY_S / 2:
        return f"{local:%H:%M:%S}"
    return f"{local:%b %d %H:%M}" if abs(at - now) < _YEAR_S / 2 else f"{local:%Y-%m-%d %H:%M}"


def instant_text(at: float | None, now: float) -> str:
    """Both: "14:02:11 (in 3m20s)"."""
    if at is None or not math.isfinite(at):
        return NONE
    return f"{wall_time(at, now)} ({relative_text(at, now)})"


def as_of(now: float, text: str) -> str:
    """A sentence of the service with its instants in local time and as seen from now.

    They are whole seconds there: one that is not a second away is now, on either side.
    """

    def show(match: re.Match[str]) -> str:
        instant_at = datetime.fromisoformat(match[0]).timestamp()
        is_now = abs(instant_at - now) < 1.0
        return f"{wall_time(instant_at, now)} (now)" if is_now else instant_text(instant_at, now)

    return _UTC.sub(show, text)


def count_noun(number: int, noun: str) -> str:
    """`1 worker` or `2 workers`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def on_widths(widths: Sequence[int]) -> str:
    """`1 worker`, or `1, 2 or 4 workers`."""
    *others, last = widths or (1,)
    shown = ", ".join(map(str, others))
    return f"{shown} or {count_noun(last, 'worker')}" if others else count_noun(last, "worker")
