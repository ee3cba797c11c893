"""The group that deadline flows join which are called in a workflow, also in its tasks and threads."""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

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


def step_name(title: str) -> str:
    """The name of the step that calls of a flow with this title are."""
    return dns_label(title) or "step"
