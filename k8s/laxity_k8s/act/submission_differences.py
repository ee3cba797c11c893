"""In what the Job that a key names differs from the one that is asked for now, in words.

Where a training runs from is no difference: the same file in another checkout is the same training.
What its user amended since, or accepted as an offer, is none either: both the terms of the first
submission and those of now are taken for the same.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from laxity import json_tree, names
from laxity.job.qos import QoS, QoSError
from laxity.job.spec import TrainingSpec
from laxity.job.submission import counts_from
from laxity.job.widths import format_widths
from laxity_k8s.cluster_api import Json
from laxity_k8s.objects import jobs
from laxity_k8s.objects.status_annotation import parse_mapping

_FIELDS: Final[Mapping[str, Callable[[TrainingSpec], Any]]] = {
    "entry": lambda spec: _without_folder(spec.entry),
    "epochs": lambda spec: spec.epochs,
    "samples": lambda spec: spec.samples,
    "batch_size": lambda spec: spec.batch_size,
    "dataset_bytes": lambda spec: spec.dataset_bytes,
    "size": lambda spec: spec.size,
    "launcher": lambda spec: spec.launcher,
    "image": lambda spec: spec.image,
    "gpus_per_worker": lambda spec: spec.qos.gpus_per_worker,
}
_TERMS: Final[Mapping[str, Callable[[QoS], Any]]] = {
    "class": lambda qos: qos.service_class,
    "workers": lambda qos: format_widths(qos.widths),
    "epoch_estimate_s": lambda qos: qos.epoch_estimate_s,
    "preemptible": lambda qos: qos.preemptible,
    "on_miss": lambda qos: qos.on_miss,
    "wall_limit_s": lambda qos: qos.wall_limit_s,
}


def of_training(there: Json, asked: Json) -> list[str]:
    """Differences that make it another training: "epochs: 10 there, 5 asked for"."""
    first, other = _read_spec(there), _read_spec(asked)
    if first is None or other is None:
        return []
    differences: list[str] = [
        describe_difference(name, read(first), read(other)) for name, read in _FIELDS.items()
    ]
    if other.model != other.name:  # it names one
        differences.append(describe_difference("model", first.model, other.model))
    if first.entry is None and other.entry is None:
        differences.append(
            describe_difference("command", _format_command(there), _format_command(asked))
        )
    for name in sorted({*first.parameters, *other.parameters}):
        values = (json.dumps(spec.parameters.get(name)) for spec in (first, other))
        differences.append(describe_difference(f"parameter {name}", *values))
    return list(filter(None, differences))


def of_terms(there: Json, asked: Json) -> list[str]:
    """Differences in how soon and how wide it is to run."""
    other, now, first = _read_spec(asked), _read_spec(there), _read_spec(first_terms(there))
    if other is None or now is None or first is None:
        return []
    submitted_at = counts_from(jobs.submission_claim(now), jobs.creation_instant(there))
    due = [spec.qos.deadline_at(submitted_at) for spec in (now, first, other)]
    differences = list(_terms_apart(now.qos, first.qos, other.qos))
    if due[2] not in due[:2]:
        differences.insert(
            0,
            f"deadline: {_format_deadline(now.qos)} there, {_format_deadline(other.qos)} asked for",
        )
    return differences


def first_terms(job: Json) -> Json:
    """The Job with the terms of its first submission."""
    first = parse_mapping(json_tree.annotations_of(job).get(names.FIRST_TERMS))
    notes = {**json_tree.annotations_of(job), **first}
    texts = {name: text for name, text in notes.items() if text is not None}
    return {**job, "metadata": {**job["metadata"], "annotations": texts}}


def _terms_apart(now: QoS, first: QoS, other: QoS) -> Iterator[str]:
    for name, read in _TERMS.items():
        if read(other) not in (read(now), read(first)):
            yield f"{name}: {read(now)} there, {read(other)} asked for"


def _format_deadline(qos: QoS) -> str:
    return qos.deadline_text if qos.deadline is not None else "none"


def describe_difference(name: str, there: Any, asked: Any) -> str:
    return "" if there == asked else f"{name}: {there} there, {asked} asked for"


def _format_command(job: Json) -> str:
    container = json_tree.get_in(job, "spec", "template", "spec", "containers", 0)
    lists = (json_tree.list_at(container, field) for field in ("command", "args"))
    return " ".join(str(word) for part in lists for word in part)


def _without_folder(entry: str | None) -> str | None:
    """/a/train.py:main as train.py:main."""
    if entry is None or ".py:" not in entry:
        return entry
    return entry.rpartition("/")[2]


def _read_spec(job: Json) -> TrainingSpec | None:
    try:
        return TrainingSpec.from_manifest(job)  # whole: what is declared is kept without parameters
    except QoSError:
        return None
