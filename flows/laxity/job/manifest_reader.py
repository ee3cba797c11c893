"""A batch/v1 Job of anybody becomes the fields of a TrainingSpec; every wrong field is named at once.

Input is hostile until read: any value may have any type. No Job's meaning is changed: only an elastic
Job is resized, and only to widths that it names; every other Job runs at the shape that it states. A
Job that is not elastic or names no epochs is plain: it is not preempted unless it says so, or is a
script that resumes.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from laxity import json_tree, names
from laxity.durations import parse_instant
from laxity.job.accelerators import main_accelerator
from laxity.job.annotations import FieldTable, parse_fields, parse_flag, read_qos
from laxity.job.pod_template import RESERVED_ENV
from laxity.job.qos import QoS, QoSError, check_whole
from laxity.job.widths import MOST_WORKERS, check_widths, parse_widths
from laxity.parsing import whole_number

Json = dict[str, Any]
T = TypeVar("T")

_MOST_DIGITS: Final = 18
# Rules over indexes: with another number of workers they would mean something else.
_COUNT_INDEXES: Final = ("successPolicy", "maxFailedIndexes", "backoffLimitPerIndex")
SHAPE: Final = ("completionMode", "parallelism", "completions", "managedBy", *_COUNT_INDEXES)
WORKER: Final = "laxity.worker"  # the module that a container runs which trains for laxity
_JOB_CONTROLLER: Final = "kubernetes.io/job-controller"


def spec_fields(manifest: Mapping[str, Any], problems: list[QoSError]) -> Json:
    """Keyword arguments for TrainingSpec; what reading finds wrong is added to `problems`."""
    if not isinstance(manifest, Mapping):
        raise QoSError("manifest", f"{manifest!r:.60} is no JSON object")
    metadata = _read_mapping(manifest, "metadata", "metadata", problems)
    annotations = _read_mapping(metadata, "annotations", "metadata.annotations", problems)
    spec = _read_mapping(manifest, "spec", "spec", problems)
    container = _training_container(spec, problems)
    _check_kind(manifest, metadata, problems)
    # What is not part of the QoS, whose reader reports annotations that are unknown or too long.
    fields = parse_fields(annotations, _FIELDS, problems)
    fields |= {"name": metadata.get("name"), "namespace": metadata.get("namespace") or "default"}
    fields |= {"image": container.get("image"), "env": _plain_env(container, problems)}
    _check_manager(spec, problems)
    _check_controller(metadata, problems)
    _check_shape(spec, annotations, problems)
    fields["plain"] = _is_plain(spec, annotations)
    fields["script"] = is_script(spec, annotations)
    fields["qos"] = _read_qos(spec, annotations, problems, fields)
    return fields


def _check_kind(
    manifest: Mapping[str, Any], metadata: Mapping[str, Any], problems: list[QoSError]
) -> None:
    kind = (manifest.get("apiVersion"), manifest.get("kind"))
    if kind != ("batch/v1", "Job"):
        problems.append(QoSError("kind", f"{kind[0]} {kind[1]} is not batch/v1 Job"))
    labels = _read_mapping(metadata, "labels", "metadata.labels", problems)
    if labels.get(names.MANAGED) != "true":
        problems.append(QoSError("metadata.labels", f"{names.MANAGED} is not 'true'"))
    if names.KUEUE_QUEUE in labels:
        problems.append(
            QoSError("metadata.labels", f"{names.KUEUE_QUEUE} is set: such Jobs belong to Kueue")
        )


def is_elastic(spec: Mapping[str, Any]) -> bool:
    """Whether a Job of this spec may be resized without a change of what it means.

    It is Indexed, each completion is one worker, and no rule counts its indexes. A work queue and a
    Job of more completions than workers are not: there, parallelism is only how many run at once.
    """
    one_each = worker_count(spec) == _read_number(
        spec.get("completions", spec.get("parallelism", 1))
    )
    counts_indexes = any(spec.get(rule) is not None for rule in _COUNT_INDEXES)
    return spec.get("completionMode") == "Indexed" and one_each and not counts_indexes


def worker_count(spec: Mapping[str, Any]) -> int:
    """How many pods run at once: an Indexed Job never runs more than it has completions."""
    parallelism = _read_number(spec.get("parallelism", 1))
    if spec.get("completionMode") != "Indexed" or spec.get("completions") is None:
        return parallelism
    return min(parallelism, _read_number(spec["completions"]))


def _read_number(value: object) -> int:
    return whole_number(value) or 0


def _is_plain(spec: Mapping[str, Any], annotations: Mapping[str, Any]) -> bool:
    return not (is_elastic(spec) and _is_counted(annotations))


def _is_counted(annotations: Mapping[str, Any]) -> bool:
    """Whether its user says what it trains, or how many epochs."""
    return names.ENTRY in annotations or names.EPOCHS in annotations


def is_script(spec: Mapping[str, Any], annotations: Mapping[str, Any]) -> bool:
    """Whether its container runs a command that knows nothing of laxity."""
    return not (_is_counted(annotations) or runs_worker(spec))


def runs_worker(spec: Mapping[str, Any]) -> bool:
    """Whether the command of a Job's first container is laxity's worker."""
    container = json_tree.get_in(spec, "template", "spec", "containers", 0)
    words = [*json_tree.list_at(container, "command"), *json_tree.list_at(container, "args")]
    return any(WORKER in str(word) for word in words)


def _check_manager(spec: Mapping[str, Any], problems: list[QoSError]) -> None:
    manager = spec.get("managedBy")
    if manager not in (None, _JOB_CONTROLLER):
        what = f"{manager!r:.80} runs the pods of this Job, and laxity cannot start or stop them"
        problems.append(QoSError("managedBy", f"{what}; leave the field out"))


def controller_of(metadata: Mapping[str, Any]) -> tuple[str, str]:
    """Kind and name of what controls the Job with others of its own; two empty texts for nothing.

    A CronJob is nothing of that sort: each of its Jobs stands for itself.
    """
    for owner in json_tree.list_at(metadata, "ownerReferences"):
        if json_tree.get_in(owner, "controller") is True:
            kind, group = str(owner.get("kind")), str(owner.get("apiVersion")).partition("/")[0]
            return (
                ("", "")
                if (kind, group) == ("CronJob", "batch")
                else (kind, str(owner.get("name")))
            )
    return "", ""


def _check_controller(metadata: Mapping[str, Any], problems: list[QoSError]) -> None:
    kind, name = controller_of(metadata)
    if kind:
        what = (
            f"{kind:.40} {name:.80} starts and stops this Job, and laxity promises no parts of one"
        )
        what = f"{what}; take label {names.MANAGED} out of its template"
        problems.append(QoSError("metadata.ownerReferences", what))


def _check_shape(
    spec: Mapping[str, Any], annotations: Mapping[str, Any], problems: list[QoSError]
) -> None:
    """A Job that asks for no pod is one that its writer has not started; by hand is another matter."""
    sized = names.PIN in annotations or (names.WIDTHS in annotations and is_elastic(spec))
    empty = [
        field for field in ("parallelism", "completions") if whole_number(spec.get(field)) == 0
    ]
    if not sized:
        what = "0: this Job asks for no pod; write 1 or more"
        problems.extend(QoSError(field, what) for field in empty)


def _read_qos(
    spec: Mapping[str, Any],
    annotations: Mapping[str, Any],
    problems: list[QoSError],
    fields: Json,
) -> QoS:
    readable = dict(annotations)
    workers = _collect_problem(problems, lambda: _read_parallelism(spec), 1)
    gpus_per_worker = _collect_problem(problems, lambda: _count_gpus(spec), 1)
    workers = min(workers, worker_count(spec))
    stated = str(workers or 1)
    readable.setdefault(names.WIDTHS, stated)
    if fields["plain"]:
        goes_on = fields["script"] and fields.get("resumes", False)
        readable.setdefault(names.PREEMPTIBLE, "true" if goes_on else "false")
    qos = _collect_problem(
        problems, lambda: read_qos(readable, gpus_per_worker=gpus_per_worker), QoS()
    )
    if not is_elastic(spec) and _names_other_widths(readable, workers or 1):
        what = f"this Job runs as it is written, on {stated}; only an Indexed Job of as many"
        what = f"{what} completions as parallelism, without rules for indexes, can be resized"
        problems.append(QoSError("widths", f"{what}. Leave the annotation out"))
    return qos


def _names_other_widths(annotations: Mapping[str, Any], workers: int) -> bool:
    """Whether the widths are others than this one; of widths that mean nothing `read_qos` tells."""
    text = annotations.get(names.WIDTHS)
    try:
        return isinstance(text, str) and check_widths(parse_widths(text)) != (workers,)
    except ValueError:
        return False


def _collect_problem(problems: list[QoSError], read_one: Callable[[], T], instead: T) -> T:
    """What is read; if it is wrong, the problem is kept and reading goes on with `instead`."""
    try:
        return read_one()
    except QoSError as error:
        problems.append(error)
        return instead


def _read_parallelism(spec: Mapping[str, Any]) -> int:
    workers = spec.get("parallelism", 1)
    return check_whole("parallelism", workers, least=0, most=MOST_WORKERS, what="workers")


def _count_gpus(spec: Mapping[str, Any]) -> int:
    """Accelerators of one worker, all containers of its pod together; 1 if it says nothing."""
    template = spec.get("template")
    pod = template.get("spec") if isinstance(template, Mapping) else None
    return main_accelerator(pod)[1] or 1


def _training_container(spec: Mapping[str, Any], problems: list[QoSError]) -> Mapping[str, Any]:
    template = _read_mapping(spec, "template", "spec.template", problems)
    pod = _read_mapping(template, "spec", "spec.template.spec", problems)
    containers = pod.get("containers")
    if not isinstance(containers, list) or not containers or not isinstance(containers[0], Mapping):
        problems.append(QoSError("spec.template.spec.containers", "one container is needed"))
        return {}
    return containers[0]


def _plain_env(container: Mapping[str, Any], problems: list[QoSError]) -> dict[str, str]:
    """The user's own literal variables; references to secrets and fields stay in the manifest."""
    env = container.get("env") or []
    if not isinstance(env, list) or not all(isinstance(row, Mapping) for row in env):
        problems.append(QoSError("env", "not a list of {name, value}"))
        return {}
    return {
        row["name"]: row["value"]
        for row in env
        if isinstance(row.get("name"), str) and "value" in row and row["name"] not in RESERVED_ENV
    }


def _read_mapping(
    parent: Mapping[str, Any], key: str, where: str, problems: list[QoSError]
) -> Mapping[str, Any]:
    value = parent.get(key)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        problems.append(QoSError(where, f"{value!r:.60} is no mapping"))
        return {}
    return value


def _read_whole(text: str) -> int:
    digits = text.strip().removeprefix("-")
    if not digits.isascii() or not digits.isdigit() or len(digits) > _MOST_DIGITS:
        what = (
            "is a whole number of too many digits" if digits.isdigit() else "is not a whole number"
        )
        raise ValueError(f"{text[:40]!r} {what}")
    return int(text)


def parse_steps(text: str) -> tuple[str, ...]:
    """The names of steps in "a, b"."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _read_json(text: str) -> object:
    return json.loads(text, parse_constant=_no_constant)


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


_FIELDS: Final[FieldTable] = {
    names.MODEL: ("model", str),
    names.EPOCHS: ("epochs", _read_whole),
    names.ENTRY: ("entry", str),
    names.PARAMETERS: ("parameters", _read_json),
    names.SAMPLES: ("samples", _read_whole),
    names.BATCH_SIZE: ("batch_size", _read_whole),
    names.DATASET_BYTES: ("dataset_bytes", _read_whole),
    names.SIZE: ("size", _read_whole),
    names.LAUNCHER: ("launcher", str),
    names.IDEMPOTENCY_KEY: ("idempotency_key", str),
    names.SUBMITTED_AT: ("submitted_at", parse_instant),
    names.ATTEMPT: ("attempt", _read_whole),
    names.FRESH: ("fresh", parse_flag),
    names.ONE_AT_A_TIME: ("one_at_a_time", parse_flag),
    names.FREEZE: ("freeze", parse_flag),
    names.GROUP: ("group", str),
    names.STEP: ("step", str),
    names.AFTER: ("after", parse_steps),
    names.RESUMES: ("resumes", parse_flag),
    names.RESTARTS: ("restarts", _read_whole),
}
