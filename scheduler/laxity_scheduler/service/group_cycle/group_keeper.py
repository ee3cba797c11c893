"""The groups of one service in each cycle, between the world that is observed and the policy that decides."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from laxity_profiler.estimate import Predictor
from laxity_scheduler.groups.cycle import PATIENCE_S, GroupCycle, Standing, find_end, overlay
from laxity_scheduler.groups.group import Group, State
from laxity_scheduler.groups.group_verdict import without_promise
from laxity_scheduler.groups.structure import GroupStep
from laxity_scheduler.job_faults import JobFaults
from laxity_scheduler.live import LiveWorld, UnknownJobError
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.decision import Wait
from laxity_scheduler.model.job import FOREVER, Job
from laxity_scheduler.model.reasons import Reason
from laxity_scheduler.plan import Plan
from laxity_scheduler.policies.registry import find_planner
from laxity_scheduler.service.group_cycle.group_book import GroupBook
from laxity_scheduler.service.group_cycle.group_forming import find_forming, find_late
from laxity_scheduler.service.group_cycle.group_steps import learn_steps
from laxity_scheduler.service.policy_in_force import PolicyInForce
from laxity_scheduler.service.views.view_cache import ViewCache
from laxity_scheduler.service.views.view_fields import TERMINAL_STATES, Json, finite_or_none


class GroupKeeper:
    """Which groups there are, and what they come to."""

    def __init__(
        self,
        book: GroupBook,
        world: LiveWorld,
        views: ViewCache,
        faults: JobFaults,
        policies: PolicyInForce,
    ) -> None:
        self._policies = policies
        self.book, self._world, self._faults = book, world, faults
        self._views = views.views_in_any_order
        self._cycle = GroupCycle(self._row_of)
        self._rows: dict[tuple[str, str], Job | None] = {}
        self._strays: Mapping[str, Reason] = {}  # jobs of groups that nobody declared yet
        self.settles_at = FOREVER  # when such a group may be complete

    def apply_to(self, state: ClusterState, predictor: Predictor, *, acts: bool) -> ClusterState:
        """The snapshot as policies are to see it; itself while there are no active groups.

        Groups are ended, and jobs cancelled, only by the replica that `acts`.
        """
        self.book.refresh()
        if acts:
            self._end_left_sweeps(state.now)
        forming = find_forming(state, self.book.groups(lambda _: True), self._find_job)
        self._strays, self.settles_at = dict(forming.waits), forming.settles_at
        groups = [
            group
            for group in self.book.groups(lambda _: True)
            if group.state == "active" and not group.is_sweep
        ]
        for group in groups:
            with self._faults.isolate("group", group.id):
                state = self._with_sets(state, group)
        planner = find_planner(self._policies.name)
        state = state if planner is None else planner.see(state)
        changed = _without_jobs(state, self._strays)
        self._cycle.begin(groups, state, predictor)
        views = self._views() if groups else ()
        for group in groups:
            with self._faults.isolate("group", group.id):
                standing = self._cycle.update(group, views)
                if acts and (end := find_end(group, standing, state.now)):
                    self._end(group, standing, end, state)
            changed = overlay(changed, group, self._cycle.standings[group.id])
        for group in forming.ready if acts else ():  # whose Jobs have come, and nobody declared it
            own = own_jobs(group, state)
            beside = _without_jobs(changed, {job.id for job in own})
            with self._faults.isolate("group", group.id):
                there = replace(beside, jobs=(*beside.jobs, *own))
                self.book.keep(self.judge(group, there, predictor, keeps=True))
                self._world.wake()  # its Jobs go on in the next cycle
        return changed

    def _end_left_sweeps(self, now: float) -> None:
        """End sweeps that their client has left: they are late, and none of their trials goes on.

        Refused trials go with them, as if the client had ended them.
        """
        left = [
            group
            for group in self.book.groups(lambda _: True)
            if group.state == "active" and group.is_sweep
            if now >= group.deadline_at + PATIENCE_S
        ]
        for group in left:
            with self._faults.isolate("group", group.id):
                views = [view for view in self._views() if group_id_of(view) == group.id]
                refused = {view["id"] for view in views if view["state"] == "refused"}
                if all(view["state"] in TERMINAL_STATES or view["id"] in refused for view in views):
                    self.finish(group, "finished")
                    for job_id in sorted(refused):
                        self._world.cancel(job_id)

    def with_waits(self, plan: Plan) -> Plan:
        """The plan, which also tells each job that is left out of it what it waits for."""
        standings = self._cycle.standings.values()
        why = [self._strays, *(standing.waits for standing in standings)]
        waits = [Wait(job, cause) for waits in why for job, cause in waits.items()]
        return replace(plan, decisions=(*plan.decisions, *waits)) if waits else plan

    def judge(
        self, group: Group, state: ClusterState, predictor: Predictor, *, keeps: bool
    ) -> Group:
        """The group with the verdict on the whole. QoSError if one of its Jobs makes no sense.

        What is promised to one that the caller `keeps` is there for no other one from now on.
        A sweep has its client's verdict: each of its trials is promised as a job of its own.
        """
        if group.is_sweep:
            return group
        steps = group.steps or self._learned_steps(group)
        policy, group = self._policies.name, replace(group, steps=steps)
        planner = find_planner(policy)
        state = self._with_sets(state if planner is None else planner.see(state), group)
        keeps = keeps and planner is not None
        judged = self._cycle.judge(group, self._views(), state, predictor, keeps=keeps)
        return without_promise(judged, policy) if planner is None else judged

    def _with_sets(self, state: ClusterState, group: Group) -> ClusterState:
        """The snapshot with the nodes that coming steps may use: no job there may name them yet."""
        sets = dict(state.sets or {})
        for step in group.steps:
            row = self._row_of(group, step, state.now)
            if row is not None and row.eligible and row.eligible not in sets and step.manifest:
                sets[row.eligible] = self._world.preview(step.manifest, state.now).nodes
        return replace(state, sets=sets) if sets != (state.sets or {}) else state

    def job_fields(self, view: Json) -> Json:
        """What a job's view says of its share: why it has it, or what it waits for."""
        if stray := self._strays.get(view["id"]):
            return {"share_reason": stray.text, "reason": stray.text}
        standing = self._cycle.standings.get(group_id_of(view))
        if standing is None:
            return {}
        waits = standing.waits.get(view["id"])
        share = standing.reasons.get(view["step"])
        text = why.text if (why := waits or share) else ""
        return {"share_reason": text, **({"reason": text} if waits else {})}

    def group_fields(self, group: Group) -> Json:
        """What a group's view says of its steps now."""
        standing = self._cycle.standings.get(group.id, Standing())
        steps = [_step_view(step, standing) for step in group.steps]
        fields: Json = {"steps": steps}
        if group.state == "active" and standing.p90_at:
            fields["p90_at"] = finite_or_none(standing.p90_at)
        if standing.late:
            sentence = "step {} has not come, and its GPUs are no longer kept"
            fields["reason"] = "; ".join(map(sentence.format, standing.late))
        return fields

    def finish(self, group: Group, state: State) -> Group:
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

    def _end(self, group: Group, standing: Standing, end: State, state: ClusterState) -> None:
        """End the group; a later step that has not begun never will, also where its turn had come."""
        self.finish(group, end)
        for job_id in sorted({*standing.waits, *find_late(own_jobs(group, state))}):
            self._world.cancel(job_id)


def group_id_of(view: Json) -> str:
    """Of the group that a job's view names."""
    return f"{view['id'].partition('/')[0]}/{view['group']}"


def own_jobs(group: Group, state: ClusterState) -> list[Job]:
    return [job for job in state.jobs if f"{job.namespace}/{job.group}" == group.id]


def _step_view(step: GroupStep, standing: Standing) -> Json:
    """A step without the Job that it is predicted from; its share, until it is done."""
    view = step.view()
    record, share = standing.records.get(step.name), standing.reasons.get(step.name)
    if record is None or share is None:
        return view
    view |= record.counts
    if record.is_done:
        return view
    due_at = finite_or_none(standing.due_at.get(step.name))
    return view | {"due_at": due_at, "share_reason": share.text}


def _without_jobs(state: ClusterState, names: Collection[str]) -> ClusterState:
    if not names:
        return state
    return replace(state, jobs=tuple(job for job in state.jobs if job.id not in names))
