"""A time limit as Slurm writes it: minutes, MM:SS, HH:MM:SS, D-HH[:MM[:SS]] or UNLIMITED."""

import math
import re
from typing import Final

from laxity_scheduler.model.job import DAY_S, HOUR_S, MINUTE_S

_LIMIT: Final = re.compile(
    r"(?:([0-9]{1,9})-)?([0-9]{1,9})(?::([0-9]{1,9}))?(?::([0-9]{1,9}))?",
)


def parse_time_limit_s(text: str) -> float:
    """Seconds, infinite for UNLIMITED. ValueError for anything else."""
    if text.upper() == "UNLIMITED":
        return math.inf
    match = _LIMIT.fullmatch(text)
    if match is None:
        raise ValueError(
            f"the time limit is {text!r}, not minutes, HH:MM:SS, D-HH:MM:SS or UNLIMITED"
        )
    days, *parts = match.groups()
    numbers = [int(part) for part in parts if part is not None]
    if days is None and len(numbers) < len(parts):
        numbers = [0, *numbers]  # without hours
    hours, minutes, seconds = [*numbers, 0, 0][:3]
    return int(days or 0) * DAY_S + hours * HOUR_S + minutes * MINUTE_S + seconds
