"""Where the steps of a group find room: how each goes, and what is kept for those that come.

A step that is not there yet stands in the snapshot as GPUs that are kept from one instant to another
(`ClusterState.reserved`), not as a row: no policy could start it, and every reader of rows would have
to know that. Earlier promises are respected, as its time is chosen on what they leave; later ones,
as they are planned on what it leaves. They are kept from the end of the shares of the steps before it,
so that no job of the group is in the way of the next; where there is no room for all steps then, from
their P90 ends (`GroupPlanner.spread`). GPUs are counted as claims are:
on the cluster, on sets of nodes, under quotas, and in whole workers.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Final

from laxity_profiler.estimate import Floats
from laxity_scheduler.frame.remaining import Forecasts
from laxity_scheduler.groups.composition import GroupCourse, StepPart, quantile_of
from laxity_scheduler.groups.structure import GroupStep
from laxity_scheduler.model.cluster import Reserved
from laxity_scheduler.model.job import FOREVER, Job
from laxity_scheduler.promising.reservations import Reservations
from laxity_scheduler.promising.reserve import Profile, find_end, find_slot, keep_gpus
from laxity_scheduler.promising.whole_workers import keep_steps, parts_of, reserve_for

MOST_ROUNDS: Final = 16  # that are tried for jobs that do not all fit side by side
TOLERANCE: Final = 0.05  # of its length, by which a step may begin later than its GPUs are kept


@dataclass(frozen=True, slots=True)
class StepState:
    """A step now: its `live` jobs, and so many that are still to `come`, each like `row`."""

    step: GroupStep
    live: tuple[Job, ...] = ()
    coming: int = 0
    row: Job | None = None


@dataclass(slots=True)
class GroupLayout:
    """A group laid out in time. `blocked` is a step for which there is never room."""

    course: GroupCourse = field(default_factory=GroupCourse)
    reserved: dict[str, Reserved] = field(default_factory=dict)
    widths: dict[str, int] = field(default_factory=dict)
    blocked: str = ""


class GroupPlanner:
    """Lays out groups, one after another, on what all claims and all kept GPUs leave of the cluster."""

    def __init__(self, forecasts: Forecasts, reservations: Reservations, horizon_s: float) -> None:
        self.forecasts, self.reservations = forecasts, reservations
        self.room = reservations.room
        self.profile = reservations.profile(horizon_s).copy()

    def keep(self, reserved: Iterable[Reserved], sign: int = 1) -> None:
        """Keep these GPUs from now on; with -1 no longer."""
        room, now = self.room, self.forecasts.now
        keep_steps(self.profile, reserved, now, room.regions, room.whole, sign=sign)

    def parts_of(self, step: Job | Reserved) -> list[int]:
        """Where a step weighs."""
        return parts_of(self.room.regions, self.room.whole, step)

    def lay_out(
        self, group: str, states: Sequence[StepState], kept: Mapping[str, Reserved], *, fast: bool
    ) -> GroupLayout:
        """All steps, in their order, on their least widths or on those that end each soonest.

        `kept` is what was reserved before, by step; it stays where it still does.
        """
        layout, profile = GroupLayout(), self.profile.copy()
        for state in states:
            self._add_step(layout, group, state, kept.get(state.step.name), profile, fast=fast)
        return layout

    def spread(self, layout: GroupLayout, due_at: Mapping[str, float]) -> None:
        """Keep GPUs from when the steps before must have ended, where there is room for all steps.

        A step may use its whole share: what is kept for the next one is not moved into the way of others.
        """
        now, profile, spread = self.forecasts.now, self.profile.copy(), {}
        for part in layout.course.parts:
            kept = layout.reserved.get(part.name)
            if kept is None:
                continue
            ready_s = (
                max([due_at[name] for name in part.after if name in due_at], default=0.0) - now
            )
            length_s = kept.until_at - kept.from_at
            from_s, parts = max(ready_s, kept.from_at - now), self.parts_of(kept)
            start_s = find_start(profile, from_s, kept.gpus, length_s, parts)
            if (
                now + start_s + length_s
                > max(due_at[part.name], kept.until_at) + TOLERANCE * length_s
            ):
                return
            keep_gpus(profile, start_s, start_s + length_s, float(kept.gpus), parts)
            spread[part.name] = replace(
                kept, from_at=now + start_s, until_at=now + start_s + length_s
            )
        layout.reserved |= spread

    def _add_step(
        self,
        layout: GroupLayout,
        group: str,
        state: StepState,
        kept: Reserved | None,
        profile: Profile,
        *,
        fast: bool,
    ) -> None:
        name, after, now = state.step.name, state.step.after, self.forecasts.now
        each = 0 if kept is None else kept.gpus // max(1, len(state.live))
        running = tuple([self._times_of(job, each) for job in state.live])
        if not state.coming or state.row is None:
            layout.course.add(StepPart(name, 0.0, 0.0, after, 0, running=running))
            return
        ready_s = quantile_of(layout.course.ready_s(after), 0.9) + state.step.gap_s
        options = [
            (*self._find_room(state, profile, ready_s, width), width)
            for width in self._widths(state.row, profile)[: None if fast else 1]
        ]
        _, start_s, at_once, width = min(options)
        p50_s = self.forecasts.rest_s(state.row, width, "p50")
        p90_s = self.forecasts.rest_s(state.row, width, "p90")
        gpus = width * state.row.gpus_per_worker
        if kept is not None and ready_s <= kept.from_at - now + TOLERANCE * p90_s:
            kept_s = max(ready_s, kept.from_at - now)
            if kept_s < start_s:
                start_s, at_once = kept_s, max(1, kept.gpus // gpus)
        if start_s == FOREVER:
            layout.blocked = layout.blocked or name
            start_s, at_once = ready_s, 1
        wait_s = state.step.gap_s + max(0.0, start_s - ready_s)
        part = StepPart(name, p50_s, p90_s, after, state.coming, at_once, wait_s, running)
        layout.course.add(part)
        layout.widths[name] = width
        end_s = max(start_s + p50_s, quantile_of(layout.course.ends_s[name], 0.9))
        keep_gpus(profile, start_s, end_s, float(at_once * gpus), self.parts_of(state.row))
        layout.reserved[name] = reserve_for(
            f"{group}/{name}", state.row, now + start_s, now + end_s, at_once * gpus
        )

    def _times_of(self, job: Job, kept_gpus: int) -> tuple[float, float]:
        """P50 and P90 of what is left of a job that is there; while it waits, as it is planned.

        Before its first plan it starts on the width for which GPUs are kept.
        """
        p50_s, p90_s = (self.forecasts.trajectory_s(job, quantile) for quantile in ("p50", "p90"))
        if job.workers or not 0.0 < p90_s < FOREVER:
            return p50_s, p90_s
        share = self.reservations.shares.get(job.id)
        if share is not None:
            end_s = share.finish_s
        else:
            fitting = [w for w in job.widths if w * job.gpus_per_worker <= kept_gpus]
            end_s = min(self.forecasts.rest_s(job, w) for w in fitting) if fitting else p90_s
        scale, wait_s = min(1.0, end_s / p90_s), max(0.0, end_s - p90_s)
        return p50_s * scale + wait_s, p90_s * scale + wait_s

    def _widths(self, row: Job, profile: Profile) -> Sequence[int]:
        """Its widths that the cluster may hold; the least one if it holds none."""
        widths = self.forecasts.curve(row).widths
        most = float(profile.parts[self.parts_of(row)].max(axis=1).min()) / row.gpus_per_worker
        return [width for width in widths if width <= most] or [widths[0]]

    def _find_room(
        self, state: StepState, profile: Profile, ready_s: float, width: int
    ) -> tuple[float, float, int]:
        """When the last of the jobs to come ends, when they start, and how many side by side."""
        assert state.row is not None  # noqa: S101 - asked before
        jobs, gpus = state.coming, width * state.row.gpus_per_worker
        length_s = self.forecasts.rest_s(state.row, width, "p90")
        most = min(jobs, self.room.slots_for(state.row) // width)
        parts = self.parts_of(state.row)
        choices = [
            (start_s + rounds * length_s, -at_once, start_s)
            for at_once in sorted(
                {ceil(jobs / rounds) for rounds in range(1, MOST_ROUNDS + 1)} | {most}
            )
            if 0 < at_once <= most
            for rounds in (ceil(jobs / at_once),)
            for start_s in (find_start(profile, ready_s, at_once * gpus, rounds * length_s, parts),)
        ]
        end_s, at_once, start_s = min(choices, default=(FOREVER, -1, FOREVER))
        return end_s, start_s, -at_once


def find_start(
    profile: Profile, from_s: float, gpus: int, length_s: float, parts: Sequence[int] = (0,)
) -> float:
    """The first instant from which so many GPUs of all these parts are free for so long; never: infinity."""
    free: Floats = profile.parts[list(parts)].min(axis=0)
    room = free >= gpus - 1e-9
    for slot in range(find_slot(profile, from_s), len(room)):
        if not room[slot]:
            continue
        start_s = max(from_s, float(profile.edges[slot]))
        if room[slot : max(slot + 1, find_end(profile, start_s + length_s))].all():
            return start_s
    return FOREVER
