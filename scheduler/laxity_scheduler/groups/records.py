"""What has become of the jobs of each step."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from laxity.human_time import count_noun, format_seconds
from laxity_scheduler.groups.group import ENDED, Group, Json
from laxity_scheduler.groups.structure import GroupStep, order_steps
from laxity_scheduler.model.job import Job
from laxity_scheduler.model.reasons import format_utc

View = Mapping[str, Any]  # of a job: its id, group, step, state, and when it ended
FAILED: Final = ("failed", "cancelled", "refused")


@dataclass(frozen=True, slots=True)
class StepRecord:
    """A step, its jobs in the snapshot, and how many have finished or failed.

    `held` are those that wait for other steps; they count among those that are to `come`.
    """

    step: GroupStep
    live: tuple[Job, ...]
    held: tuple[Job, ...]
    finished: int
    failed: int
    ended_at: float  # when the last one ended; 0: none has

    @property
    def coming(self) -> int:
        there = len(self.live) + self.finished + self.failed
        return max(len(self.held), self.step.count - there)

    @property
    def is_done(self) -> bool:
        return not self.live and not self.held and self.finished >= self.step.count

    @property
    def counts(self) -> Json:
        return {"finished": self.finished, "running": len(self.live), "to_come": self.coming}


def record_steps(group: Group, views: Iterable[View], rows: Sequence[Job]) -> dict[str, StepRecord]:
    """All steps in their order, also those that jobs have and nobody declared."""
    mine = [row for row in rows if f"{row.namespace}/{row.group}" == group.id]
    live_ids = {row.id for row in mine}
    ended = {
        view["id"]: view
        for view in views
        if view["group"] and f"{view['id'].partition('/')[0]}/{view['group']}" == group.id
        if view["id"] not in live_ids and view["finished_at"] is not None
    }
    declared = {step.name for step in group.steps}
    steps = [*group.steps, *_undeclared(mine, declared)]
    records: dict[str, StepRecord] = {}
    for step in order_steps(steps):
        here = [row for row in mine if row.step == step.name]
        over = [view for view in ended.values() if step_of(view) == step.name]
        waits = any(not records[name].is_done for name in step.after)
        held = tuple(row for row in here if waits and row.after and not row.workers)
        records[step.name] = StepRecord(
            step,
            tuple(row for row in here if row not in held),
            held,
            sum(view["state"] == "finished" for view in over),
            sum(view["state"] in FAILED for view in over),
            max((view["finished_at"] for view in over), default=0.0),
        )
    return records


def describe_end(group: Group, views: Iterable[View]) -> str:
    """How the whole has ended, beside its deadline or by which steps; "" while it goes on."""
    if group.state == "finished" and group.finished_at is not None:
        late_s = group.finished_at - group.deadline_at
        was_promised = group.verdict["verdict"] == "promised"
        outcome = "kept" if late_s <= 0.0 else "broken" if was_promised else "late"
        side = "before" if late_s <= 0.0 else "after"
        due = format_utc(group.deadline_at)
        return f"{outcome}: finished {format_seconds(abs(late_s))} {side} the deadline {due}"
    failed = dict.fromkeys(step_of(view) for view in views if view["state"] == "failed")
    if group.state == "failed" and failed:
        return f"failed: {', '.join(f'step {name}' for name in failed)}"
    return group.state if group.state in ENDED else ""


def find_deviations(group: Group, views: Iterable[View]) -> list[str]:
    """Where its jobs are others than its steps say, in words; nothing if it has none."""
    planned = {step.name: step.count for step in group.steps}
    there = Counter([step_of(view) for view in views if view["state"] not in FAILED])
    more = [
        f"step {name} has {count_noun(count, 'job')}, and {planned.get(name, 0)} were planned"
        for name, count in there.items()
        if count > planned.get(name, 0)
    ]
    has_ended = group.state == "finished"
    never = [f"step {name} never came" for name in planned if has_ended and not there[name]]
    return [*more, *never] if planned else []


def step_of(view: View) -> str:
    return str(view["step"] or view["id"].partition("/")[2])


def _undeclared(rows: Iterable[Job], declared: set[str]) -> list[GroupStep]:
    names = sorted({row.step for row in rows} - declared)
    return [GroupStep(name, 0) for name in names]
