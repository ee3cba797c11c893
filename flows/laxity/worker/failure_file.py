"""Why a worker other than 0 failed: a small file in the job's folder, told by worker 0.

Only worker 0 reports to the service. Where another worker fails first, the Job ends and worker 0
gets SIGTERM: without this file it would say that it was stopped, and nobody would say why.
"""

import json
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from laxity.durable_files import replace_file

FILE: Final = "failure.json"
EARLIEST_S: Final = 10.0  # workers of one start begin together, give or take this


def write_failure(folder: Path, rank: int, error: str) -> None:
    """Write why this worker failed, whole or not at all; a full disk is no second failure."""
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"rank": rank, "error": error, "at": time.time()})
        replace_file(folder / FILE, text)


def read_failure(folder: Path, *, since: float) -> str:
    """What a worker of this start left behind: "worker 2: ..."; "" if none did."""
    try:
        left = json.loads((folder / FILE).read_text("utf-8"))
        fresh = float(left["at"]) >= since - EARLIEST_S
        return f"worker {int(left['rank'])}: {left['error']}" if fresh else ""
    except (OSError, ValueError, KeyError, TypeError):
        return ""
