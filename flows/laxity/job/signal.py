"""What a job's workers should do, as a value, as JSON, and as a file in their pod.

The service answers it to worker 0, over HTTP. For pods that cannot reach the service it is an
annotation, seen as a file: a pod sees its own annotations through a downward API volume, never the
Job's. So where no worker comes for a new signal, laxity writes it onto the pod of worker 0; the
kubelet shows it there within seconds (at the latest after its sync period, a minute). The other way
there is only the pod's log: one line that says where the training waits.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from laxity.parsing import whole_number

FOLDER: Final = "/run/laxity"
FILE: Final = "signal"
_PARKED: Final = "saved and waiting at the end of epoch {epoch}, told by signal {generation}"
_PARKED_LINE: Final = re.compile(r"laxity: saved and waiting .* epoch (\d+), told by signal (\d+)$")


@dataclass(frozen=True, slots=True)
class Signal:
    """What a job's workers should do: stop at the epoch's end, or re-form at another width."""

    stop: bool = False
    workers: int | None = None  # width to run at; None: not known
    run_id: str = ""  # the job's MLflow run
    flow_run: str = ""  # id of the Prefect flow run that follows the job, the one that came last
    logs_points: bool = False  # the service logs to MLflow what a last report hands over
    generation: int = 0  # grows with every change of this signal

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, document: object) -> "Signal":
        """Read what `to_json` wrote; TypeError or ValueError if it is something else."""
        if not isinstance(document, Mapping):
            raise TypeError("a signal is a JSON object")
        workers = document.get("workers")
        return cls(
            stop=bool(document.get("stop")),
            workers=int(workers) if workers else None,
            run_id=str(document.get("run_id") or ""),
            flow_run=str(document.get("flow_run") or ""),
            logs_points=document.get("logs_points") is True,
            generation=int(document.get("generation") or 0),
        )


def read_signal_file(path: Path) -> Signal | None:
    """The signal that this file holds; None if it holds none (the kubelet replaces it as a whole)."""
    try:
        return Signal.from_json(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


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
