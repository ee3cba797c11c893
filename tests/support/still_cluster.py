"""A local cluster whose controller stands still."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from laxity_k8s.live_cluster import LiveCluster
from laxity_k8s.local.cluster import open_world, stop_workers
from laxity_k8s.objects import status_annotation
from laxity_scheduler.live import Report

RUNNING = status_annotation.JobStatusRecord(
    resumed_at=1.0, width_changed_at=1.0, wanted=1, terms="x"
)


@contextmanager
def opened(home: Path) -> Iterator[LiveCluster]:
    """A cluster whose controller stands still: no worker is started or stopped."""
    made = open_world(home, lambda _: Report(), nodes={"a": 4})
    made.api.controller.pass_over = lambda _: set()  # type: ignore[attr-defined]
    yield made
    made.close()
    stop_workers(home)
