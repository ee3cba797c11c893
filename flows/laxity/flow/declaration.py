"""What `deadline_flow` was told, and the Job that one call of the function becomes."""

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final

from laxity import names
from laxity.flow.project import Project, check_patterns, project_of
from laxity.job.qos import QoS, QoSError
from laxity.job.spec import TrainingSpec, job_name, json_object
from laxity.job.work_pool import job_variables

ENV_IDEMPOTENCY_KEY: Final = "LAXITY_IDEMPOTENCY_KEY"  # set by CI: repository, commit, data version
QOS_FIELDS: Final = (
    "deadline",
    "service_class",
    "workers",
    "gpus_per_worker",
    "preemptible",
    "epoch_estimate",
    "on_miss",
    "wall_limit",
)
_SPEC_FIELDS: Final = (
    "namespace",
    "model",
    "epochs",
    "samples",
    "batch_size",
    "dataset_bytes",
    "size",
    "launcher",
    "fresh",
    "one_at_a_time",
    "freeze",
    "resumes",
    "restarts",
    "group",
    "step",
    "image",
    "template",
)
_SIZES: Final = ("samples", "batch_size", "size")  # may name parameters in braces
_OTHERS: Final = ("entry", "env", "pass_env", "idempotency_key", "tags")
OPTIONS: Final = (*QOS_FIELDS, *_SPEC_FIELDS, *_OTHERS)


@dataclass(frozen=True, slots=True)
class Declaration:
    """Everything that was said, checked once at the declaration. `said` holds the options."""

    title: str
    qos: QoS
    said: Mapping[str, Any]

    @classmethod
    def of(cls, title: str, options: Mapping[str, Any]) -> "Declaration":
        """QoSError for anything that no call of the function could make good."""
        unknown = sorted(set(options).difference(OPTIONS))
        if unknown:
            raise QoSError(unknown[0], f"no such option; there are {', '.join(OPTIONS)}")
        qos = QoS.of(**{key: options[key] for key in QOS_FIELDS if key in options})
        declared = cls(title, qos, MappingProxyType(dict(options)))
        declared.spec(entry="module:function", parameters={})
        _check_tags(declared.tags)
        check_patterns(declared.pass_env)
        return declared

    @property
    def tags(self) -> tuple[str, ...]:
        return tuple(self.said.get("tags") or ())

    @property
    def pass_env(self) -> tuple[str, ...]:
        """Further variables of the submitter that workers get; see laxity.flow.project."""
        return self.said.get("pass_env") or ()

    @property
    def model(self) -> str:
        return self.said.get("model") or self.title

    @property
    def has_image(self) -> bool:
        """Whether the workers run in an image of their own, not on this machine's Python."""
        return bool(self.said.get("image") or (self.said.get("template") or {}).get("image"))

    @property
    def epochs(self) -> int:
        return int(self.said.get("epochs", 1))

    @property
    def resumes(self) -> bool:
        """Whether the function keeps and restores a state of its own."""
        return bool(self.said.get("resumes"))

    def with_changes(self, *, name: str | None = None, **options: Any) -> "Declaration":
        """This declaration with other options; the class follows the rule again if it was not named.

        `name` is what its jobs are called; their history stays that of the model. best_effort
        without a deadline beside it drops the declared one.
        """
        if options.get("service_class") == "best_effort":
            options.setdefault("deadline", None)
        return Declaration.of(name or self.title, {**self.said, "model": self.model, **options})

    def changed_in(self, other: "Declaration") -> list[str]:
        """The options in which another declaration of the same function differs."""
        mine, theirs = (
            {"name": one.title, **one.said, "model": one.model} for one in (self, other)
        )
        return [option for option in ("name", *OPTIONS) if mine.get(option) != theirs.get(option)]

    def project(self, function: Callable[..., Any]) -> Project:
        """How a worker finds the function, and where it runs; QoSError if no worker could."""
        return project_of(
            function,
            entry=self.said.get("entry"),
            pass_env=self.pass_env,
            has_image=self.has_image,
        )

    def spec(
        self,
        *,
        entry: str,
        parameters: Mapping[str, Any],
        idempotency_key: str | None = None,
        submitted_at: datetime | None = None,
        env: Mapping[str, str] | None = None,
        workdir: str | None = None,
    ) -> TrainingSpec:
        """One call as a job. The name is made of title and key, so one key is one name."""
        fields = {key: self.said[key] for key in _SPEC_FIELDS if self.said.get(key) is not None}
        for key in _SIZES:
            if isinstance(fields.get(key), str):
                fields[key] = _fill_size(key, fields[key], parameters)
        fields["model"] = self.model
        if workdir is not None:
            fields["template"] = {"workingDir": workdir, **fields.get("template", {})}
        return TrainingSpec(
            name=job_name(self.title, idempotency_key),
            qos=self.qos,
            entry=entry,
            parameters=json_object("parameters", parameters),
            idempotency_key=idempotency_key,
            submitted_at=submitted_at,
            env={**(env or {}), **(self.said.get("env") or {})},
            **fields,
        )

    def job_variables(self) -> dict[str, str]:
        """The variables of a job in a work pool made by `laxity workpool`.

        A class that follows from the deadline is left open: one run may have another deadline.
        """
        annotations = self.spec(entry="module:function", parameters={}).annotations()
        if not self.said.get("service_class"):
            annotations.pop(names.CLASS, None)
        return job_variables(annotations, gpus_per_worker=self.qos.gpus_per_worker)

    def idempotency_key(
        self, arguments: Mapping[str, Any], parameters: Mapping[str, Any], flow_run_id: str
    ) -> str | None:
        """The declared key, filled in with the arguments; else CI's; else the flow run's; else None.

        CI's key (from the environment) is shared by all flows of a process, so the flow and its
        parameters (the arguments as JSON) are added to it.
        """
        declared = self.said.get("idempotency_key")
        if declared is not None:
            return fill_template("idempotency_key", declared, arguments)
        from_ci = os.environ.get(ENV_IDEMPOTENCY_KEY)
        if from_ci:
            text = json.dumps(parameters, sort_keys=True)
            return f"{from_ci}/{self.title}/{hashlib.sha256(text.encode()).hexdigest()[:12]}"
        return f"flow-run/{flow_run_id}" if flow_run_id else None


def _fill_size(where: str, template: str, parameters: Mapping[str, Any]) -> int | None:
    """The whole number that a template becomes; None where no call has given parameters yet."""
    if "{" in template and not parameters:
        return None
    text = fill_template(where, template, parameters)
    if not text.isascii() or not text.isdigit():
        became = f"{template!r:.60} becomes {text!r:.40}" if "{" in template else f"{text!r:.60}"
        raise QoSError(
            where,
            f'{became}: expected a whole number, or a parameter of the flow in braces, as in "{{n}}"',
        )
    return int(text)


def fill_template(where: str, template: object, parameters: Mapping[str, Any]) -> str:
    if not isinstance(template, str) or not template.strip():
        raise QoSError(where, f"{template!r:.60} is empty or no text")
    try:
        return template.format_map(dict(parameters))
    except (KeyError, ValueError, IndexError, AttributeError) as error:
        raise QoSError(
            where,
            f"{template!r:.80} cannot be filled in ({error!r}): braces name parameters of the flow",
        ) from error


def _check_tags(tags: tuple[object, ...]) -> None:
    for tag in tags:
        if not isinstance(tag, str) or not tag.strip():
            raise QoSError("tags", f"{tag!r:.60} is empty or no text")
