"""Sealing anew what stands on Jobs, where the seal's key was lost and the store knows their verdicts."""

from collections.abc import Callable, Iterator
from typing import Final

from laxity import json_tree, names
from laxity_k8s.cluster_api import CONFLICT, ApiError, ClusterApi, Json, Patch
from laxity_k8s.objects.seal import Seal

ATTEMPTS: Final = 5  # the Job controller writes a Job's status a few times as its pods come and go


def reseal_jobs(api: ClusterApi, seal: Seal, knows: Callable[[Json], bool]) -> Iterator[Json]:
    """Seal the outputs of all Jobs whose verdict is known; the Jobs as they are then.

    What cannot be written (the Job is gone, no rights) is left, and judged anew.
    """
    for job in api.list("jobs", selector=names.MANAGED).items:
        resealed = _reseal_job(api, seal, job, knows)
        if resealed is not None:
            yield resealed


def _reseal_job(
    api: ClusterApi, seal: Seal, job: Json, knows: Callable[[Json], bool]
) -> Json | None:
    for _ in range(ATTEMPTS):
        if seal.believe_job(job) is job or not knows(job):
            return None
        try:
            return api.patch(_build_patch(seal, job))
        except ApiError as error:
            if error.status != CONFLICT:
                return None
        job = _read_again(api, job)
    return None


def _build_patch(seal: Seal, job: Json) -> Patch:
    notes = {names.SEAL: seal.seal_of(job, json_tree.annotations_of(job))}
    meta = {"annotations": notes, "resourceVersion": job["metadata"]["resourceVersion"]}
    return Patch("jobs", json_tree.object_id(job), {"metadata": meta})


def _read_again(api: ClusterApi, job: Json) -> Json:
    """The Job as it is now; as it was if it cannot be read."""
    try:
        return api.get("jobs", json_tree.object_id(job))
    except ApiError:
        return job
