"""Durations such as 1h30m and instants such as 2026-11-21T00:00Z, read strictly and written back.

A deadline that is misread by a factor of 60 or by a time zone is worse than one that is refused,
so a number without a unit and a time without a zone are errors that say what to write instead.
"""

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final

from laxity.clock_time import EXAMPLE, ClockTime, is_like_clock_time, parse_clock_time
from laxity.instants import calendar_instant

Deadline = datetime | timedelta | ClockTime

LONGEST: Final = timedelta(days=3652)  # ten years: what is longer is a mistake
LONGEST_TEXT: Final = 64

_UNIT_S: Final = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_NUMBER: Final = r"[0-9]{1,12}(?:\.[0-9]{1,6})?"
_DURATION: Final = re.compile("".join(rf"(?:(?P<{unit}>{_NUMBER}){unit})?" for unit in _UNIT_S))
_LIKE_A_DURATION: Final = re.compile(r"[-+]?[0-9][0-9.e]*(?:[dhms]|$)")
_LIKE_A_DATE: Final = re.compile(r"[0-9]{4}(?:-|W|[0-9]{4}T)")
_MICROSECOND: Final = timedelta(microseconds=1)
EXAMPLES: Final = "90s, 20m, 2h, 1h30m or 1d12h"


def parse_duration(text: str) -> timedelta:
    """A positive duration of at most ten years; ValueError says what is wrong and what to write."""
    compact = text.strip()
    if not compact or len(compact) > LONGEST_TEXT:
        raise ValueError(f"{quote_text(text)} is no duration; write {EXAMPLES}")
    if re.fullmatch(_NUMBER, compact):
        raise ValueError(f"{compact} of what? Write the unit: {compact}s, {compact}m or {compact}h")
    match = _DURATION.fullmatch(compact)
    if match is None:
        raise ValueError(f"{quote_text(text)} is no duration; write {EXAMPLES}, largest unit first")
    seconds = sum(
        (Decimal(number) * _UNIT_S[unit] for unit, number in match.groupdict().items() if number),
        start=Decimal(0),
    )
    if seconds > LONGEST.total_seconds():
        raise ValueError(f"{compact} is longer than ten years")
    return positive_duration(timedelta(microseconds=int(seconds * 1_000_000)))


def positive_duration(duration: timedelta) -> timedelta:
    """The duration itself if it is more than nothing and at most ten years."""
    if duration <= timedelta(0):
        raise ValueError(f"must be longer than 0s, got {duration.total_seconds():g}s")
    if duration > LONGEST:
        raise ValueError(f"{duration.days} days is longer than ten years")
    return duration


def format_duration(duration: timedelta) -> str:
    """The shortest spelling in whole units, seconds with a fraction if need be: 1d12h, 0.25s."""
    left = duration // _MICROSECOND
    parts: list[str] = []
    for unit, seconds in _UNIT_S.items():
        number, rest = divmod(left, seconds * 1_000_000)
        if unit == "s" and rest:
            parts.append(f"{Decimal(left) / 1_000_000:f}s")
        elif number:
            parts.append(f"{number}{unit}")
        left = rest
    return "".join(parts) or "0s"


def parse_instant(text: str) -> datetime:
    """An ISO 8601 instant with its zone, in UTC; ValueError says what is wrong and what to write."""
    compact = text.strip()
    if len(compact) > LONGEST_TEXT:
        raise ValueError(f"{quote_text(text)} is no instant; write 2026-11-21T18:00Z")
    try:
        instant = datetime.fromisoformat(compact)
    except ValueError as error:
        raise ValueError(
            f"{quote_text(text)} is no instant ({error}); write 2026-11-21T18:00Z"
        ) from error
    return aware_instant(instant)


def aware_instant(instant: datetime) -> datetime:
    """The instant in UTC; a time without a zone is an error, because it means another everywhere."""
    if instant.utcoffset() is None:
        shown = instant.isoformat(timespec="auto")
        raise ValueError(
            f"{shown} has no time zone; write {shown}Z for UTC or {shown}+01:00 for another zone"
        )
    try:
        return instant.astimezone(UTC)
    except OverflowError as error:
        raise ValueError(f"{instant.isoformat()} is outside the calendar") from error


def parse_deadline(text: str) -> Deadline:
    """An instant, a duration, or a time by the clock, which may leave its zone open."""
    if _LIKE_A_DATE.match(text.strip()):
        return parse_instant(text)
    if is_like_clock_time(text):
        return parse_clock_time(text)
    if not _LIKE_A_DURATION.match(text.strip()):
        raise ValueError(
            f"{quote_text(text)} is no deadline; write {EXAMPLES}, 2026-11-21T18:00Z or {EXAMPLE}"
        )
    return parse_duration(text)


def parse_zoned_deadline(text: str) -> Deadline:
    """A deadline that somebody elsewhere has written: a time by the clock names its zone."""
    deadline = parse_deadline(text)
    if isinstance(deadline, ClockTime) and not deadline.zone:
        raise ValueError(
            f"{quote_text(text)} names no time zone, and this service may lie in another one; "
            f"write {deadline} Europe/Berlin, or {deadline}Z for UTC"
        )
    return deadline


def with_local_zone(text: str) -> str:
    """The same deadline, with this machine's zone where it is a time by the clock without one.

    What is no deadline stays as it is: who reads it says what is wrong. ValueError where this
    machine's zone has no name.
    """
    if not is_like_clock_time(text):
        return text
    try:
        deadline = parse_clock_time(text)
    except ValueError:
        return text
    return str(deadline.with_zone())


def deadline_instant(deadline: Deadline, counted_from_at: float) -> float:
    """The deadline in POSIX seconds: a duration, and the next time by the clock, count from there."""
    if isinstance(deadline, datetime):
        return deadline.timestamp()
    if isinstance(deadline, timedelta):
        return counted_from_at + deadline.total_seconds()
    instant = calendar_instant(counted_from_at)
    try:
        return counted_from_at if instant is None else deadline.next_after(instant).timestamp()
    except OverflowError:
        return counted_from_at  # at the end of the calendar


def quote_text(text: str) -> str:
    return repr(text if len(text) <= LONGEST_TEXT else f"{text[:40]}...")
