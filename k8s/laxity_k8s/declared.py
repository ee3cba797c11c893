"""What Jobs declare, read once per text: a Job changes ten times while it runs, what it asks never.

The key is a digest of exactly those fields that reading looks at (laxity.job_reading): outputs of
laxity, status and revisions are not among them. Errors are not kept; wrong Jobs are few.
"""

import hashlib
from typing import Any, Final

import orjson

from laxity import names
from laxity.spec import TrainingSpec
from laxity_k8s import merge
from laxity_k8s.api import Json

MOST: Final = 50_000  # some 2 kB each
_SPECS: Final[dict[bytes, TrainingSpec]] = {}


def declared(job: Json) -> TrainingSpec:
    """The Job's spec. QoSError names every wrong field."""
    try:
        key = _digest(job)
    except (TypeError, ValueError, RecursionError):  # no JSON of an API server: read it as it is
        return TrainingSpec.from_manifest(job)
    spec = _SPECS.get(key)
    if spec is None:
        spec = TrainingSpec.from_manifest(job)
        if len(_SPECS) >= MOST:
            _SPECS.clear()
        _SPECS[key] = spec
    return spec


def _digest(job: Json) -> bytes:
    metadata, spec = job.get("metadata"), job.get("spec")
    container: Any = merge.dig(spec, "template", "spec", "containers", 0)
    read = (
        job.get("apiVersion"),
        job.get("kind"),
        merge.dig(metadata, "name"),
        merge.dig(metadata, "namespace"),
        merge.dig(metadata, "labels"),
        [pair for pair in merge.annotations(job).items() if pair[0] not in names.OUTPUTS],
        merge.dig(spec, "completionMode"),
        merge.dig(spec, "parallelism"),
        [merge.dig(container, field) for field in ("image", "env", "resources")],
    )
    return hashlib.blake2b(orjson.dumps(read, default=repr), digest_size=16).digest()
