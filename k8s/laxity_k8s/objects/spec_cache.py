"""What Jobs declare, read once per text: a Job changes ten times while it runs, what it asks never.

The key is a digest of exactly those fields that reading looks at (laxity.job.manifest_reader): outputs of
laxity, status and revisions are not among them. Errors are not kept; wrong Jobs are few. What is
kept is bounded in bytes, and without what may be large and only workers need: env, and parameters
that are no plain values.
"""

import hashlib
import json
from dataclasses import replace
from threading import Lock
from typing import Any, Final

import orjson
from cachetools import LRUCache

from laxity import json_tree, names
from laxity.job.manifest_reader import SHAPE, controller_of
from laxity.job.spec import TrainingSpec
from laxity_k8s.cluster_api import Json
from laxity_profiler.estimate import plain_inputs

MOST_BYTES: Final = 96 * 1024 * 1024  # of some 50,000 Jobs
SPEC_BYTES: Final = 1_500  # of one without its texts and widths, on a 64-bit machine
WIDTH_BYTES: Final = 36  # a whole number and its place in a tuple
INPUT_BYTES: Final = 250  # a plain parameter with its name, kept twice


def size_of(spec: TrainingSpec) -> int:
    """About how many bytes a kept spec takes."""
    texts = (spec.name, spec.namespace, spec.model, spec.entry, spec.image, spec.idempotency_key)
    return (
        SPEC_BYTES
        + 4 * sum(len(str(text)) for text in texts if text)
        + WIDTH_BYTES * len(spec.qos.widths or ())
        + INPUT_BYTES * len(spec.parameters)
    )


_SPECS: Final[LRUCache[bytes, TrainingSpec]] = LRUCache(MOST_BYTES, getsizeof=size_of)
_LOCK: Final = Lock()


def read_spec(job: Json) -> TrainingSpec:
    """The Job's spec without env, template and large parameters. QoSError names every wrong field."""
    try:
        key = _digest_of(job)
    except (TypeError, ValueError, RecursionError):  # no JSON of an API server: read it as it is
        return _slim_spec(TrainingSpec.from_manifest(job))
    with _LOCK:
        spec = _SPECS.get(key)
    if spec is None:
        spec = _slim_spec(TrainingSpec.from_manifest(job))
        with _LOCK:
            _SPECS[key] = spec
    return spec


def _slim_spec(spec: TrainingSpec) -> TrainingSpec:
    plain = {name: json.loads(text) for name, text in plain_inputs(spec.parameters)}
    return replace(spec, parameters=plain, env={}, template={})


def _digest_of(job: Json) -> bytes:
    metadata, spec = job.get("metadata"), job.get("spec")
    pod: Any = json_tree.get_in(spec, "template", "spec")
    container: Any = json_tree.get_in(pod, "containers", 0)
    read = (
        job.get("apiVersion"),
        job.get("kind"),
        json_tree.get_in(metadata, "name"),
        json_tree.get_in(metadata, "namespace"),
        json_tree.get_in(metadata, "labels"),
        controller_of(json_tree.mapping_at(metadata)),
        [pair for pair in json_tree.annotations_of(job).items() if pair[0] not in names.OUTPUTS],
        [json_tree.get_in(spec, field) for field in SHAPE],
        [json_tree.get_in(container, field) for field in ("image", "env", "command", "args")],
        [json_tree.get_in(item, "resources") for item in json_tree.list_at(pod, "containers")],
        [
            (json_tree.get_in(item, "resources"), json_tree.get_in(item, "restartPolicy"))
            for item in json_tree.list_at(pod, "initContainers")
        ],
    )
    return hashlib.blake2b(orjson.dumps(read, default=repr), digest_size=16).digest()
