"""Groups from cycle to cycle: who waits for whom, what is reserved, whose share is what.

What policies see is a snapshot with three changes: jobs whose turn has not come are left out, GPUs are
kept for the coming steps of promised groups, and a job's deadline is its share of the group's. All
else about a job is as for any other, so policies need not know of groups. The service and the
simulator call the same code.
"""

import logging
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import chain
from typing import Final

from laxity.job.qos import QoSError
from laxity_profiler.estimate import Predictor
from laxity_scheduler.frame.remaining import Forecasts
from laxity_scheduler.groups.composition import StepShare, divide_time, quantile_of
from laxity_scheduler.groups.group import Group, State
from laxity_scheduler.groups.group_verdict import judged, p90_s_of, verdict_of
from laxity_scheduler.groups.layout import GroupLayout, GroupPlanner, StepState
from laxity_scheduler.groups.records import StepRecord, View, record_steps
from laxity_scheduler.groups.structure import GroupStep
from laxity_scheduler.model.cluster import ClusterState, Reserved
from laxity_scheduler.model.job import FOREVER, Job, Promise
from laxity_scheduler.model.reasons import Reason, reason
from laxity_scheduler.promising.reservations import Reservations
from laxity_scheduler.promising.whole_workers import reserve_for

LOG: Final = logging.getLogger(__name__)
PATIENCE_S: Final = 600.0  # so long GPUs are kept for a step that does not come
STEADY: Final = 0.01  # of the time left, by which a share moves before it is said anew


@dataclass(frozen=True, slots=True)
class Standing:
    """A group as of the last cycle: its steps, how it goes on, and each step's share."""

    records: Mapping[str, StepRecord] = field(default_factory=dict)
    layout: GroupLayout = field(default_factory=GroupLayout)
    due_at: Mapping[str, float] = field(default_factory=dict)
    ends_at: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # P50 and P90
    reasons: Mapping[str, Reason] = field(default_factory=dict)
    late: Mapping[str, float] = field(default_factory=dict)  # steps that do not come, since when
    waits: Mapping[str, Reason] = field(default_factory=dict)  # jobs whose turn has not come
    deadline_at: float = FOREVER
    p90_at: float = 0.0


class GroupCycle:
    """The standings of groups. `row_of` makes a row as the coming jobs of a step will have."""

    def __init__(self, row_of: Callable[[Group, GroupStep, float], Job | None]) -> None:
        self._row_of = row_of
        self.standings: dict[str, Standing] = {}
        self._promised: dict[str, Sequence[Reserved]] = {}  # since the last cycle began
        self._state: ClusterState
        self._plan: Callable[[], GroupPlanner]

    def begin(self, groups: Sequence[Group], state: ClusterState, predictor: Predictor) -> None:
        """A cycle begins with these active groups; others are forgotten."""
        self._state = state
        self._promised.clear()
        self.standings = {group.id: self.standings.get(group.id, Standing()) for group in groups}
        kept = [
            reserved
            for group in groups
            if group.promised
            for reserved in self.standings[group.id].layout.reserved.values()
        ]
        horizon_s = max([_horizon_s(group, state) for group in groups], default=0.0)
        there = replace(state, reserved=tuple(kept))
        self._plan = cache(partial(_planner, there, predictor, horizon_s))

    def update(self, group: Group, views: Iterable[View]) -> Standing:
        """How a group stands now, beside what is kept for the others.

        Whatever is raised about it, its last standing holds, with all waits; what was kept stays kept.
        """
        before = self.standings[group.id]
        followers = _find_followers(group, self._state).items()
        waits = {job: before.waits.get(job, why) for job, why in followers}
        self.standings[group.id] = replace(before, waits=waits)
        planner = self._plan()
        if group.promised:
            planner.keep(before.layout.reserved.values(), -1)
        try:
            self.standings[group.id] = self._stand(group, views, planner, before)
        finally:
            if group.promised:
                planner.keep(self.standings[group.id].layout.reserved.values())
        return self.standings[group.id]

    def judge(
        self,
        group: Group,
        views: Iterable[View],
        state: ClusterState,
        predictor: Predictor,
        *,
        keeps: bool = False,
    ) -> Group:
        """The group with the verdict on the whole. QoSError if one of its Jobs makes no sense.

        Where the caller `keeps` it, what it is promised is there for no other before the next cycle.
        """
        others = [kept for kept in state.reserved if not kept.step.startswith(f"{group.id}/")]
        others += chain.from_iterable(
            kept for name, kept in self._promised.items() if name != group.id
        )
        what = self._unknown_part(group, state, predictor)
        if what:
            why = reason("group_unknown", what=what)
            return replace(group, state="active", verdict=verdict_of("forecast", why))
        state = replace(state, reserved=(*others, *self._kinds_of(group, state.now)))
        records = record_steps(group, views, state.jobs)
        planner = _planner(state, predictor, _horizon_s(group, state))
        layouts = [self._lay_out(group, records, planner, fast=fast) for fast in (False, True)]
        left_s = group.deadline_at - state.now
        layout = next(
            (one for one in layouts if p90_s_of(one) <= left_s), min(layouts, key=p90_s_of)
        )
        group = judged(group, layout, planner.reservations)
        if keeps and group.promised:
            self._promised[group.id] = tuple(layout.reserved.values())
        return group

    def _kinds_of(self, group: Group, now: float) -> list[Reserved]:
        """Nothing kept yet for each step: plans count room for its kind of workers."""
        rows = {step.name: self._row_of(group, step, now) for step in group.steps}
        return [
            reserve_for(f"{group.id}/{name}", row, now, now, 0)
            for name, row in rows.items()
            if row is not None
        ]

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

    def _lay_out(
        self,
        group: Group,
        records: Mapping[str, StepRecord],
        planner: GroupPlanner,
        *,
        fast: bool,
        late: Container[str] = (),
    ) -> GroupLayout:
        steps = [
            StepState(
                record.step,
                record.live,
                0 if record.step.name in late else record.coming,
                self._row_of(group, record.step, planner.forecasts.now),
            )
            for record in records.values()
        ]
        kept = self.standings.get(group.id, Standing()).layout.reserved
        return planner.lay_out(group.id, steps, kept, fast=fast)

    def _stand(
        self, group: Group, views: Iterable[View], planner: GroupPlanner, before: Standing
    ) -> Standing:
        state = planner.reservations.state
        records = record_steps(group, views, state.jobs)
        late = _find_late(group, records, state.now)
        try:
            layout = self._lay_out(group, records, planner, fast=False, late=late)
            left_s = group.deadline_at - state.now
            if p90_s_of(layout) > left_s:
                faster = self._lay_out(group, records, planner, fast=True, late=late)
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
        planner.spread(layout, due_at)
        reasons = {name: _share_reason(group, share, left_s) for name, share in shares.items()}
        waits = _find_waits(records)
        p90_at = state.now + p90_s_of(layout)
        ends_at = {
            name: (state.now + quantile_of(draws, 0.5), state.now + quantile_of(draws, 0.9))
            for name, draws in layout.course.ends_s.items()
        }
        return Standing(
            records, layout, due_at, ends_at, reasons, late, waits, group.deadline_at, p90_at
        )


def _planner(state: ClusterState, predictor: Predictor, horizon_s: float) -> GroupPlanner:
    forecasts = Forecasts(state, predictor)
    return GroupPlanner(forecasts, Reservations(state, forecasts), horizon_s)


def _horizon_s(group: Group, state: ClusterState) -> float:
    return max(1.0, 2.0 * (group.deadline_at - state.now))


def find_end(group: Group, standing: Standing, now: float) -> State | None:
    """How the group has ended: all steps are done, or waiting jobs can never start. None: it goes on."""
    records = standing.records.values()
    failed = [record for record in records if record.failed and not record.live]
    if standing.waits and failed and not group.open:
        return "failed"
    if records and all(record.is_done for record in records):
        last_at = max((record.ended_at for record in records), default=now)
        if not group.open or now - last_at > PATIENCE_S:
            return "finished"
    return None


def _due_s(share: StepShare, before_s: float) -> float:
    """The share of a step that runs: as it was, unless it needs more, or later steps do."""
    return min(max(before_s, share.due_s), max(share.latest_s, share.due_s))


def _share_reason(group: Group, share: StepShare, left_s: float) -> Reason:
    part = "it is on the longest way" if share.is_critical else "others take longer"
    name = group.id.partition("/")[2]
    return reason("share_of_group", takes_s=share.takes_s, left_s=left_s, group=name, part=part)


def _find_late(group: Group, records: Mapping[str, StepRecord], now: float) -> dict[str, float]:
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


def _find_waits(records: Mapping[str, StepRecord]) -> dict[str, Reason]:
    """Jobs whose turn has not come, and for which steps they wait."""
    waits: dict[str, Reason] = {}
    for record in records.values():
        open_steps = [
            name for name in record.step.after if name in records and not records[name].is_done
        ]
        if open_steps:
            why = reason("waits_for_steps", steps=", ".join(open_steps))
            waits |= {job.id: why for job in record.held}
    return waits


def _find_followers(group: Group, state: ClusterState) -> dict[str, Reason]:
    """Jobs that come after others and have not begun: they wait while nobody knows whose turn it is."""
    return {
        job.id: reason("waits_for_steps", steps=", ".join(job.after))
        for job in state.jobs
        if f"{job.namespace}/{job.group}" == group.id and job.after
        if not job.has_begun
    }


def overlay(state: ClusterState, group: Group, standing: Standing) -> ClusterState:
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
        p50_at, p90_at = (min(at, due_at) for at in standing.ends_at[job.step])
        promise = Promise(due_at, p50_at, p90_at, (), standing.reasons[job.step])
        return replace(job, verdict=promise, asked=True)
    if abs(job.verdict.deadline_at - due_at) <= max(1.0, STEADY * (due_at - job.submitted_at)):
        return replace(job, verdict=replace(job.verdict, deadline_at=due_at), asked=False)
    promise = replace(job.verdict, deadline_at=due_at, reason=standing.reasons[job.step])
    return replace(job, verdict=promise, asked=True)
