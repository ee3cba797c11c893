"""A Job as JSON, read as its row."""

from typing import Any

from laxity_k8s.cluster_api import Json
from laxity_k8s.objects.jobs import job_row
from laxity_scheduler.live import Report
from laxity_scheduler.model.job import Job


def row(made: Json, pods: tuple[Json, ...] = (), report: Report | None = None, **more: Any) -> Job:
    found = job_row(made, pods, report or Report(), **more)
    assert isinstance(found, Job), found
    return found
