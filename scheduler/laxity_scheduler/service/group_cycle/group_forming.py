"""Groups that nobody declares: Jobs name one in their annotations, as a file for `kubectl apply` does.

Such a group is judged once all of its Jobs are there: each step that one of them comes after, and
nobody new for `SETTLED_S`. Until then its Jobs wait, and after a refusal, too.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from laxity.job.qos import QoSError
from laxity_scheduler.groups.group import ENDED, Group
from laxity_scheduler.groups.structure import read_steps
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.job import FOREVER, Job
from laxity_scheduler.model.reasons import Reason, reason
from laxity_scheduler.service.views.manifest_view import declaration_of

SETTLED_S: Final = 3.0  # Jobs of one file come within a second
NO_DEADLINE: Final = "none of its Jobs has a deadline: annotate one with laxity.dev/deadline"
FindJob = Callable[[str], Mapping[str, Any] | None]


@dataclass(frozen=True, slots=True)
class Forming:
    """What came of groups that nobody declared: why Jobs wait, and groups that can be judged now."""

    waits: Mapping[str, Reason]
    ready: Sequence[Group]
    settles_at: float  # when one of them may be complete


def find_forming(state: ClusterState, groups: Iterable[Group], find_job: FindJob) -> Forming:
    """The Jobs of groups that nobody declared, of refused ones, and later steps of those that ended."""
    known = {group.id: group for group in groups}
    waits: dict[str, Reason] = {}
    ready, settles_at = [], FOREVER
    for group_id, jobs in _jobs_by_group(state).items():
        group = known.get(group_id)
        if group is not None and not _is_anew(group, jobs):
            if group.state == "refused":
                why = reason("group_refused", group=group.id, why=group.verdict["reason"])
                waits |= dict.fromkeys(_not_begun(jobs), why)
            elif group.state in ENDED:  # its later steps are being cancelled, or came too late
                waits |= dict.fromkeys(find_late(jobs), reason("group_ended"))
            continue
        settled_at = max(job.submitted_at for job in jobs) + SETTLED_S
        if settled_at <= state.now and not any(job.after for job in jobs):
            continue  # jobs side by side need no plan
        why = reason("group_forming", group=group_id)
        if settled_at > state.now:
            settles_at = min(settles_at, settled_at)
        else:
            try:
                ready.append(_form(group_id, jobs, find_job))
            except QoSError as error:
                why = reason("group_not_running", group=group_id, why=str(error))
        waits |= dict.fromkeys(_not_begun(jobs), why)
    return Forming(waits, ready, settles_at)


def _jobs_by_group(state: ClusterState) -> dict[str, list[Job]]:
    found: dict[str, list[Job]] = {}
    for job in state.jobs:
        if job.group:
            found.setdefault(f"{job.namespace}/{job.group}", []).append(job)
    return found


def find_late(jobs: Iterable[Job]) -> list[str]:
    """Jobs of later steps that have not begun, of a group that has ended."""
    return _not_begun(job for job in jobs if job.after)


def _not_begun(jobs: Iterable[Job]) -> list[str]:
    return [job.id for job in jobs if not job.has_begun]


def _is_anew(group: Group, jobs: Sequence[Job]) -> bool:
    """Whether these Jobs came after what is known of the group: its end, or its refusal."""
    if group.state not in {"refused", *ENDED}:
        return False
    since = group.submitted_at if group.finished_at is None else group.finished_at
    return min(job.submitted_at for job in jobs) > since


def _form(group_id: str, jobs: Sequence[Job], find_job: FindJob) -> Group:
    """The group of these Jobs. QoSError says what is wrong with it."""
    due_at = max((job.deadline_at for job in jobs if job.deadline_at < FOREVER), default=FOREVER)
    if due_at == FOREVER:
        raise QoSError("deadline", NO_DEADLINE)
    rows: dict[str, dict[str, Any]] = {}
    for job in jobs:
        row = rows.setdefault(job.step, {"name": job.step, "count": 0, "after": []})
        row["count"] += 1
        row["after"] += job.after
        if "manifest" not in row and (manifest := find_job(job.id)) is not None:
            row["manifest"] = declaration_of(manifest)
    return Group(
        group_id,
        workflow=group_id.partition("/")[2],
        deadline_at=due_at,
        submitted_at=min(job.submitted_at for job in jobs),
        service_class="hard" if any(job.service_class == "hard" for job in jobs) else "soft",
        steps=read_steps(list(rows.values())),
    )
