"""A workflow, and the group that deadline flows join which are called in it, also in tasks and threads."""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from laxity.instants import format_instant
from laxity.job.spec import dns_label

if TYPE_CHECKING:
    from laxity.flow.declaration import Declaration


@dataclass(frozen=True, slots=True)
class ActiveGroup:
    """A workflow that runs: its name, the deadline of the whole as an instant, and its class."""

    name: str
    namespace: str
    key: str
    deadline: str
    service_class: str
    _calls: Counter[str] = field(default_factory=Counter, repr=False)
    _keys: dict[str, str] = field(default_factory=dict, repr=False)
    _lock: Lock = field(default_factory=Lock, repr=False)

    def join(self, declared: "Declaration") -> "Declaration":
        """The declaration as a step of this group, under the deadline of the whole."""
        terms = {"deadline": self.deadline, "service_class": self.service_class}
        return declared.with_changes(
            namespace=self.namespace, group=self.name, step=step_name(declared.title),
            **({} if declared.qos.deadline is not None else terms),
        )  # fmt: skip

    def key_of(self, title: str, parameters: Mapping[str, Any], run_id: str) -> str:
        """The idempotency key of one call: a retry of its run, and the call in a rerun, have the same."""
        text = json.dumps(parameters, sort_keys=True)
        call = f"{self.key}/{title}/{hashlib.sha256(text.encode()).hexdigest()[:12]}"
        with self._lock:
            if run_id not in self._keys:
                self._calls[call] += 1
                self._keys[run_id] = f"{call}/{self._calls[call]}"
            return self._keys[run_id]


ACTIVE: Final[ContextVar[ActiveGroup | None]] = ContextVar("laxity_group", default=None)


@dataclass(frozen=True, slots=True)
class Workflow:
    """What `deadline_workflow` was told."""

    title: str
    deadline: str
    namespace: str
    service_class: str
    idempotency_key: str | None
    steps: tuple[Mapping[str, Any], ...]

    def document(self, name: str, submitted_at: datetime | None) -> dict[str, Any]:
        """The group of one run, for the service."""
        return {
            "name": name,
            "namespace": self.namespace,
            "workflow": self.title,
            "deadline": self.deadline,
            "class": self.service_class,
            "submitted_at": submitted_at and format_instant(submitted_at),
            "open": True,
            "steps": list(self.steps),
        }


def step_name(title: str) -> str:
    """The name of the step that calls of a flow with this title are."""
    return dns_label(title) or "step"
