"""The steps of a run that declared none."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from laxity_scheduler.groups.group import Group
from laxity_scheduler.groups.records import step_of
from laxity_scheduler.groups.structure import GroupStep
from laxity_scheduler.service.views.manifest_view import declaration_of
from laxity_scheduler.service.views.view_fields import Json


def learn_steps(
    group: Group, views: Iterable[Json], find_job: Callable[[str], Mapping[str, Any] | None]
) -> tuple[GroupStep, ...]:
    """The steps of a run from when its jobs began and ended: who came after whose end, and how many."""
    by_step: dict[str, list[Json]] = {}
    for view in views:
        if view["group"] and f"{view['id'].partition('/')[0]}/{view['group']}" == group.id:
            by_step.setdefault(step_of(view), []).append(view)
    spans = {
        name: (
            min(view["submitted_at"] or 0.0 for view in jobs),
            max(view["finished_at"] or float("inf") for view in jobs),
        )
        for name, jobs in by_step.items()
    }
    steps = []
    for name, jobs in by_step.items():
        began_at = spans[name][0]
        before = {other for other, (_, ended_at) in spans.items() if ended_at <= began_at}
        direct = {
            other for other in before
            if not any(spans[other][1] <= spans[later][0] for later in before)
        }  # fmt: skip
        gap_s = max(0.0, began_at - max((spans[other][1] for other in direct), default=began_at))
        manifest = find_job(jobs[0]["id"])
        kept = None if manifest is None else declaration_of(manifest)
        steps.append(GroupStep(name, len(jobs), tuple(sorted(direct)), kept, gap_s))
    return tuple(steps)
