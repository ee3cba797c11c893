"""Brings groups up to date in each cycle: who waits for whom, what is reserved, whose share is what.

What policies see is a snapshot with three changes: jobs whose turn has not come are left out, GPUs are
kept for the coming steps of promised groups, and a job's deadline is its share of the group's. All
else about a job is as for any other, so policies need not know of groups.
"""

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from laxity.job.qos import QoSError
from laxity_profiler.estimate import Predictor
from laxity_scheduler.frame.remaining import Forecasts
from laxity_scheduler.groups.composition import StepShare, divide_time
from laxity_scheduler.groups.layout import GroupLayout, GroupPlanner, StepState
from laxity_scheduler.groups.structure import GroupStep
from laxity_scheduler.job_faults import JobFaults
from laxity_scheduler.live import LiveWorld, UnknownJobError
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.job import FOREVER, Job
from laxity_scheduler.model.reasons import Reason, reason
from laxity_scheduler.model.verdict import Promise
from laxity_scheduler.promising.reservations import Reservations
from laxity_scheduler.service.group import Group
from laxity_scheduler.service.group_book import GroupBook
from laxity_scheduler.service.group_steps import StepRecord, learn_steps, record_steps
from laxity_scheduler.service.group_verdict import judged, p90_s_of, verdict_of
from laxity_scheduler.service.view_cache import ViewCache
from laxity_scheduler.service.view_fields import Json, finite_or_none

LOG: Final = logging.getLogger(__name__)
PATIENCE_S: Final = 600.0  # so long GPUs are kept for a step that does not come
STEADY: Final = 0.01  # of the time left, by which a share moves before it is said anew


@dataclass(frozen=True, slots=True)
class Standing:
    """A group as of the last cycle: its steps, how it goes on, and each step's share."""

    records: Mapping[str, StepRecord] = field(default_factory=dict)
    layout: GroupLayout = field(default_factory=GroupLayout)
    due_at: Mapping[str, float] = field(default_factory=dict)
    reasons: Mapping[str, Reason] = field(default_factory=dict)
    late: Mapping[str, float] = field(default_factory=dict)  # steps that do not come, since when
    waits: Mapping[str, str] = field(default_factory=dict)  # jobs whose turn has not come: for what
    deadline_at: float = FOREVER
    p90_at: float = 0.0


class GroupKeeper:
    """The groups of one service, between the world that is observed and the policy that decides."""

    def __init__(
        self, book: GroupBook, world: LiveWorld, views: ViewCache, faults: JobFaults
    ) -> None:
        self.book, self._world, self._faults = book, world, faults
        self._views = views.views_in_any_order
        self.standings: dict[str, Standing] = {}
        self._rows: dict[tuple[str, str], Job | None] = {}
        self._strays: Mapping[str, str] = {}  # jobs that come after steps of no group: what to do

    def apply_to(self, state: ClusterState, predictor: Predictor, *, acts: bool) -> ClusterState:
        """The snapshot as policies are to see it; itself while there are no active groups.

        Groups are ended, and jobs cancelled, only by the replica that `acts`.
        """
        self.book.refresh()
        groups = [
            group
            for group in self.book.groups(lambda _: True)
            if group.state == "active" and not group.is_sweep
        ]
        self._strays = _find_strays(state, {group.id for group in groups})
        changed = _without_jobs(state, self._strays)
        if not groups:
            self.standings = {}
            return changed
        views = self._views()
        for group in groups:
            with self._faults.isolate("group", group.id):
                records = record_steps(group, views, state.jobs)
                beside = self._beside(group, groups, state)
                standing = self._stand(group, records, beside, predictor)
                self.standings[group.id] = standing
                if acts:
                    self._end_if_over(group, standing, state.now)
                changed = _overlay(changed, group, standing)
        return changed

    def _beside(self, group: Group, groups: Iterable[Group], state: ClusterState) -> ClusterState:
        """The snapshot with what is kept for all other groups."""
        kept = [
            reserved
            for other in groups
            if other.promised and other.id != group.id and other.id in self.standings
            for reserved in self.standings[other.id].layout.reserved.values()
        ]
        return replace(state, reserved=tuple(kept))

    def judge(self, group: Group, state: ClusterState, predictor: Predictor) -> Group:
        """The group with the verdict on the whole. QoSError if one of its Jobs makes no sense.

        A sweep has its client's verdict: each of its trials is promised as a job of its own.
        """
        if group.is_sweep:
            return group
        others = [kept for kept in state.reserved if not kept.step.startswith(f"{group.id}/")]
        state = replace(state, reserved=tuple(others))
        steps = group.steps or self._learned_steps(group)
        group = replace(group, steps=steps)
        what = self._unknown_part(group, state, predictor)
        if what:
            why = reason("group_unknown", what=what)
            return replace(group, state="active", verdict=verdict_of("forecast", why))
        records = record_steps(group, self._views(), state.jobs)
        layouts = [
            self._lay_out(group, records, state, predictor, fast=fast) for fast in (False, True)
        ]
        left_s = group.deadline_at - state.now
        layout = next(
            (one for one in layouts if p90_s_of(one) <= left_s), min(layouts, key=p90_s_of)
        )
        reservations = Reservations(state, Forecasts(state, predictor))
        return judged(group, layout, reservations)

    def job_fields(self, view: Json) -> Json:
        """What a job's view says of its share: why it has it, or what it waits for."""
        if stray := self._strays.get(view["id"]):
            return {"share_reason": stray, "reason": stray}
        standing = self.standings.get(f"{view['id'].partition('/')[0]}/{view['group']}")
        if standing is None:
            return {}
        waits = standing.waits.get(view["id"])
        share = standing.reasons.get(view["step"])
        text = waits or (share.text if share else "")
        return {"share_reason": text, **({"reason": waits} if waits else {})}

    def group_fields(self, group: Group) -> Json:
        """What a group's view says of its steps now."""
        standing = self.standings.get(group.id, Standing())
        steps = [_step_view(step, standing) for step in group.steps]
        fields: Json = {"steps": steps}
        if group.state == "active" and standing.p90_at:
            fields["p90_at"] = finite_or_none(standing.p90_at)
        if standing.late:
            sentence = "step {} has not come, and its GPUs are no longer kept"
            fields["reason"] = "; ".join(map(sentence.format, standing.late))
        return fields

    def finish(self, group: Group, state: Any) -> Group:
        """The group, ended, with the steps that it really had where none were declared."""
        if not group.steps and not group.is_sweep:
            learned = learn_steps(group, self._views(), self._find_job)
            self.book.keep(replace(group, steps=learned))
        return self.book.end(group.id, state)

    def _find_job(self, job_id: str) -> Mapping[str, Any] | None:
        try:
            return self._world.job(job_id)
        except UnknownJobError:
            return None

    def _learned_steps(self, group: Group) -> tuple[GroupStep, ...]:
        """Those of the last finished run of this workflow; none without one."""
        runs = [
            run
            for run in self.book.groups(lambda namespace: namespace == group.namespace)
            if run.workflow == group.workflow and run.state == "finished" and run.steps
        ]
        return runs[-1].steps if runs else ()

    def _unknown_part(self, group: Group, state: ClusterState, predictor: Predictor) -> str:
        """Of what nobody knows how long it takes; "" if all is known."""
        if not group.steps:
            return f"the steps of {group.workflow}, which has not finished before"
        forecasts = Forecasts(state, predictor)
        for step in group.steps:
            row = self._row_of(group, step, state.now)
            if row is None or not forecasts.curve(row).known:
                return f"how long step {step.name} takes"
        return ""

    def _row_of(self, group: Group, step: GroupStep, now: float) -> Job | None:
        """A row as its coming jobs will have; None where nobody says what these are."""
        key = group.id, step.name
        if key not in self._rows or self._rows[key] is None:
            row = None
            if step.manifest is not None:
                row = replace(
                    self._world.preview(step.manifest, now).row,
                    id=f"{group.id}-{step.name}-coming", verdict=None, deadline_at=FOREVER,
                )  # fmt: skip
            self._rows[key] = row
        return self._rows[key]

    def _lay_out(
        self,
        group: Group,
        records: Mapping[str, StepRecord],
        state: ClusterState,
        predictor: Predictor,
        *,
        fast: bool,
        late: Mapping[str, float] | None = None,
    ) -> GroupLayout:
        forecasts = Forecasts(state, predictor)
        steps = [
            StepState(
                record.step,
                record.live,
                0 if record.step.name in (late or {}) else record.coming,
                self._row_of(group, record.step, state.now),
            )
            for record in records.values()
        ]
        horizon_s = max(1.0, 2.0 * (group.deadline_at - state.now))
        planner = GroupPlanner(forecasts, Reservations(state, forecasts), horizon_s)
        kept = self.standings.get(group.id, Standing()).layout.reserved
        return planner.lay_out(group.id, steps, kept, fast=fast)

    def _stand(
        self,
        group: Group,
        records: Mapping[str, StepRecord],
        state: ClusterState,
        predictor: Predictor,
    ) -> Standing:
        before = self.standings.get(group.id, Standing())
        late = _find_late(group, records, before, state.now)
        try:
            layout = self._lay_out(group, records, state, predictor, fast=False, late=late)
            left_s = group.deadline_at - state.now
            if p90_s_of(layout) > left_s:
                faster = self._lay_out(group, records, state, predictor, fast=True, late=late)
                layout = min((layout, faster), key=p90_s_of)
        except QoSError as error:  # the Job of a step makes no sense any more
            LOG.warning("group %s is not laid out: %s", group.id, error)
            return Standing(records, late=late, waits=_find_waits(records))
        shares = divide_time(layout.course, left_s)
        same = before.deadline_at == group.deadline_at
        due_at = {
            name: state.now + _due_s(share, before.due_at[name] - state.now)
            if same and name in before.due_at and records[name].live
            else state.now + share.due_s
            for name, share in shares.items()
        }
        reasons = {name: _share_reason(group, share, left_s) for name, share in shares.items()}
        waits = _find_waits(records)
        p90_at = state.now + p90_s_of(layout)
        return Standing(records, layout, due_at, reasons, late, waits, group.deadline_at, p90_at)

    def _end_if_over(self, group: Group, standing: Standing, now: float) -> None:
        """End a group whose steps are all done, or one of whose waiting jobs can never start."""
        records = standing.records.values()
        failed = [record for record in records if record.failed and not record.live]
        blocked = [job for job in standing.waits if failed and not group.open]
        if blocked:
            self.finish(group, "failed")
            for job_id in blocked:
                self._world.cancel(job_id)
        elif records and all(record.is_done for record in records):
            last_at = max((record.ended_at for record in records), default=now)
            if not group.open or now - last_at > PATIENCE_S:
                self.finish(group, "finished")


def _step_view(step: GroupStep, standing: Standing) -> Json:
    """A step without the Job that it is predicted from; its share, until it is done."""
    view = {name: value for name, value in step.to_json().items() if name != "manifest"}
    record, share = standing.records.get(step.name), standing.reasons.get(step.name)
    if record is None or share is None:
        return view
    view |= record.counts
    if record.is_done:
        return view
    due_at = finite_or_none(standing.due_at.get(step.name))
    return view | {"due_at": due_at, "share_reason": share.text}


def _due_s(share: StepShare, before_s: float) -> float:
    """The share of a step that runs: as it was, unless it needs more, or later steps do."""
    return min(max(before_s, share.due_s), max(share.latest_s, share.due_s))


def _share_reason(group: Group, share: StepShare, left_s: float) -> Reason:
    part = "it is on the longest way" if share.is_critical else "others take longer"
    name = group.id.partition("/")[2]
    return reason("share_of_group", takes_s=share.takes_s, left_s=left_s, group=name, part=part)


def _find_late(
    group: Group, records: Mapping[str, StepRecord], before: Standing, now: float
) -> dict[str, float]:
    """Steps that should have come long ago: all before them is done."""
    late = {}
    for name, record in records.items():
        if not record.coming or record.live or record.held:
            continue
        earlier = [records[other] for other in record.step.after if other in records]
        ready_at = max([group.submitted_at, *(other.ended_at for other in earlier)])
        if all(other.is_done for other in earlier) and now - ready_at > (
            PATIENCE_S + 3.0 * record.step.gap_s
        ):
            late[name] = ready_at
    return late


def _find_waits(records: Mapping[str, StepRecord]) -> dict[str, str]:
    """Jobs whose turn has not come, and for which steps they wait."""
    waits: dict[str, str] = {}
    for record in records.values():
        open_steps = [
            name for name in record.step.after if name in records and not records[name].is_done
        ]
        if open_steps:
            waits |= {job.id: f"it waits for {', '.join(open_steps)}" for job in record.held}
    return waits


def _find_strays(state: ClusterState, groups: Collection[str]) -> dict[str, str]:
    """Jobs that come after steps of a group which is none of these, as `kubectl apply` makes them."""
    sentence = (
        "it comes after {}, and no group {} runs: submit all of its Jobs in one file, with "
        "laxity submit FILE --deadline 8h"
    )
    return {
        job.id: sentence.format(", ".join(job.after), job.group)
        for job in state.jobs
        if job.after and not job.workers and not job.progress.epochs_done
        and f"{job.namespace}/{job.group}" not in groups
    }  # fmt: skip


def _without_jobs(state: ClusterState, names: Collection[str]) -> ClusterState:
    if not names:
        return state
    return replace(state, jobs=tuple(job for job in state.jobs if job.id not in names))


def _overlay(state: ClusterState, group: Group, standing: Standing) -> ClusterState:
    """The snapshot with the group's shares, without its jobs that wait for others."""
    rows = []
    for job in state.jobs:
        if f"{job.namespace}/{job.group}" != group.id:
            rows.append(job)
        elif job.id not in standing.waits:
            rows.append(_with_share(job, group, standing))
    reserved = list(standing.layout.reserved.values()) if group.promised else []
    return replace(state, jobs=tuple(rows), reserved=(*state.reserved, *reserved))


def _with_share(job: Job, group: Group, standing: Standing) -> Job:
    due_at = standing.due_at.get(job.step)
    if due_at is None or job.pinned or job.refused:
        return job
    job = replace(job, deadline_at=due_at)
    if not group.promised or job.service_class != "hard":
        return job
    if not isinstance(job.verdict, Promise):
        promise = Promise(due_at, due_at, due_at, (), standing.reasons[job.step])
        return replace(job, verdict=promise, asked=True)
    if abs(job.verdict.deadline_at - due_at) <= max(1.0, STEADY * (due_at - job.submitted_at)):
        return replace(job, verdict=replace(job.verdict, deadline_at=due_at), asked=False)
    promise = replace(job.verdict, deadline_at=due_at, reason=standing.reasons[job.step])
    return replace(job, verdict=promise, asked=True)
