"""Instants as Kubernetes writes them (RFC 3339)."""

from datetime import UTC, datetime
from typing import Final

from laxity.parsing import LAST_AT, calendar_instant

LAST: Final = datetime.fromtimestamp(LAST_AT, UTC)

EPOCH: Final = datetime.fromtimestamp(0.0, UTC)


def format_rfc3339(at: float) -> str:
    """An instant as Kubernetes writes it, to the microsecond where it is not a whole second.

    One before 1970 or beyond the calendar becomes the first or the last that there is.
    """
    instant = calendar_instant(at) or (EPOCH if at < LAST_AT else LAST)
    text = instant.isoformat(timespec="microseconds")
    return text.replace(".000000", "").replace("+00:00", "Z")
