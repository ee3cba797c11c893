"""Profiling runs: the same training, a few epochs at each width, as ordinary best-effort jobs.

They pass through the service like any other job, so their epochs are history of the model by
themselves; they run one after the other, so that they do not slow one another down.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from laxity import names
from laxity.exits import USAGE, CommandError

if TYPE_CHECKING:
    from laxity.client import Client

Json = dict[str, Any]
POLL_S: Final = 20.0
LONGEST_BASE: Final = 40  # characters of a job's name before ours
_NOT_OURS: Final = (names.DEADLINE, names.IDEMPOTENCY_KEY, names.ON_MISS, names.SUBMITTED_AT)
_SETTING: Final = {
    names.SAMPLES: "samples",
    names.BATCH_SIZE: "batch_size",
    names.DATASET_BYTES: "dataset_bytes",
}


@dataclass(frozen=True, slots=True)
class Probes:
    """The jobs to run, by width; the model and its setting as the history will know them."""

    model: str
    setting: dict[str, Any]
    jobs: tuple[tuple[int, Json], ...]


def probes(
    source: str,
    widths: Sequence[int],
    *,
    epochs: int,
    model: str | None,
    params: Sequence[str],
) -> Probes:
    """One Job per width, without a deadline."""
    jobs = []
    for width in widths:
        given = {names.WIDTHS: str(width), names.EPOCHS: str(epochs), names.MODEL: model}
        first = _asked(source, given, name=None, params=params)
        base = first["metadata"]["name"][:LONGEST_BASE].rstrip("-")
        name = f"{base}-w{width}-{uuid.uuid4().hex[:6]}"
        given[names.MODEL] = first["metadata"]["annotations"].get(names.MODEL, base)
        jobs.append((width, _probe(_asked(source, given, name=name, params=params))))
    said = jobs[0][1]["metadata"]["annotations"]
    setting = {field: int(said[key]) for key, field in _SETTING.items() if key in said}
    return Probes(str(said.get(names.MODEL, "")), setting, tuple(jobs))


def run(client: "Client", manifest: Json) -> None:
    """Submit the Job and wait for its end; CommandError if it did not finish."""
    job = client.submit(manifest)
    while not job.ended:
        job = client.job(job.id, wait_s=POLL_S, seen=job.revision)
    if job.state != "finished":
        raise CommandError(
            f"{job.id} is {job.state}: {job.error or job.reason or 'no reason said'}"
        )


def _asked(
    source: str, given: dict[str, str | None], *, name: str | None, params: Sequence[str]
) -> Json:
    """The one Job of a source. Its name stands in the pods' environment too: it is given here."""
    from laxity.asked import asked_jobs

    found = asked_jobs(source, given, name=name, namespace=None, params=params)
    if len(found) != 1:
        raise CommandError(f"{source} holds {len(found)} Jobs; name one", code=USAGE)
    return found[0]


def _probe(manifest: Json) -> Json:
    """The Job without a deadline, as best effort."""
    metadata = manifest["metadata"]
    said = {key: text for key, text in metadata["annotations"].items() if key not in _NOT_OURS}
    changed = {
        "annotations": said | {names.CLASS: "best_effort"},
        "labels": metadata.get("labels", {}) | {names.CLASS_LABEL: "best_effort"},
    }
    return manifest | {"metadata": metadata | changed}
