"""A manifest from outside becomes the Job that is created: suspended, labelled, once per key.

An idempotency key names one piece of work. It attaches to the Job that has it, alive or finished;
after a failure it begins attempt n + 1 under a new name, with the deadline of the first.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import orjson

from laxity import names
from laxity.checked import whole_number
from laxity.qos import QoSError, raise_all
from laxity.spec import MOST_ATTEMPTS, TrainingSpec
from laxity.told import complete
from laxity_k8s import merge, pods
from laxity_k8s.admission import condition
from laxity_k8s.api import ApiError, ClusterApi, Json
from laxity_k8s.limits import Limits
from laxity_k8s.objects import managed
from laxity_k8s.shapes import JOB, misfits
from laxity_scheduler.engine import DuplicateJobError, Manifest

LONGEST_NAME = 63
NOT_SAID = frozenset((*names.OUTPUTS, names.PIN))


def submit(
    api: ClusterApi,
    jobs: Iterable[Json],
    manifest: Manifest,
    *,
    now: float,
    limits: Limits | None = None,
) -> Json:
    """Create the Job, or return the one that its key attaches to.

    QoSError names what is wrong with the manifest, or not allowed in its namespace;
    DuplicateJobError if the name is taken.
    """
    job = prepared(manifest, now=now)
    TrainingSpec.from_manifest(job)
    if limits is not None:
        limits.check(job)
    key = merge.annotations(job).get(names.IDEMPOTENCY_KEY)
    before = latest_attempt(jobs, str(job["metadata"]["namespace"]), key)
    if before is not None and condition(before, "Failed") != "True":
        return before
    if before is not None:
        job = next_attempt(job, before)
    try:
        return api.create("jobs", job)
    except ApiError as error:
        if error.status != 409:
            raise
    return _existing(api, job, key)


def prepared(manifest: Manifest, *, now: float) -> Json:
    """The manifest as laxity wants it: labelled, suspended, with the time of its submission.

    Its workers are told what they need to know of it (laxity.told).
    """
    job = _copied(manifest)
    metadata = job["metadata"] = _object(job, "metadata")
    for field in ("resourceVersion", "uid", "creationTimestamp", "generation", "managedFields"):
        metadata.pop(field, None)
    metadata.setdefault("namespace", "default")
    metadata["labels"] = {**_object(metadata, "labels"), names.MANAGED: "true"}
    metadata["labels"].pop(names.VERDICT_LABEL, None)
    said = {k: v for k, v in _object(metadata, "annotations").items() if k not in NOT_SAID}
    at = datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds")
    said.setdefault(names.SUBMITTED_AT, at.replace("+00:00", "Z"))
    metadata["annotations"] = said
    job["spec"] = {**_object(job, "spec"), "suspend": True}
    job.pop("status", None)
    _one_gpu(job)
    complete(job)
    check_shape(job)
    return job


def check_shape(manifest: Manifest) -> None:
    """QoSError names every field whose type is not that of the API."""
    raise_all(QoSError(where, what) for where, _, what in map(_parted, misfits(manifest, JOB)))


def _parted(problem: str) -> tuple[str, str, str]:
    return problem.partition(": ")


def _copied(manifest: object) -> Json:
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
    found = [
        job
        for job in jobs
        if managed(job)
        and merge.dig(job, "metadata", "namespace") == namespace
        and merge.annotations(job).get(names.IDEMPOTENCY_KEY) == key
    ]
    return max(found, key=attempt, default=None)


def attempt(job: Json) -> int:
    said = merge.annotations(job).get(names.ATTEMPT)
    return whole_number(said, least=1, most=MOST_ATTEMPTS) or 1


def next_attempt(job: Json, before: Json) -> Json:
    """The Job once more: another name, the first submission's time, and so the first deadline."""
    number = attempt(before) + 1
    base = str(before["metadata"]["name"]).removesuffix(f"-a{number - 1}")
    suffix = f"-a{number}"
    name = f"{base[: LONGEST_NAME - len(suffix)].rstrip('-')}{suffix}"
    said = {**merge.annotations(job), names.ATTEMPT: str(number)}
    first = merge.annotations(before).get(names.SUBMITTED_AT)
    if first is not None:
        said[names.SUBMITTED_AT] = first
    again = _copied(job)
    again["metadata"] |= {"name": name, "annotations": said}
    for row in merge.items(again, "spec", "template", "spec", "containers", 0, "env"):
        if row.get("name") == names.ENV_JOB:
            row["value"] = f"{again['metadata']['namespace']}/{name}"
    return again


def _existing(api: ClusterApi, job: Json, key: str | None) -> Json:
    """Somebody was quicker: the same key is the same job, anything else is a duplicate."""
    job_id = merge.identity(job)
    there = api.get("jobs", job_id)
    same = key is not None and merge.annotations(there).get(names.IDEMPOTENCY_KEY) == key
    if same and condition(there, "Failed") != "True":
        return there
    raise DuplicateJobError(
        f"job {job_id} exists already and is another one: choose another name, "
        "or give both the same idempotency key"
    )


def _one_gpu(job: Json) -> None:
    """A worker that says nothing of GPUs gets one: what is not counted cannot be promised."""
    pods.check_gpus(merge.table(job, "spec", "template"))
    containers = merge.items(job, "spec", "template", "spec", "containers")
    if containers and isinstance(containers[0], dict) and not pods.gpus(job["spec"]["template"]):
        resources: Any = containers[0].setdefault("resources", {})
        if isinstance(resources, dict):
            resources["limits"] = {**_object(resources, "limits"), pods.GPU: "1"}


def _object(parent: Json, key: str) -> Json:
    """A copy of an object, empty where there is none; QoSError where it is something else."""
    value = parent.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise QoSError(key, f"{value!r:.60} is no object")
    return dict(value)
