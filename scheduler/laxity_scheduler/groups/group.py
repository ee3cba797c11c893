"""A group as a value: several jobs with one deadline."""

from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, Self

from laxity_scheduler.groups.structure import GroupStep

Json = dict[str, Any]
State = Literal["active", "refused", "finished", "failed", "cancelled"]
ENDED: Final = frozenset({"finished", "failed", "cancelled"})


@dataclass(frozen=True, slots=True)
class Group:
    """Jobs with one deadline. `workflow` names what is run again and again, `kind` what it is.

    Of an `open` one its client says when it has ended; others end with their last step.
    `verdict` is JSON: its name, reason, offers, P50 and P90 finish of the whole.
    """

    id: str
    workflow: str
    deadline_at: float
    submitted_at: float
    kind: str = "workflow"
    service_class: str = "hard"
    state: State = "active"
    finished_at: float | None = None
    steps: tuple[GroupStep, ...] = ()
    open: bool = False
    verdict: Json = field(default_factory=lambda: {"verdict": "none", "reason": "", "offers": []})

    @property
    def namespace(self) -> str:
        return self.id.partition("/")[0]

    @property
    def is_sweep(self) -> bool:
        """Whether its client decides which jobs it has, and until when."""
        return self.kind == "sweep"

    @property
    def promised(self) -> bool:
        return self.verdict["verdict"] == "promised" and self.state == "active"

    def ended(self, state: State, at: float) -> Self:
        return replace(self, state=state, finished_at=at)
