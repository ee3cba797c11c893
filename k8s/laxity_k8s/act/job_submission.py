"""A manifest from outside becomes the Job that is created: suspended, labelled, once per key.

An idempotency key names one piece of work. It attaches to the Job that has it, alive or finished;
after a failure it begins attempt n + 1 under a new name, with the deadline of the first; after a
refusal it asks again, and the refused Job, which has run nothing, gives way to the new one.
"""

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
from laxity_k8s.act.namespace_limits import Limits
from laxity_k8s.act.submission_differences import of_terms, of_training
from laxity_k8s.cluster_api import CONFLICT, ApiError, ClusterApi, Json
from laxity_k8s.objects import pods
from laxity_k8s.objects.attempts import attempt_number, begins_anew, next_attempt, rename_job
from laxity_k8s.objects.conditions import read_condition
from laxity_k8s.objects.job_schema import JOB, type_errors
from laxity_k8s.objects.jobs import is_managed
from laxity_k8s.objects.status_annotation import read_status, read_verdict
from laxity_scheduler.live import DuplicateJobError, Manifest, Reports
from laxity_scheduler.model.verdict import Refusal

NOT_SAID: Final = frozenset((*names.OUTPUTS, names.PIN, names.TRAINING, names.FIRST_TERMS))
OTHER_TRAINING: Final = "Use another key"
OTHER_AFTER_FAILURE: Final = "Use another key, or begin anew (--fresh, or fresh=True)"
OTHER_TERMS: Final = (
    "Change a running job with: laxity amend {job} --deadline ..., or use another key"
)


def submit_job(
    api: ClusterApi,
    jobs: Iterable[Json],
    manifest: Manifest,
    *,
    reports: Reports,
    now: float,
    limits: Limits | None = None,
) -> Json:
    """Create the Job, or return the one that its key attaches to.

    QoSError names what is wrong with the manifest, or not allowed in its namespace;
    DuplicateJobError if the name is taken, or if the key names a job of another declaration: in what
    they differ.
    """
    job = check_manifest(manifest, now=now, is_local=api.is_local, limits=limits)
    key = json_tree.annotations_of(job).get(names.IDEMPOTENCY_KEY)
    before = latest_attempt(jobs, str(job["metadata"]["namespace"]), key)
    if before is not None:
        return _of_key(api, job, before, reports)
    try:
        return api.create("jobs", job)
    except ApiError as error:
        if error.status != CONFLICT:
            raise
    there = api.get("jobs", json_tree.object_id(job))
    if key is None or json_tree.annotations_of(there).get(names.IDEMPOTENCY_KEY) != key:
        raise DuplicateJobError(
            f"job {json_tree.object_id(job)} exists already and is another one: choose another name (in a file, generateName makes one), "
            "or give both the same idempotency key"
        )
    return _of_key(api, job, there, reports)  # somebody was quicker


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


def latest_attempt(jobs: Iterable[Json], namespace: str, key: str | None) -> Json | None:
    """The Job of the highest attempt with this key in this namespace."""
    if key is None:
        return None
    attempts = [
        job
        for job in jobs
        if is_managed(job)
        and json_tree.get_in(job, "metadata", "namespace") == namespace
        and json_tree.annotations_of(job).get(names.IDEMPOTENCY_KEY) == key
    ]
    return max(attempts, key=attempt_number, default=None)


def _of_key(api: ClusterApi, job: Json, before: Json, reports: Reports) -> Json:
    """The Job of this key: the one before, or another one after its failure or refusal."""
    if read_condition(before, "Failed") == "True":
        if not begins_anew(job):
            _check_same(before, of_training(before, job), OTHER_AFTER_FAILURE)
        return api.create("jobs", next_attempt(job, before, reports(before["metadata"]["uid"])))
    if read_condition(before, "Complete") == "True":
        _check_same(before, of_training(before, job), OTHER_TRAINING)
        return before
    if isinstance(read_verdict(before), Refusal) and read_status(before).resumed_at is None:
        api.delete("jobs", json_tree.object_id(before), uid=before["metadata"]["uid"])
        rename_job(job, before["metadata"]["name"])
        return api.create("jobs", job)
    _check_same(before, of_training(before, job), OTHER_TRAINING)
    _check_same(before, of_terms(before, job), OTHER_TERMS)
    return before


def _check_same(before: Json, differences: Sequence[str], remedy: str) -> None:
    if differences:
        job_id = json_tree.object_id(before)
        key = json_tree.annotations_of(before).get(names.IDEMPOTENCY_KEY)
        raise DuplicateJobError(
            f"idempotency key {key!r} is that of {job_id}, which is another declaration: "
            f"{'; '.join(differences)}. {remedy.format(job=job_id)}"
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
