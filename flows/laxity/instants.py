"""Instants as text (RFC 3339, ISO 8601) and as seconds since 1970, in UTC."""

import math
from datetime import UTC, datetime
from typing import Final, Literal

FIRST_AT: Final = -62_135_596_800.0  # 0001-01-01, in seconds since 1970
LAST_AT: Final = 253_402_300_799.0  # 9999-12-31T23:59:59Z, in seconds since 1970
EPOCH: Final = datetime.fromtimestamp(0.0, UTC)
LAST: Final = datetime.fromtimestamp(LAST_AT, UTC)
Precision = Literal["seconds", "milliseconds", "microseconds"]


def calendar_instant(at: float, *, first_at: float = 0.0) -> datetime | None:
    """Seconds since 1970 as a UTC datetime; None for NaN, before the first and beyond the calendar."""
    if not math.isfinite(at) or not first_at <= at <= LAST_AT:
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


def format_instant(instant: datetime, precision: Precision | None = None) -> str:
    """RFC 3339 in UTC, by default as precise as the instant: 2026-11-21T18:00:00.250Z."""
    in_utc = instant.astimezone(UTC)
    if precision is None:
        precision = "seconds" if not in_utc.microsecond else "milliseconds"
        precision = "microseconds" if in_utc.microsecond % 1000 else precision
    return in_utc.isoformat(timespec=precision).replace("+00:00", "Z")


def format_rfc3339(at: float, precision: Precision | None = None) -> str:
    """Seconds since 1970 as `format_instant` writes them.

    An instant before 1970 or beyond the calendar becomes the first or the last that there is.
    """
    return format_instant(calendar_instant(at) or (EPOCH if at < LAST_AT else LAST), precision)
