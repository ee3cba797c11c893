"""What is kept of a training function's result: all that is JSON, and a short text of the rest.

The training is done when its function returns, so no result may undo that. A result travels to the
service and to the flow as JSON; a model belongs into `training.folder` or MLflow.
"""

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from laxity.job.parameters import unfold

LONGEST_RESULT: Final = 262_144  # characters of JSON; the service keeps no more
LONGEST_TEXT: Final = 200
DEEPEST: Final = 50
_INTEGERS: Final = range(-(2**63), 2**63)  # what every reader of JSON takes


def plain_result(result: Any) -> tuple[Any, str]:
    """The result as JSON, and what of it is kept only as a text ("" if nothing is)."""
    odd: list[str] = []
    json_result = json_part(result, odd, "", depth=0)
    if len(json.dumps(json_result)) > LONGEST_RESULT:
        return _short_text(result), f"more than {LONGEST_RESULT // 1024} KiB of JSON"
    return json_result, ", ".join(dict.fromkeys(odd))[:LONGEST_TEXT]


def json_part(value: Any, odd: list[str], where: str, *, depth: int) -> Any:
    if isinstance(value, Mapping) and depth < DEEPEST:
        return {
            str(key): json_part(part, odd, f"{where}[{key!r}]", depth=depth + 1)
            for key, part in value.items()
        }
    if isinstance(value, set | frozenset):
        value = sorted(value, key=repr)
    if isinstance(value, list | tuple) and depth < DEEPEST:
        return [
            json_part(part, odd, f"{where}[{n}]", depth=depth + 1) for n, part in enumerate(value)
        ]
    if hasattr(value, "tolist") and depth < DEEPEST:  # numbers and arrays of NumPy and the like
        return json_part(value.tolist(), odd, where, depth=depth + 1)
    if isinstance(value, str | Path):
        return str(value).encode(errors="replace").decode()
    if _is_plain(value):
        return value
    with suppress(TypeError, ValueError):  # a dataclass, a model, an Enum, a date
        unfolded = unfold(value)
        if depth < DEEPEST:
            return json_part(unfolded, odd, where, depth=depth + 1)
    place = f" at {where}" if where else ""
    odd.append(f"{_short_text(value)} of type {type(value).__name__}{place}")
    return _short_text(value)


def _is_plain(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return (
        value is None or isinstance(value, bool) or (isinstance(value, int) and value in _INTEGERS)
    )


def _short_text(value: Any) -> str:
    """As Python shows it, in short; an object of the user's may fail at that."""
    try:
        shown = repr(value)
    except Exception:  # noqa: BLE001 - the user's own code
        shown = f"<{type(value).__name__}>"
    shown = shown.encode(errors="replace").decode()
    return shown if len(shown) <= LONGEST_TEXT else f"{shown[: LONGEST_TEXT - 3]}..."
