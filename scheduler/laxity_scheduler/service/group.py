"""A group as a value, its row in the store, and its view for people and programs."""

from dataclasses import dataclass, field, replace
from typing import Final, Literal, Self, cast

import orjson

from laxity_scheduler.groups.structure import GroupStep
from laxity_scheduler.service.view_fields import Json, finite_or_none
from laxity_scheduler.store.tables import GroupRow

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
    def promised(self) -> bool:
        return self.verdict["verdict"] == "promised" and self.state == "active"

    def ended(self, state: State, at: float) -> Self:
        return replace(self, state=state, finished_at=at)

    @classmethod
    def from_row(cls, row: GroupRow) -> Self:
        body = orjson.loads(row.body)
        steps = tuple(
            GroupStep(**{**step, "after": tuple(step["after"])}) for step in body["steps"]
        )
        return cls(
            row.id, row.workflow, row.deadline_at, row.submitted_at, body["kind"],
            row.service_class, cast("State", row.state), row.finished_at, steps, body["open"], body["verdict"],
        )  # fmt: skip

    def to_row(self) -> GroupRow:
        steps = [step.to_json() for step in self.steps]
        return GroupRow(
            id=self.id,
            namespace=self.namespace,
            workflow=self.workflow,
            state=self.state,
            service_class=self.service_class,
            deadline_at=self.deadline_at,
            submitted_at=self.submitted_at,
            finished_at=self.finished_at,
            body=orjson.dumps(
                {"kind": self.kind, "open": self.open, "steps": steps, "verdict": self.verdict}
            ),
        )

    def view(self) -> Json:
        """Without the Jobs that its steps are predicted from."""
        steps = [
            {name: value for name, value in step.to_json().items() if name != "manifest"}
            for step in self.steps
        ]
        return {
            "id": self.id,
            "kind": self.kind,
            "workflow": self.workflow,
            "class": self.service_class,
            "state": self.state,
            "deadline_at": finite_or_none(self.deadline_at),
            "submitted_at": self.submitted_at,
            "finished_at": self.finished_at,
            "steps": steps,
            **self.verdict,
        }
