"""What a worker should do, for pods that cannot reach the service: an annotation, seen as a file.

A pod sees its own annotations through a downward API volume, never the Job's. So where no worker
comes for a new signal, laxity writes it onto the pod of worker 0; the kubelet shows it there within
seconds (at the latest after its sync period, a minute). The other way there is only the pod's log:
one line that says where the training waits.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from laxity.parsing import whole_number

FOLDER: Final = "/run/laxity"
FILE: Final = "signal"
_PARKED: Final = "saved and waiting at the end of epoch {epoch}, told by signal {generation}"
_PARKED_LINE: Final = re.compile(r"laxity: saved and waiting .* epoch (\d+), told by signal (\d+)$")


def read_orders(path: Path) -> Mapping[str, Any] | None:
    """The signal that this file holds; None if it holds none (the kubelet replaces it as a whole)."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) else None


def format_parked_line(*, epoch: int, generation: int) -> str:
    """What worker 0 says in its log when it waits and nobody takes its reports."""
    return _PARKED.format(epoch=epoch, generation=generation)


def read_parked_epoch(log: str, *, generation: int) -> int | None:
    """The epoch at whose end a worker waits since this signal, by its log."""
    for line in reversed(log.splitlines()):
        match = _PARKED_LINE.fullmatch(line.strip())
        if match and (whole_number(match[2]) or 0) >= generation:
            return whole_number(match[1])
    return None
