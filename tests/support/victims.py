"""Jobs that may be stopped, at one instant."""

from typing import Any, Final

from laxity_scheduler.model.job import Job
from tests.support.builders import job

NOW: Final = 10_000.0


def runs(name: str, epochs: int, *, into_s: float = 15.0, **fields: Any) -> Job:
    """A job on one GPU of n0 since long ago, `into_s` seconds into its first epoch."""
    usual: dict[str, Any] = {
        "epochs": epochs,
        "running": 1,
        "epoch_started_at": NOW - into_s,
        "resumed_at": NOW - 5_000.0,
    }
    return job(name, **(usual | fields))
