"""Progress, as KEP-2779 has it, from a callback of a script that `laxity run` has started."""

import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.request import Request, urlopen

from laxity.names import ENV_PROGRESS_TOKEN as TOKEN
from laxity.names import ENV_PROGRESS_URL as URL

OFF: Final = "DISABLE_KUBEFLOW_INTEGRATION"
PAUSE_S: Final = 1.0
_last_at = [-PAUSE_S]


def takes_progress() -> bool:
    """Whether somebody takes progress of this process, of worker 0 if there are several."""
    is_off = os.environ.get(OFF, "").lower() in {"1", "true", "yes"}
    has_address = bool(os.environ.get(URL) and os.environ.get(TOKEN))
    return has_address and not is_off and os.environ.get("RANK", "0") == "0"


def post_progress(
    step: int, steps: int, figures: Mapping[str, float] | None = None, *, now: bool = False
) -> None:
    """Post it, at most once a second unless `now`. Nobody there is no failure of the training."""
    if not now and time.monotonic() < _last_at[0] + PAUSE_S:
        return
    _last_at[0] = time.monotonic()
    values = {**(figures or {}), "current_step": step, "total_steps": steps}
    metrics = [{"name": name, "value": str(value)} for name, value in values.items()]
    status = {"progressPercentage": int(100 * step / steps), "metrics": metrics}
    with suppress(OSError):
        token = Path(os.environ[TOKEN]).read_text().strip()
        request = Request(  # noqa: S310 - the address that the worker gave
            os.environ[URL],
            json.dumps({"trainerStatus": status}).encode(),
            {"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
        )
        urlopen(request, timeout=5.0).close()  # noqa: S310 - the same
