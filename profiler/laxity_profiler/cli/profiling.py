"""Profiling runs: the same training, a few epochs in each of four configurations, as ordinary jobs.

They pass through the service as best effort like any other job, so their epochs are history of the
model by themselves; they run one after the other, so that they do not slow one another down. Which
four of the asked widths (and batch sizes, if the function takes one) is the full-rank choice of
scaling.py.
"""

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from laxity import names
from laxity.cli.exit_codes import USAGE, CommandError
from laxity_profiler.model.scaling import four_points
from laxity_profiler.model_key import DEFAULT, model_key

if TYPE_CHECKING:
    from laxity.api.client import Client

Json = dict[str, Any]
POLL_S: Final = 20.0
LONGEST_BASE: Final = 36  # characters of a job's name before ours
BATCH_PARAMETERS: Final = ("batch_size", "global_batch_size", "batch")
_NOT_OURS: Final = (names.DEADLINE, names.IDEMPOTENCY_KEY, names.ON_MISS, names.SUBMITTED_AT)


@dataclass(frozen=True, slots=True)
class ProfilingRun:
    """One run: its configuration and its Job. Without a batch size, the training's own."""

    width: int
    batch_size: int | None
    manifest: Json


@dataclass(frozen=True, slots=True)
class ProfilingPlan:
    """The runs; the model's key as the history will know it; all batch sizes asked."""

    model: str
    batch_sizes: tuple[int | None, ...]
    runs: tuple[ProfilingRun, ...]


@dataclass(frozen=True, slots=True)
class ProfileRequest:
    """What to profile. No batch sizes: the function's own and half of it, if it has one."""

    source: str
    widths: Sequence[int]
    batch_sizes: Sequence[int] = ()
    epochs: int = 3
    model: str | None = None
    params: Sequence[str] = ()
    gpus_per_node: int = 8


def plan_runs(request: ProfileRequest) -> ProfilingPlan:
    """One Job per chosen configuration, without a deadline."""
    options = {
        names.WIDTHS: str(request.widths[0]),
        names.EPOCHS: str(request.epochs),
        names.MODEL: request.model,
    }
    first = _job_of_source(request, options, name=None)
    base = first["metadata"]["name"][:LONGEST_BASE].rstrip("-")
    annotations = first["metadata"]["annotations"]
    options[names.MODEL] = annotations.get(names.MODEL, base)
    takes = batch_parameter(annotations)
    batches = _batch_sizes(request, takes, annotations)
    runs = []
    for batch, width in _choose_configurations(batches, request):
        suffix = f"w{width}" if batch is None or len(batches) < 2 else f"w{width}-b{batch}"
        name = f"{base}-{suffix}-{uuid.uuid4().hex[:6]}"
        params = [*request.params, f"{takes}={batch}"] if takes and batch else request.params
        options[names.WIDTHS] = str(width)
        manifest = _job_of_source(request, options, name=name, params=params)
        runs.append(ProfilingRun(width, batch, _profiling_manifest(manifest, batch)))
    key = model_key(first["metadata"].get("namespace") or DEFAULT, str(options[names.MODEL]))
    return ProfilingPlan(key, tuple(batches), tuple(runs))


def batch_parameter(annotations: Json) -> str | None:
    """The name of the function's parameter that is a batch size, if it has one."""
    try:
        parameters = json.loads(annotations.get(names.PARAMETERS, "{}"))
    except ValueError:
        return None
    return next((name for name in BATCH_PARAMETERS if _is_size(parameters.get(name))), None)


def run(client: "Client", manifest: Json) -> None:
    """Submit the Job and wait for its end; CommandError if it did not finish.

    Nobody but us wants a probe: who interrupts us leaves none behind.
    """
    job = client.submit(manifest)
    try:
        while not job.ended:
            job = client.job(job.id, wait_s=POLL_S, seen=job.revision)
    except KeyboardInterrupt:
        client.cancel(job.id)
        raise
    if job.state != "finished":
        raise CommandError(
            f"{job.id} is {job.state}: {job.error or job.reason or 'no reason said'}"
        )


def _batch_sizes(request: ProfileRequest, takes: str | None, annotations: Json) -> list[int | None]:
    """All batch sizes to predict for; [None] where the training has none that we could set."""
    if not takes:
        if request.batch_sizes:
            parameter_names = " or ".join(BATCH_PARAMETERS)
            message = f"{request.source} has no parameter {parameter_names}: --batch-sizes cannot be passed on"
            raise CommandError(message, code=USAGE)
        return [int(annotations[names.BATCH_SIZE]) if names.BATCH_SIZE in annotations else None]
    own = int(json.loads(annotations[names.PARAMETERS])[takes])
    return [*sorted(set(request.batch_sizes or {max(1, own // 2), own}))]


def _choose_configurations(
    batches: Sequence[int | None], request: ProfileRequest
) -> list[tuple[int | None, int]]:
    """Four configurations, least width first: what takes longest shows first whether it works."""
    if batches[0] is None:
        widths = four_points([1], request.widths, gpus_per_node=request.gpus_per_node)
        return [(None, width) for _, width in widths]
    sizes = [size for size in batches if size is not None]
    points = four_points(sizes, request.widths, gpus_per_node=request.gpus_per_node)
    return sorted(points, key=lambda point: (point[1], point[0]))


def _job_of_source(
    request: ProfileRequest,
    options: dict[str, str | None],
    *,
    name: str | None,
    params: Sequence[str] | None = None,
) -> Json:
    """The one Job of a source. Its name stands in the pods' environment too: it is given here."""
    from laxity.cli.job_source import job_manifests

    params = request.params if params is None else params
    jobs = job_manifests(request.source, options, name=name, namespace=None, params=params)
    if len(jobs) != 1:
        raise CommandError(f"{request.source} holds {len(jobs)} Jobs; name one", code=USAGE)
    return jobs[0]


def _profiling_manifest(manifest: Json, batch: int | None) -> Json:
    """The Job without a deadline, as best effort; its batch size is said, so that it is remembered."""
    metadata = manifest["metadata"]
    annotations = {
        key: text for key, text in metadata["annotations"].items() if key not in _NOT_OURS
    }
    size = {} if batch is None else {names.BATCH_SIZE: str(batch)}
    changed = {
        "annotations": annotations | {names.CLASS: "best_effort"} | size,
        "labels": metadata.get("labels", {}) | {names.CLASS_LABEL: "best_effort"},
    }
    return manifest | {"metadata": metadata | changed}


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
