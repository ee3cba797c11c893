"""A training job as a value, and as the batch/v1 Job that Kubernetes, the service and kubectl share.

`TrainingSpec(...)` checks itself; `to_manifest` writes the Job, `from_manifest` reads any labelled
Job, also one written by hand, and tells everything that is wrong with it in one QoSError.
"""

import hashlib
import json
import re
import unicodedata
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, cast

from laxity import names
from laxity.durations import LONGEST, aware_instant, format_duration
from laxity.human_time import count_noun
from laxity.instants import format_instant
from laxity.job.annotations import as_annotated
from laxity.job.annotations import write_qos as annotations_of
from laxity.job.pod_template import check_env, check_template, escape_literal, pod_template
from laxity.job.qos import MOST_EPOCHS, QoS, QoSError, check_whole, raise_all
from laxity.job.widths import WIDEST_UNNAMED
from laxity.job.worker_exits import EXIT_RAISED, FINAL_CODES

Json = dict[str, Any]

LONGEST_NAME: Final = 63
LONGEST_PARAMETERS: Final = 65_536
MOST_ATTEMPTS: Final = 10_000
EARLIEST: Final = timedelta(hours=1)  # before the scheduled time of a flow run, and between clocks
BACKOFF_LIMIT: Final = 1000
MOST_RESTARTS: Final = 3  # in a row, after failures without a finished epoch in between
LAUNCHERS: Final = ("torch",)
_SLUG_LENGTH: Final = 36
_LABEL: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSpec:
    """One training job.

    `entry` is module:function or /path/file.py:function; a Job that runs something else has None,
    and is `plain` if it also names no epochs: it keeps its width. A plain one whose container does
    not run laxity's worker is a `script`: what it posts of its progress is heard.

    `parameters` is a JSON object for the function, `size` the number of parameters of the net. `image`, `env` and `template` say what the pods
    look like beyond that (see laxity.job.pod_template). `submitted_at` stays the first one in later attempts,
    which go on from the last finished epoch unless they are `fresh`. `resumes`: the code keeps its
    own state beside what it gives to `Training.restore`. `freeze`: on this machine its workers import from a
    copy of the code, made at submission. `restarts`: so many starts in a row may follow
    failures without finishing an epoch. A job of a `group` is one of its `step`, and starts when the
    steps that it comes `after` have finished.
    """

    name: str
    qos: QoS
    namespace: str = "default"
    model: str = ""
    epochs: int = 1
    entry: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    samples: int | None = None
    batch_size: int | None = None
    dataset_bytes: int | None = None
    size: int | None = None
    launcher: str | None = None
    idempotency_key: str | None = None
    submitted_at: datetime | None = None
    attempt: int = 1
    fresh: bool = False
    one_at_a_time: bool = False
    freeze: bool = False
    resumes: bool = False
    restarts: int = MOST_RESTARTS
    group: str | None = None
    step: str | None = None
    after: tuple[str, ...] = ()
    image: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    template: Mapping[str, Any] = field(default_factory=dict, compare=False)
    plain: bool = False
    script: bool = False

    def __post_init__(self) -> None:
        if not self.model:
            object.__setattr__(self, "model", self.name)
        raise_all(spec_errors(self))
        if self.submitted_at is not None:
            submitted_at = aware_instant(self.submitted_at)
            to_the_millisecond = submitted_at.replace(
                microsecond=submitted_at.microsecond // 1000 * 1000
            )
            object.__setattr__(self, "submitted_at", to_the_millisecond)

    @property
    def id(self) -> str:
        return f"{self.namespace}/{self.name}"

    def to_manifest(self) -> Json:
        """The suspended Job; laxity starts it once it has a verdict and GPUs."""
        least = self.qos.widths[0] if self.qos.widths else 1
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "name": self.name,
                "namespace": self.namespace,
                "labels": {names.MANAGED: "true", names.CLASS_LABEL: self.qos.service_class},
                "annotations": self.annotations(),
            },
            "spec": {
                "suspend": True,
                "completionMode": "Indexed",
                "parallelism": least,
                "completions": least,
                "backoffLimit": BACKOFF_LIMIT,
                "podReplacementPolicy": "Failed",
                "podFailurePolicy": self._failure_policy(),
                "template": pod_template(
                    command=self.entry,
                    image=self.image,
                    env={**self._worker_env(), **self.env},
                    gpus_per_worker=self.qos.gpus_per_worker,
                    overrides=self.template,
                ),
            },
        }

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Any]) -> "TrainingSpec":
        """The spec of a labelled Job; missing fields have defaults, QoSError names all wrong ones.

        What the container does beyond its entry stays in the manifest: `template` is empty.
        """
        from laxity.job.manifest_reader import spec_fields

        problems: list[QoSError] = []
        fields = spec_fields(manifest, problems)
        try:
            spec = cls(**fields)
        except QoSError as error:
            problems.append(as_annotated(error))
        raise_all(problems)
        return spec

    def annotations(self) -> dict[str, str]:
        texts: dict[str, object] = {
            names.MODEL: self.model,
            names.EPOCHS: self.epochs,
            names.ENTRY: self.entry,
            names.PARAMETERS: _compact_json(self.parameters) if self.entry else None,
            names.SAMPLES: self.samples,
            names.BATCH_SIZE: self.batch_size,
            names.DATASET_BYTES: self.dataset_bytes,
            names.SIZE: self.size,
            names.LAUNCHER: self.launcher,
            names.IDEMPOTENCY_KEY: self.idempotency_key,
            names.SUBMITTED_AT: self.submitted_at and format_instant(self.submitted_at),
            names.ATTEMPT: self.attempt,
            names.FRESH: "true" if self.fresh else None,
            names.ONE_AT_A_TIME: "true" if self.one_at_a_time else None,
            names.FREEZE: "true" if self.freeze else None,
            names.RESUMES: "true" if self.resumes else None,
            names.GROUP: self.group,
            names.STEP: self.step,
            names.AFTER: ",".join(self.after) or None,
            names.RESTARTS: None if self.restarts == MOST_RESTARTS else self.restarts,
        }
        written = {name: str(value) for name, value in texts.items() if value is not None}
        return annotations_of(self.qos) | written

    def _failure_policy(self) -> Json:
        """An evicted pod is replaced and not counted. Where no start helps, the Job is over.

        The flow's retries then start another attempt.
        """
        codes = [*FINAL_CODES, *([] if self.restarts else [EXIT_RAISED])]
        return {
            "rules": [
                {
                    "action": "Ignore",
                    "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
                },
                {"action": "FailJob", "onExitCodes": {"operator": "In", "values": codes}},
            ]
        }

    def _worker_env(self) -> dict[str, str]:
        launcher = {names.ENV_LAUNCHER: self.launcher} if self.launcher else {}
        return {
            names.ENV_JOB: self.id,
            names.ENV_EPOCHS: str(self.epochs),
            names.ENV_MODEL: escape_literal(self.model),
            names.ENV_PARAMETERS: escape_literal(_compact_json(self.parameters)),
            **launcher,
            **({names.ENV_RESUMES: "true"} if self.resumes else {}),
        }


def job_name(title: str, idempotency_key: str | None = None) -> str:
    """A DNS label that begins like the title: one name per key, a new name without a key."""
    slug = dns_label(title, longest=_SLUG_LENGTH) or "job"
    seed = uuid.uuid4().hex if idempotency_key is None else f"{title}\0{idempotency_key}"
    return f"{slug}-{hashlib.sha256(seed.encode()).hexdigest()[:12]}"


def dns_label(text: str, *, longest: int = LONGEST_NAME) -> str:
    """The text as a DNS label: a-z without accents, 0-9, hyphens for all else; "" if nothing is left."""
    parts = unicodedata.normalize("NFKD", text.casefold())
    bare = "".join(part for part in parts if not unicodedata.combining(part))
    return re.sub(r"[^a-z0-9]+", "-", bare).strip("-")[:longest].strip("-")


def json_object(where: str, value: object) -> Json:
    """The value if it is a small JSON object; QoSError names the member that is not JSON."""
    return cast("Json", json.loads(_json_text(where, value)))


def _json_text(where: str, value: object) -> str:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise QoSError(where, f"{value!r:.60} is no object with text keys")
    try:
        text = _compact_json(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise QoSError(where, f"{value!r:.60} is not JSON ({error})") from error
    if len(text.encode()) > LONGEST_PARAMETERS:
        raise QoSError(where, f"longer than {LONGEST_PARAMETERS // 1024} KiB as JSON; pass a path")
    return text


def _compact_json(value: Mapping[str, Any]) -> str:
    return json.dumps(dict(value), separators=(",", ":"), allow_nan=False)


def spec_errors(spec: TrainingSpec) -> list[QoSError]:
    """Everything that is wrong with a spec, field by field."""
    checks: tuple[Callable[[], object], ...] = (
        lambda: _check_label("name", spec.name),
        lambda: _check_label("namespace", spec.namespace),
        lambda: _check_text(
            "model", "as the name" if spec.model is spec.name else spec.model, longest=200
        ),
        lambda: check_whole("epochs", spec.epochs, least=1, most=MOST_EPOCHS, what="epochs"),
        lambda: _check_length(spec),
        lambda: _check_wall_limit(spec),
        lambda: _check_entry(spec.entry),
        lambda: _json_text("parameters", spec.parameters),
        lambda: _check_optional("samples", spec.samples, least=1),
        lambda: _check_optional("batch_size", spec.batch_size, least=1),
        lambda: _check_optional("dataset_bytes", spec.dataset_bytes, least=0),
        lambda: _check_optional("size", spec.size, least=1),
        lambda: _check_launcher(spec.launcher),
        lambda: _check_optional_text("idempotency_key", spec.idempotency_key, longest=250),
        lambda: _check_times(spec),
        lambda: _check_flag("fresh", spec.fresh),
        lambda: _check_flag("one_at_a_time", spec.one_at_a_time),
        lambda: _check_flag("freeze", spec.freeze),
        lambda: _check_flag("resumes", spec.resumes),
        lambda: check_whole(
            "restarts", spec.restarts, least=0, most=MOST_ATTEMPTS, what="restarts"
        ),
        lambda: check_whole("attempt", spec.attempt, least=1, most=MOST_ATTEMPTS, what="attempts"),
        lambda: _check_group(spec),
        lambda: _check_optional_text("image", spec.image, longest=1024),
        lambda: check_env(spec.env),
        lambda: check_template(spec.template, spec.qos.gpus_per_worker),
    )
    errors: list[QoSError] = []
    for check in checks:
        try:
            check()
        except QoSError as error:
            errors.append(error)
    return errors


def _check_label(where: str, value: object) -> None:
    if not isinstance(value, str) or not _LABEL.fullmatch(value):
        raise QoSError(
            where,
            f"{value!r:.80} is no DNS label: 1 to {LONGEST_NAME} of a-z, 0-9 and '-', not at "
            "either end",
        )


def _check_text(where: str, value: object, *, longest: int) -> None:
    if not isinstance(value, str) or not value.strip():
        raise QoSError(where, f"{value!r:.60} is empty or no text")
    if len(value) > longest:
        raise QoSError(where, f"{len(value)} characters; at most {longest} are allowed")
    if not value.isprintable():
        raise QoSError(where, f"{value!r:.60} holds characters that cannot be printed")


def _check_optional_text(where: str, value: str | None, *, longest: int) -> None:
    if value is not None:
        _check_text(where, value, longest=longest)


def _check_length(spec: TrainingSpec) -> None:
    """All epochs, by the user's own estimate, on the widest that they may run on."""
    if spec.qos.epoch_estimate_s is None or not isinstance(spec.epochs, int):
        return
    widest = spec.qos.widths[-1] if spec.qos.widths else WIDEST_UNNAMED
    epochs = min(spec.epochs, MOST_EPOCHS)  # more are a problem of their own
    if epochs * spec.qos.epoch_estimate_s / widest > LONGEST.total_seconds():
        each = format_duration(timedelta(seconds=spec.qos.epoch_estimate_s))
        raise QoSError(
            "epoch_estimate",
            f"{spec.epochs} epochs of {each} are more than ten years even on {count_noun(widest, 'worker')}; "
            "give the estimate of one epoch, or fewer epochs",
        )


def _check_wall_limit(spec: TrainingSpec) -> None:
    """Whether a link of the chain can get anywhere: one epoch on the widest fits into it."""
    qos = spec.qos
    if qos.wall_limit_s is None:
        return
    limit = format_duration(timedelta(seconds=qos.wall_limit_s))
    if spec.plain:
        raise QoSError(
            "wall_limit",
            f"{limit} for a Job that laxity cannot stop at an epoch's end; it is for trainings "
            f"with {names.EPOCHS}. Set activeDeadlineSeconds instead",
        )
    widest = qos.widths[-1] if qos.widths else WIDEST_UNNAMED
    if qos.epoch_estimate_s is not None and qos.epoch_estimate_s / widest > qos.wall_limit_s:
        each = format_duration(timedelta(seconds=qos.epoch_estimate_s / widest))
        raise QoSError(
            "wall_limit",
            f"{limit} is shorter than one epoch, {each} on {count_noun(widest, 'worker')}: nothing "
            "would ever be saved; allow more time, or count smaller epochs",
        )


def _check_entry(entry: str | None) -> None:
    if entry is None:
        return
    _check_text("entry", entry, longest=1024)
    module, _, function = entry.rpartition(":")
    if not module or not all(part.isidentifier() for part in function.split(".")):
        raise QoSError(
            "entry", f"{entry!r:.80} is neither module:function nor /path/file.py:function"
        )


def _check_launcher(launcher: object) -> None:
    if launcher not in (None, *LAUNCHERS):
        known = " or ".join(LAUNCHERS)
        raise QoSError("launcher", f"{launcher!r:.60} is unknown; write {known}, or leave it out")


def _check_group(spec: TrainingSpec) -> None:
    for where, label in (("group", spec.group), ("step", spec.step)):
        if label is not None:
            _check_label(where, label)
    for label in spec.after:
        _check_label("after", label)
    if spec.group is None and (spec.step or spec.after):
        where = "step" if spec.step else "after"
        raise QoSError(where, f"a step of no group; name it with {names.GROUP}, or leave this out")


def _check_optional(where: str, value: int | None, *, least: int) -> None:
    if value is not None:
        check_whole(where, value, least=least, most=2**62, what=where.replace("_", " "))


def _check_flag(where: str, value: object) -> None:
    if not isinstance(value, bool):
        raise QoSError(where, f"{value!r:.60} is neither True nor False")


def _check_times(spec: TrainingSpec) -> None:
    if spec.submitted_at is None:
        return
    try:
        submitted_at = aware_instant(spec.submitted_at)
    except ValueError as error:
        raise QoSError("submitted_at", str(error)) from None
    if submitted_at - datetime.now(UTC) > EARLIEST:
        raise QoSError("submitted_at", f"{format_instant(submitted_at)} lies in the future")
    deadline = spec.qos.deadline
    if isinstance(deadline, datetime) and deadline - submitted_at > LONGEST:
        raise QoSError("deadline", f"{format_instant(deadline)} is more than ten years away")
