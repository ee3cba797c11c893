"""Deadlines by the clock: `06:00`, `06:00 Europe/Berlin`, `Fri 18:00`: the next such instant.

"06:00" means another instant on each night, and another one in each zone. The zone is the submitter's
where none is named; whoever writes the text down for others writes the zone with it.

Nights on which the clock changes: a wall time that occurs twice counts when it occurs next; one that
is skipped counts when the clock jumps over it.
"""

import re
import time as time_module
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

WEEKDAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
EXAMPLE: Final = "06:00 Europe/Berlin"
_CLOCK: Final = re.compile(
    r"(?:(?P<weekday>[A-Za-z]+)\s+)?(?P<time>[0-9]{1,2}:[0-9]{2}(?::[0-9]{2})?)"
    r"(?P<offset>Z|[+-][0-9]{2}:[0-9]{2})?(?:\s+(?P<zone>[A-Za-z][A-Za-z0-9_+/-]*))?"
)
_LIKE_A_CLOCK: Final = re.compile(r"(?:[A-Za-z]+\s+)?[0-9]{1,2}:[0-9]{2}")
_DAYS: Final = range(9)  # a weekday comes again within eight days
_SECOND: Final = timedelta(seconds=1)
_HALF_YEAR_S: Final = 182 * 86_400


@dataclass(frozen=True, slots=True)
class ClockTime:
    """A time of the day, on one weekday (0 is Monday) or on any.

    `zone` is a name such as Europe/Berlin, an offset such as +01:00, or Z; "" is the submitter's zone.
    """

    at: time
    weekday: int | None = None
    zone: str = ""

    @classmethod
    def of(cls, at: time) -> "ClockTime":
        """A `datetime.time`; ValueError for a zone that has no name and no fixed offset."""
        bare = at.replace(tzinfo=None, fold=0, microsecond=0)
        if at.tzinfo is None:
            return cls(bare)
        name = getattr(at.tzinfo, "key", None)
        if name is None and at.utcoffset() is None:
            raise ValueError(f"{at.tzinfo} is no zone with a name; write ZoneInfo('Europe/Berlin')")
        return cls(bare, zone=name or at.isoformat()[len(at.replace(tzinfo=None).isoformat()) :])

    def __str__(self) -> str:
        """The text that `parse_clock_time` reads."""
        weekday = "" if self.weekday is None else f"{WEEKDAYS[self.weekday]} "
        clock = self.at.isoformat("seconds" if self.at.second else "minutes")
        gap = " " if self.zone[:1].isalpha() and self.zone != "Z" else ""
        return f"{weekday}{clock}{gap}{self.zone}"

    def with_zone(self) -> "ClockTime":
        """This time in this machine's zone, unless it has one; ValueError if that has no name."""
        return self if self.zone else replace(self, zone=local_zone_name())

    def next_after(self, instant: datetime) -> datetime:
        """The first such instant after this one, in UTC; OverflowError beyond the calendar."""
        zone = zone_of(self.with_zone().zone)
        today = instant.astimezone(zone).date()
        return next(
            at
            for days in _DAYS
            for at in self._instants_on(today + timedelta(days), zone)
            if at > instant
        )

    def _instants_on(self, day: date, zone: tzinfo) -> list[datetime]:
        """When the clock shows this time on a day: once, twice, or as it jumps over it."""
        if self.weekday is not None and day.weekday() != self.weekday:
            return []
        wall = datetime.combine(day, self.at, tzinfo=zone)
        first, second = (wall.replace(fold=fold).astimezone(UTC) for fold in (0, 1))
        if first.astimezone(zone).replace(tzinfo=None) == wall.replace(tzinfo=None):
            return sorted({first, second})
        return [_find_jump(second, first, zone)]


def _find_jump(before: datetime, after: datetime, zone: tzinfo) -> datetime:
    """The second between these two at which the clock jumps."""
    offset = after.astimezone(zone).utcoffset()
    while after - before > _SECOND:
        middle = before + (after - before) // 2
        is_after = middle.astimezone(zone).utcoffset() == offset
        before, after = (before, middle) if is_after else (middle, after)
    return after.replace(microsecond=0)


def is_like_clock_time(text: str) -> bool:
    return _LIKE_A_CLOCK.match(text.strip()) is not None


def parse_clock_time(text: str) -> ClockTime:
    """Read `06:00`, `Fri 18:00`, `06:00Z` or `06:00 Europe/Berlin`; ValueError says what is wrong."""
    match = _CLOCK.fullmatch(text.strip())
    if match is None or (match["offset"] and match["zone"]):
        raise ValueError(f"{text[:64]!r} is no time of the day; write {EXAMPLE} or Fri 18:00")
    try:
        at = time.fromisoformat(match["time"].zfill(5))
    except ValueError:
        raise ValueError(f"{match['time']} is no time of the day; write 00:00 to 23:59") from None
    zone = match["offset"] or match["zone"] or ""
    if zone:
        zone_of(zone)
    return ClockTime(at, _read_weekday(match["weekday"]), zone)


def _read_weekday(word: str | None) -> int | None:
    if word is None:
        return None
    short = word[:3].capitalize()
    full = dict(
        zip(WEEKDAYS, ("Mon", "Tues", "Wednes", "Thurs", "Fri", "Satur", "Sun"), strict=True)
    )
    if short not in full or word.lower() not in {short.lower(), f"{full[short]}day".lower()}:
        days = ", ".join(WEEKDAYS)
        raise ValueError(f"{word[:20]!r} is no weekday; write {days}, or the time alone")
    return WEEKDAYS.index(short)


def zone_of(name: str) -> tzinfo:
    """The zone of a name or an offset; ValueError if there is none."""
    if name == "Z":
        return UTC
    try:
        if name[0] in "+-":
            return timezone(time.fromisoformat(f"00:00{name}").utcoffset() or timedelta(0))
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        message = f"{name[:40]!r} is no time zone; write one such as Europe/Berlin, or UTC"
        raise ValueError(message) from None


def local_zone_name() -> str:
    """The name of this machine's zone; ValueError where it has none, as with TZ=CET-1CEST."""
    from tzlocal import get_localzone_name

    try:
        name = str(get_localzone_name() or "UTC")
    except (LookupError, ValueError, OSError):
        name = "UTC"
    now = time_module.time()
    here = [time_module.localtime(at).tm_gmtoff for at in (now, now + _HALF_YEAR_S)]
    if here != [_offset_s(name, at) for at in (now, now + _HALF_YEAR_S)]:
        raise ValueError(f"this machine's time zone has no name: write one, such as {EXAMPLE}")
    return name


def _offset_s(zone: str, at: float) -> int:
    offset = datetime.fromtimestamp(at, zone_of(zone)).utcoffset() or timedelta(0)
    return round(offset.total_seconds())
