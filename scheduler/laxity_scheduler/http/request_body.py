"""Bodies of requests: JSON that can be kept anywhere, and a word to the sender where reading fails."""

import json
import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from laxity.job.qos import QoSError
from laxity_scheduler.http.responses import Problem
from laxity_scheduler.live import DuplicateJobError, UnknownJobError

LOG: Final = logging.getLogger(__name__)
MOST_DEEP: Final = 100  # objects in objects; what a Job may hold has a tenth of it


@contextmanager
def readable(field: str) -> Iterator[None]:
    """Where the body is read: what raises for its types or values is told to its sender.

    Readers name what is wrong. This is for what they have missed, and logged for that.
    """
    try:
        yield
    except (QoSError, UnknownJobError, DuplicateJobError):
        raise
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        LOG.warning("a %s could not be read", field, exc_info=error)
        words = f"something in it cannot be used ({type(error).__name__}: {str(error)[:200]})"
        raise Problem(422, "invalid", words, field) from error


def plain(value: object) -> None:
    """The body as JSON that can be kept anywhere: no NaN, no lone surrogate, not without depth."""
    level, depth = [value], 0
    while level and depth <= MOST_DEEP:
        level = [one for part in level for one in _parts(part)]
        depth += 1
    if level:
        raise Problem(422, "invalid", f"the body is more than {MOST_DEEP} objects or lists deep")
    try:
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise Problem(422, "invalid", f"the body is no JSON that can be kept: {error}") from error


def _parts(value: object) -> Iterable[object]:
    """What is in an object or a list; nothing in anything else."""
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()
