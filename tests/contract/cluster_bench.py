"""What exams of Cluster APIs are sat on: a cluster, and the words in which they ask it."""

from collections.abc import Callable
from typing import Any, Protocol

import pytest

from laxity import json_tree
from laxity_k8s.cluster_api import ApiError, ClusterApi, Json, Patch
from laxity_k8s.objects import pods
from tests.support.manifests import indexed_job
from tests.support.waiting import Eyes


class Bench(Protocol):
    """A cluster with at least 6 free GPUs, and pods that do as they are told."""

    @property
    def api(self) -> ClusterApi: ...

    def template(self, *, run_s: float | None = None, stop_s: float = 0.0) -> Json:
        """A pod template with one GPU: it succeeds after `run_s` (None: never), and when it is
        deleted it lingers for `stop_s`.
        """
        ...


Question = Callable[[Bench], None]
NAMESPACE = "default"


def named(question: Question) -> str:
    return question.__name__.replace("_", " ")


def job(
    bench: Bench, name: str, *, width: int = 2, suspend: bool = True, **template: Any
) -> tuple[str, Json]:
    """Create an Indexed Job; its id and what the API answered."""
    spec = {"suspend": suspend}
    manifest = indexed_job(name, bench.template(**template), width=width, labels={}, spec=spec)
    return f"{NAMESPACE}/{name}", bench.api.create("jobs", manifest)


def spec(bench: Bench, job_id: str, **changes: Any) -> Json:
    return bench.api.patch(Patch("jobs", job_id, {"spec": changes}))


def resize(bench: Bench, job_id: str, width: int, **changes: Any) -> Json:
    return spec(bench, job_id, parallelism=width, completions=width, **changes)


def running(eyes: Eyes, job_id: str, indexes: set[int]) -> Callable[[], bool]:
    """Exactly these indexes run, and none is on its way out."""
    return lambda: (
        all(pods.is_ready(pod) and not pods.is_terminating(pod) for pod in eyes.pods(job_id))
        and {pods.index_of(pod) for pod in eyes.pods(job_id)} == indexes
        and json_tree.get_in(eyes.job(job_id), "status", "ready") == len(indexes)
    )


def status(eyes: Eyes, job_id: str, field: str) -> Any:
    return json_tree.get_in(eyes.job(job_id), "status", field)


def refused(bench: Bench, patch: Patch) -> int:
    with pytest.raises(ApiError) as refusal:
        bench.api.patch(patch)
    return refusal.value.status
