"""Fields of a line of a trace: read one, or raise ValueError with its name and its value."""

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, TypedDict

from laxity.human_time import count_noun

MOST_GPUS: Final = 100_000
ACCOUNTING: Final = (
    ("UID", -8), ("Start", -7), ("Submit", -6), ("End", -5), ("TimelimitR", -3), ("NNodes", -1)
)  # fmt: skip


def read_accounting(line: str) -> dict[str, str]:
    """The fields of a line of Slurm's accounting in columns, by name; a job's name may hold spaces."""
    fields = line.split()
    least = 10
    if len(fields) < least:
        raise ValueError(f"{len(fields)} fields, at least {least} expected")
    return {"JobID": fields[0]} | {name: fields[place] for name, place in ACCOUNTING}


def read_text(row: Mapping[str, str], column: str) -> str:
    """A cell. A line that is too short has none."""
    value = row.get(column)
    if value is None:
        raise ValueError(f"{column} is missing: the line has {count_noun(len(row), 'cell')}")
    return value.strip()


def read_number(row: Mapping[str, str], column: str) -> float:
    text = read_text(row, column)
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"{column} is {text!r}, not a finite number")
    return value


def read_positive(row: Mapping[str, str], column: str) -> float:
    value = read_number(row, column)
    if value <= 0:
        raise ValueError(f"{column} is {row[column]!r}, not positive")
    return value


def read_whole(row: Mapping[str, str], column: str, *, most: int = MOST_GPUS) -> int:
    value = read_positive(row, column)
    if value != int(value) or value > most:
        raise ValueError(f"{column} is {row[column]!r}, not a whole number up to {most}")
    return int(value)


def read_instant(column: str, text: str) -> float:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{column} is {text!r}, not an ISO date") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


class GroupFields(TypedDict):
    """Of a job that has its deadline together with others."""

    group: str
    step: str
    after: tuple[str, ...]


def read_group(row: Mapping[str, str]) -> GroupFields:
    """The columns `group`, `step` and `after` (names with blanks or commas between), where a trace has them."""
    group, step = (row.get(column, "").strip() for column in ("group", "step"))
    after = tuple(row.get("after", "").replace(",", " ").split())
    if bool(group) != bool(step) or (after and not group):
        raise ValueError(f"group is {group!r} and step {step!r}: a job has both, or neither")
    return GroupFields(group=group, step=step, after=after)
