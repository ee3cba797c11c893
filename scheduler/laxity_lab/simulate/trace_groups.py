"""Workflows in a simulation: the groups of a trace, by the code that the service runs.

All jobs of a group are submitted together, as with a file of Jobs. A refused group goes away.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from laxity.job.qos import QoSError
from laxity_lab.traces.traces import TraceError
from laxity_profiler.estimate import NO_PROGRESS, Predictor
from laxity_scheduler.groups.cycle import GroupCycle, find_end, overlay
from laxity_scheduler.groups.group import Group, Json
from laxity_scheduler.groups.group_verdict import without_promise
from laxity_scheduler.groups.records import StepRecord, record_steps
from laxity_scheduler.groups.structure import GroupStep, order_steps
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.decision import Refuse
from laxity_scheduler.model.job import FOREVER, Job, Refusal
from laxity_scheduler.model.reasons import reason
from laxity_scheduler.plan import Plan, Policy
from laxity_scheduler.policies.registry import find
from laxity_scheduler.simulated.ground_truth import GroundTruth


def group_id(truth: GroundTruth) -> str:
    """NAMESPACE/GROUP; "" of a job of no group."""
    return truth.group and f"{truth.id.partition('/')[0]}/{truth.group}"


def groups_of(jobs: Sequence[GroundTruth]) -> dict[str, list[GroundTruth]]:
    """The jobs of each group."""
    members: defaultdict[str, list[GroundTruth]] = defaultdict(list)
    for truth in jobs:
        if truth.group:
            members[group_id(truth)].append(truth)
    return dict(members)


def read_group(name: str, jobs: Sequence[GroundTruth]) -> Group:
    """The group of these jobs, due when the last of them is. TraceError names a wrong step."""
    counts = Counter(job.step for job in jobs)
    after = {
        step: tuple({a: None for j in jobs if j.step == step for a in j.after}) for step in counts
    }
    steps = [GroupStep(step, count, after[step]) for step, count in counts.items()]
    try:
        ordered = tuple(order_steps(steps))
    except QoSError as error:
        raise TraceError(f"group {name}: {error}") from error
    due_at, since = max(j.deadline_at for j in jobs), min(j.submitted_at for j in jobs)
    kind = "hard" if due_at < FOREVER and all(j.service_class == "hard" for j in jobs) else "soft"
    return Group(name, name, due_at, since, service_class=kind, steps=ordered)


class TraceGroups:
    """The groups of a trace, from cycle to cycle.

    Where the policy of this name keeps nothing for coming steps, they have a forecast and soft jobs.
    """

    def __init__(self, jobs: Sequence[GroundTruth], predictor: Predictor, policy: str) -> None:
        self._policy = policy
        self.members = groups_of(jobs)
        self._truths = {job.id: job for members in self.members.values() for job in members}
        self.groups = {name: read_group(name, members) for name, members in self.members.items()}
        self._predictor, self._cycle = predictor, GroupCycle(self._row_of)
        self._active: dict[str, Group] = {}
        self._judged: set[str] = set()
        self.live: frozenset[str] = frozenset()  # members in the last snapshot
        self._refused: set[str] = set()
        self._views: defaultdict[str, list[Json]] = defaultdict(list)  # of ended jobs, by group

    def around(self, policy: Policy) -> Policy:
        """The policy, which sees of groups what it sees in the service."""

        def decide(state: ClusterState, predictor: Predictor) -> Plan:
            changed, ended = self.apply(find(self._policy).see(state), predictor)
            plan, why = policy(changed, predictor), Refusal(reason("group_ended"))
            refusals = [Refuse(job, why, why.reason) for job in ended if job in self.live]
            plan = replace(plan, decisions=(*plan.decisions, *refusals))
            self._refused |= {each.job for each in plan.decisions if isinstance(each, Refuse)}
            return plan

        return decide

    def apply(self, state: ClusterState, predictor: Predictor) -> tuple[ClusterState, list[str]]:
        """What a policy sees of the snapshot, and the jobs that end with their groups."""
        self.note_ended(state)
        new = {self.group_of(job) for job in self.live} - self._judged
        self._judged |= new
        refused: list[str] = []
        self._cycle.begin(list(self._active.values()), state, predictor)
        for group in list(self._active.values()):
            standing = self._cycle.update(group, self._views[group.id])
            if end := find_end(group, standing, state.now):
                del self._active[group.id]
                refused += standing.waits if end == "failed" else ()
        for name in sorted(new):
            mine = [job.id for job in self.members[name]]
            before = self._overlay_all(_without_jobs(state, mine))
            group = self._cycle.judge(self.groups[name], (), before, predictor)
            if not find(self._policy).plans_by_claims:
                group = without_promise(group, self._policy)
            self.groups[name] = group
            if group.state == "refused":
                refused += mine
            else:
                self._active[name] = group
                self._cycle.begin(list(self._active.values()), state, predictor)
                self._cycle.update(group, self._views[name])
        return self._overlay_all(_without_jobs(state, refused)), refused

    def records(self, group: Group, state: ClusterState) -> Mapping[str, StepRecord]:
        """What has become of the steps of a group."""
        return record_steps(group, self._views[group.id], state.jobs)

    def group_of(self, job_id: str) -> str:
        """The id of a member's group."""
        return group_id(self._truths[job_id])

    def note_ended(self, state: ClusterState) -> None:
        """What became of the members that the last snapshot had."""
        live = frozenset(self._truths.keys() & state.by_id.keys())
        for job_id in self.live - live:
            truth, name = self._truths[job_id], self.group_of(job_id)
            view = {
                "id": job_id,
                "group": truth.group,
                "step": truth.step,
                "finished_at": state.now,
            }
            kind = "refused" if job_id in self._refused else "finished"
            self._views[name].append(view | {"state": kind})
        self.live = live

    def _overlay_all(self, state: ClusterState) -> ClusterState:
        for name, group in self._active.items():
            state = overlay(state, group, self._cycle.standings[name])
        return replace(state, jobs=tuple(map(self._as_declared, state.jobs)))

    def _as_declared(self, job: Job) -> Job:
        """Soft where its group has a forecast."""
        group = self._active.get(self.group_of(job.id)) if job.group else None
        if group is None or group.promised or job.service_class != "hard":
            return job
        return replace(job, service_class="soft")

    def _row_of(self, group: Group, step: GroupStep, now: float) -> Job:
        """Like the job of the step that is believed to take longest."""
        del now
        here = [truth for truth in self.members[group.id] if truth.step == step.name]
        row = max(here, key=self._believed_s).row()
        return replace(row, id=f"{row.id}-coming", deadline_at=FOREVER)

    def _believed_s(self, truth: GroundTruth) -> float:
        return self._predictor.remaining(truth.workload, NO_PROGRESS, truth.widths[0]).p90_s


def _without_jobs(state: ClusterState, names: Sequence[str]) -> ClusterState:
    return replace(state, jobs=tuple([job for job in state.jobs if job.id not in names]))
