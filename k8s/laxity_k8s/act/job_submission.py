"""A manifest from outside becomes the Job that is created: suspended, labelled, once per key."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import orjson

from laxity import json_tree, names
from laxity.instants import format_rfc3339
from laxity.job.accelerators import GPU, main_accelerator
from laxity.job.complete_manifest import complete_manifest
from laxity.job.pod_template import DEFAULT_IMAGE
from laxity.job.qos import QoSError, raise_all
from laxity.job.spec import TrainingSpec
from laxity_k8s.act.key_answer import answer_key
from laxity_k8s.act.namespace_limits import Limits
from laxity_k8s.cluster_api import CONFLICT, NOT_FOUND, ApiError, ClusterApi, Json
from laxity_k8s.objects import pods
from laxity_k8s.objects.attempts import attempt_number
from laxity_k8s.objects.job_schema import JOB, type_errors
from laxity_k8s.objects.jobs import is_being_deleted, is_managed
from laxity_scheduler.live import DuplicateJobError, Manifest, Reports

NOT_SAID: Final = frozenset((*names.OUTPUTS, names.PIN, names.TRAINING, names.FIRST_TERMS))


def submit_job(
    api: ClusterApi,
    jobs: Iterable[Json],
    manifest: Manifest,
    *,
    reports: Reports,
    now: float,
    limits: Limits | None = None,
    cancelled: Sequence[Manifest] = (),
) -> Json:
    """Create the Job, or return the one that its key attaches to (laxity_k8s.act.key_answer).

    `cancelled` are Jobs of its key that are gone, as they were declared.
    QoSError names what is wrong with the manifest, or not allowed in its namespace;
    DuplicateJobError if the name is taken, or if the key names a job of another declaration: in what
    they differ.
    """
    job = check_manifest(manifest, now=now, is_local=api.is_local, limits=limits)
    attempts = find_attempts(jobs, job)
    taken: set[str] = set()
    while True:
        answer = answer_key(job, attempts.values(), reports, taken=taken, cancelled=cancelled)
        if not answer.is_new:
            return answer.job
        if answer.replaced is not None:
            _remove_refused(api, answer.replaced)
            attempts.pop(json_tree.uid_of(answer.replaced))
        try:
            return api.create("jobs", answer.job)
        except ApiError as error:
            if error.status != CONFLICT:
                raise
        there = api.get("jobs", json_tree.object_id(answer.job))
        _check_name(answer.job, there)
        if _key_of(there) != _key_of(job) or json_tree.uid_of(there) in attempts:
            taken.add(str(there["metadata"]["name"]))
        else:
            attempts[json_tree.uid_of(there)] = there  # somebody was quicker


def check_manifest(
    manifest: Manifest, *, now: float, is_local: bool, limits: Limits | None
) -> Json:
    """The Job to create. QoSError names what is wrong with it, or not allowed in its namespace."""
    job = prepare_manifest(manifest, now=now)
    TrainingSpec.from_manifest(job)
    if limits is not None:
        limits.check_job(job)
    if not is_local:
        _check_image(job)
    return job


def prepare_manifest(manifest: Manifest, *, now: float) -> Json:
    """The manifest as laxity wants it: labelled, suspended, with the time of its submission.

    Its workers are told what they need to know of it (laxity.job.complete_manifest).
    """
    job = copy_json(manifest)
    metadata = job["metadata"] = _copy_object(job, "metadata")
    for field in ("resourceVersion", "uid", "creationTimestamp", "generation", "managedFields"):
        metadata.pop(field, None)
    metadata.setdefault("namespace", "default")
    metadata["labels"] = {**_copy_object(metadata, "labels"), names.MANAGED: "true"}
    metadata["labels"].pop(names.VERDICT_LABEL, None)
    annotations = {
        k: v for k, v in _copy_object(metadata, "annotations").items() if k not in NOT_SAID
    }
    annotations.setdefault(names.SUBMITTED_AT, format_rfc3339(now, "milliseconds"))
    metadata["annotations"] = annotations
    job["spec"] = {**_copy_object(job, "spec"), "suspend": True}
    job.pop("status", None)
    _one_gpu(job)
    complete_manifest(job)
    check_shape(job)
    return job


def check_shape(manifest: Manifest) -> None:
    """QoSError names every field whose type is not that of the API."""
    problems = (problem.partition(": ") for problem in type_errors(manifest, JOB))
    raise_all(QoSError(where, what) for where, _, what in problems)


def copy_json(manifest: object) -> Json:
    """A copy of the manifest, which is to be JSON that an API server takes."""
    if not isinstance(manifest, dict):
        raise QoSError("manifest", f"{manifest!r:.60} is no JSON object")
    try:
        job: Json = orjson.loads(orjson.dumps(manifest))
    except (orjson.JSONEncodeError, RecursionError) as error:
        raise QoSError("manifest", f"no JSON that a Job can be made of: {error}") from error
    return job


def find_attempts(jobs: Iterable[Json], job: Json) -> dict[str, Json]:
    """The Jobs with the key of this one, in its namespace, by uid."""
    key, namespace = _key_of(job), job["metadata"]["namespace"]
    return {
        json_tree.uid_of(other): other
        for other in jobs
        if key is not None
        and is_managed(other)
        and not is_being_deleted(other)
        and json_tree.get_in(other, "metadata", "namespace") == namespace
        and _key_of(other) == key
    }


def _key_of(job: Json) -> str | None:
    return json_tree.annotations_of(job).get(names.IDEMPOTENCY_KEY)


def _remove_refused(api: ClusterApi, refused: Json) -> None:
    try:
        api.delete("jobs", json_tree.object_id(refused), uid=json_tree.uid_of(refused))
    except ApiError as error:
        if error.status not in {NOT_FOUND, CONFLICT}:  # gone, or another one by its name
            raise


def _check_name(job: Json, there: Json) -> None:
    """DuplicateJobError unless the Job that has this name can be passed by, or is the key's own."""
    job_id, key = json_tree.object_id(job), _key_of(job)
    if key is not None and _key_of(there) == key:
        if is_being_deleted(there):
            raise DuplicateJobError(f"job {job_id} is being deleted: submit again when it is gone")
    elif attempt_number(job) == 1:
        raise DuplicateJobError(
            f"job {job_id} exists already and is another one: choose another name (in a file, generateName makes one), "
            "or give both the same idempotency key"
        )


def _one_gpu(job: Json) -> None:
    """A worker that says nothing of GPUs gets one: what is not counted cannot be promised."""
    pod = json_tree.mapping_at(job, "spec", "template", "spec")
    main_accelerator(pod)  # QoSError: what is wrong with its numbers
    container = json_tree.get_in(pod, "containers", 0)
    if isinstance(container, dict) and not pods.count_gpus(job["spec"]["template"]):
        resources: Any = container.setdefault("resources", {})
        if isinstance(resources, dict):
            resources["limits"] = {**_copy_object(resources, "limits"), GPU: "1"}


def _check_image(job: Json) -> None:
    """A Job of a function without an image names the Python of the machine that submits it."""
    container = json_tree.get_in(job, "spec", "template", "spec", "containers", 0) or {}
    python = next(iter(json_tree.list_at(container, "command")), "")
    if container.get("image") == DEFAULT_IMAGE and str(python).startswith("/"):
        raise QoSError(
            "image",
            "this service runs jobs on a cluster, where the submitter's folders are not; give an "
            "image that holds the project: image='registry/name:tag', entry='package.module:function'",
        )


def _copy_object(parent: Json, key: str) -> Json:
    """A copy of an object, empty where there is none; QoSError where it is something else."""
    value = parent.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise QoSError(key, f"{value!r:.60} is no object")
    return dict(value)
