"""A local cluster whose controller stands still."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

import pytest

from laxity_k8s.live_cluster import LiveCluster
from laxity_k8s.local import control_loop
from laxity_k8s.local.local_cluster import open_world, stop_workers
from laxity_k8s.objects import status_annotation
from laxity_scheduler.job_faults import JobFaults
from laxity_scheduler.live import Report

ONE_NODE = MappingProxyType({"a": 4})
RUNNING = status_annotation.JobStatusRecord(
    resumed_at=1.0, width_changed_at=1.0, wanted=1, terms="x"
)


@contextmanager
def opened(
    home: Path, *, nodes: Mapping[str, int] = ONE_NODE, faults: JobFaults | None = None
) -> Iterator[LiveCluster]:
    """A cluster whose controller stands still: no worker is started or stopped."""
    with standing_still():
        made = open_world(home, lambda _: Report(), nodes=nodes, faults=faults)
        yield made
        made.close()
        stop_workers(home)


@contextmanager
def standing_still() -> Iterator[None]:
    """Controllers that begin meanwhile do nothing, from the first moment on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(control_loop.Controller, "pass_over", lambda *_: set())
        yield
