"""Why a worker other than 0 failed: a small file in the job's folder, told by worker 0.

Only worker 0 reports to the service. Where another worker fails first, the Job ends and worker 0
gets SIGTERM: without this file it would say that it was stopped, and nobody would say why.
"""

import json
import os
import time
from pathlib import Path
from typing import Final

FILE: Final = "failure.json"
EARLIEST_S: Final = 10.0  # workers of one start begin together, give or take this


def leave(folder: Path, rank: int, error: str) -> None:
    """Write why this worker failed, whole or not at all; a full disk is no second failure."""
    aside = folder / f".{FILE}-{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        aside.write_text(json.dumps({"rank": rank, "error": error, "at": time.time()}), "utf-8")
        aside.replace(folder / FILE)
    except OSError:
        aside.unlink(missing_ok=True)


def read_failure(folder: Path, *, since: float) -> str:
    """What a worker of this start left behind: "worker 2: ..."; "" if none did."""
    try:
        left = json.loads((folder / FILE).read_text("utf-8"))
        fresh = float(left["at"]) >= since - EARLIEST_S
        return f"worker {int(left['rank'])}: {left['error']}" if fresh else ""
    except (OSError, ValueError, KeyError, TypeError):
        return ""
