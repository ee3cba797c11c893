"""Bodies of requests: checked to be JSON that any database keeps; errors while reading are answered."""

import json
import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from laxity.job.qos import QoSError
from laxity_scheduler.http.responses import Problem
from laxity_scheduler.live import DuplicateJobError, UnknownJobError

LOG: Final = logging.getLogger(__name__)
MAX_DEPTH: Final = 100  # objects in objects; what a Job may hold has a tenth of it


@contextmanager
def reading_body(field: str) -> Iterator[None]:
    """Answer 422 where reading the body raises for its types or values.

    Readers name what is wrong themselves. What they miss is logged here.
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
        message = f"something in it cannot be used ({type(error).__name__}: {str(error)[:200]})"
        raise Problem(422, "invalid", message, field) from error


def check_json(value: object) -> None:
    """Problem unless the body is JSON that any database keeps: no NaN or lone surrogate, limited depth."""
    level, depth = [value], 0
    while level and depth <= MAX_DEPTH:
        level = [child for value_ in level for child in _children_of(value_)]
        depth += 1
    if level:
        raise Problem(422, "invalid", f"the body is more than {MAX_DEPTH} objects or lists deep")
    try:
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise Problem(422, "invalid", f"the body is no JSON that can be kept: {error}") from error


def _children_of(value: object) -> Iterable[object]:
    """The values in an object or a list; none for anything else."""
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()
