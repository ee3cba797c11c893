"""A group as a row of the store, and its view for people and programs."""

from typing import cast

import orjson

from laxity_scheduler.groups.group import Group, State
from laxity_scheduler.groups.structure import GroupStep
from laxity_scheduler.service.views.view_fields import Json, finite_or_none
from laxity_scheduler.store.tables import GroupRow


def group_of(row: GroupRow) -> Group:
    """The group that the store has."""
    body = orjson.loads(row.body)
    steps = tuple(GroupStep(**{**step, "after": tuple(step["after"])}) for step in body["steps"])
    return Group(
        row.id, row.workflow, row.deadline_at, row.submitted_at, body["kind"],
        row.service_class, cast("State", row.state), row.finished_at, steps, body["open"], body["verdict"],
    )  # fmt: skip


def row_of(group: Group) -> GroupRow:
    """The group as the store has it."""
    steps = [step.to_json() for step in group.steps]
    return GroupRow(
        id=group.id,
        namespace=group.namespace,
        workflow=group.workflow,
        state=group.state,
        service_class=group.service_class,
        deadline_at=group.deadline_at,
        submitted_at=group.submitted_at,
        finished_at=group.finished_at,
        body=orjson.dumps(
            {"kind": group.kind, "open": group.open, "steps": steps, "verdict": group.verdict}
        ),
    )


def view_of(group: Group) -> Json:
    """Without the Jobs that its steps are predicted from."""
    return {
        "id": group.id,
        "kind": group.kind,
        "workflow": group.workflow,
        "class": group.service_class,
        "state": group.state,
        "deadline_at": finite_or_none(group.deadline_at),
        "submitted_at": group.submitted_at,
        "finished_at": group.finished_at,
        "steps": [step.view() for step in group.steps],
        **group.verdict,
    }
