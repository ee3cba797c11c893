"""Widths: the worker counts that a job may run on, as users and annotations spell them."""

from collections.abc import Iterable
from typing import Final, cast

MOST_WORKERS: Final = 4096
WIDEST_UNNAMED: Final = 8  # workers that a job may get that names no widths
AUTO: Final = "auto"
HELP: Final = 'write 3, (1, 2, 4), "1..4" or "auto"'
_LONGEST_TEXT: Final = 32_768


def parse_widths(text: str) -> tuple[int, ...] | None:
    """Read "3", "1,2,4", "1..4" or "auto" (None); ValueError says what is wrong."""
    compact = text.strip()
    if compact == AUTO:
        return None
    if len(compact) > _LONGEST_TEXT:
        raise ValueError(f"{len(compact)} characters are too many; write a range such as 1..4")
    widths: set[int] = set()
    for part in compact.split(","):
        least, dots, most = part.strip().partition("..")
        if not _is_count(least) or (dots and not _is_count(most)):
            raise ValueError(f"{part.strip()[:40]!r} is no worker count; {HELP}")
        first, last = int(least), int(most or least)
        if last < first:
            raise ValueError(f"{part.strip()} runs backwards; write {last}..{first}")
        if last > MOST_WORKERS:
            raise ValueError(f"{last} workers are more than the {MOST_WORKERS} allowed")
        widths.update(range(first, last + 1))
    return tuple(sorted(widths))


def format_widths(widths: tuple[int, ...] | None) -> str:
    """The shortest spelling that parse_widths reads back: auto, 3, 1,2,4 or 1..4."""
    if widths is None:
        return AUTO
    if len(widths) > 2 and widths == tuple(range(widths[0], widths[-1] + 1)):
        return f"{widths[0]}..{widths[-1]}"
    return ",".join(str(width) for width in widths)


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 9


def widths_of(value: object) -> tuple[object, ...] | None:
    """Any spelling as a tuple in order without repetitions; its members are not checked yet."""
    if value is None:
        return None
    if isinstance(value, str):
        return parse_widths(value)
    if isinstance(value, int | float):
        return (value,)
    if not isinstance(value, Iterable):
        raise ValueError(f"{value!r} is no worker count; {HELP}")  # noqa: TRY004 - one error kind
    if isinstance(value, range) and len(value) > MOST_WORKERS:
        raise ValueError(f"{value!r} goes beyond the {MOST_WORKERS} workers allowed")
    members = tuple(value)
    whole_numbers = [row for row in members if isinstance(row, int) and not isinstance(row, bool)]
    return tuple(sorted(set(whole_numbers))) if len(whole_numbers) == len(members) else members


def check_widths(value: object) -> tuple[int, ...] | None:
    if value is None:
        return None
    if not isinstance(value, tuple) or not value:
        raise ValueError(f"{value!r} names no worker count; {HELP}")
    for width in value:
        check_whole_within(width, least=1, most=MOST_WORKERS, what="workers")
    widths = cast("tuple[int, ...]", value)
    if widths != tuple(sorted(set(widths))):
        raise ValueError(f"{widths} is not in order without repetitions")
    return widths


def check_whole_within(value: object, *, least: int, most: int, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{value!r} is not a whole number of {what}")  # noqa: TRY004 - one kind
    if not least <= value <= most:
        raise ValueError(f"{value} {what}: from {least} to {most} are allowed")
    return value


def widths_within(widths: tuple[int, ...], most: int) -> tuple[int, ...]:
    """Those of the widths that are at most `most`; the least alone if all are wider."""
    return tuple(width for width in widths if width <= most) or widths[:1]
