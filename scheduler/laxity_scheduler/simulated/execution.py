"""A simulated job through time: it trains, changes its width, stops, loses work and ends.

Progress is computed when somebody asks. A change that waits (a stop, fewer workers, more workers
that have joined) takes effect at the next whole position.
"""

import math
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from heapq import heappop, heappush
from typing import Final

from laxity_scheduler.model.job import FOREVER, Job
from laxity_scheduler.simulated.change_costs import ROUND_S, ROUNDS_BETWEEN_RESTARTS, Costs
from laxity_scheduler.simulated.events import EventQueue
from laxity_scheduler.simulated.simulated_job import TINY, SimJob, row_of
from laxity_scheduler.simulated.simulated_nodes import SimNodes

SEEN_EPOCHS: Final = 20
EARLY: Final = 1e-6  # share of an epoch, and seconds: no row is looked at too late


class JobExecution:
    """What happens to submitted jobs on these nodes at these costs."""

    def __init__(
        self, timeline: EventQueue, fleet: SimNodes, costs: Costs, *, each_epoch: bool = False
    ) -> None:
        """`each_epoch`: an epoch's end is an event, though nothing waits for it."""
        self.timeline, self.fleet, self.costs, self.each_epoch = timeline, fleet, costs, each_epoch
        self.live: dict[str, SimJob] = {}
        self.finished: dict[str, tuple[SimJob, float]] = {}
        self._leaving: dict[int, tuple[SimJob, str]] = {}  # stopped workers whose pods still go
        self._left = 0
        self.rounds, self.round_at = 0, -math.inf  # scheduling rounds, where they cost
        self._touched: list[SimJob] = []
        self._due: list[tuple[float, int, SimJob]] = []  # when rows will have changed, as a heap

    @property
    def now(self) -> float:
        return self.timeline.now

    def start_s(self, live: SimJob) -> float:
        """From the decision to its first useful step on the width that it holds."""
        return live.truth.start_s.get(live.workers, self.costs.start_s(live.gpus))

    def stop_s(self, live: SimJob) -> float:
        """Saving at an epoch's end on that width."""
        return live.truth.stop_s.get(live.workers, self.costs.stop_s(live.gpus))

    def give(self, live: SimJob, nodes: Iterable[str]) -> None:
        """Its workers on these nodes are gone."""
        self.fleet.give(nodes, live.truth.gpus_per_worker, self.now)

    def leave(self, live: SimJob, nodes: tuple[str, ...]) -> None:
        """Its workers on these nodes are stopped; their pods take a while to go."""
        if not self.costs.gone_s:
            self.give(live, nodes)
            return
        for node in nodes:
            live.going += 1
            self._left += 1
            self._leaving[self._left] = (live, node)
            self.timeline.add(self.now + self.costs.gone_s, partial(self._remove_pod, self._left))

    def _remove_pod(self, number: int) -> bool:
        """A pod that was stopped has gone; False if it went with its node."""
        if number not in self._leaving:
            return False
        live, node = self._leaving.pop(number)
        live.going -= 1
        self.touch(live)
        self.give(live, (node,))
        return True

    def remove_node_pods(self, node: str) -> None:
        """A node is lost, and with it the pods that were about to go."""
        for number in [number for number, left in self._leaving.items() if left[1] == node]:
            self._remove_pod(number)

    def plan_next(self, live: SimJob) -> None:
        """It has changed: put its next event on the heap; an older one no longer counts."""
        self.touch(live)
        live.version += 1
        next_at = live.finish_at
        if live.changes:
            next_at = min(next_at, self._change_at(live))
        elif self.each_epoch and live.formed:
            next_at = min(next_at, self._epoch_ends_at(live))
        if next_at < FOREVER:
            self.timeline.add(next_at, partial(self._settle, live, live.version))

    def _change_at(self, live: SimJob) -> float:
        """When what waits can take effect."""
        ready_at = max(self.now, live.ready_at)
        if live.workers > live.formed and not (live.stop_at_boundary or live.shrink_to):
            ready_at = max(ready_at, live.grown_at)
        if live.stops_inside:
            return ready_at
        whole, trains_from = math.ceil(live.at(ready_at) - TINY), max(live.since, live.ready_at)
        has_begun = live.ready_at < ready_at and whole <= live.at(ready_at) + TINY
        if has_begun and not live.ends_link:
            whole += 1  # the next epoch has begun: workers do not wait for decisions
        return max(ready_at, trains_from + (whole - live.position) * live.epoch_s)

    def _epoch_ends_at(self, live: SimJob) -> float:
        """The end of the epoch that runs."""
        whole = math.floor(live.at(max(self.now, live.ready_at)) + TINY) + 1.0
        return max(live.since, live.ready_at) + (whole - live.position) * live.epoch_s

    def _settle(self, live: SimJob, version: int) -> bool:
        """Its event has come: the end, or a change that waited."""
        if live.version != version or self.live.get(live.truth.id) is not live:
            return False
        if live.finish_at <= self.now + TINY:
            self._finish(live)
        else:
            self._change(live)
        return True

    def _change(self, live: SimJob) -> None:
        """What has waited for an epoch's end takes effect."""
        self.catch_up(live)
        if not live.stops_inside:
            live.position = float(round(live.position))
        width = live.formed
        if live.stop_at_boundary:
            cost_s = self.stop_s(live)
            self.cut_short(live)
            live.parked, live.ready_at = True, self.now + cost_s
            self.count_lost(live, cost_s)
            self.timeline.wake_at(live.ready_at)
        elif live.shrink_to:
            self._reform(live, live.shrink_to, self.stop_s(live))
        elif live.workers > live.formed:
            self._reform(live, live.workers, self.stop_s(live))
        if live.formed != width:
            live.resizes += 1
        self.plan_next(live)

    def _reform(self, live: SimJob, width: int, cost_s: float) -> None:
        if not live.row.holds_state:
            self.redo(live)
        live.formed = width
        live.fresh_at = math.floor(live.position + TINY)
        live.ready_at = self.now + cost_s
        live.starting = False
        self.count_lost(live, cost_s)

    def catch_up(self, live: SimJob) -> None:
        """Bring its position to now."""
        position = live.at(self.now)
        if live.formed and not live.parked:
            done = math.floor(position + TINY) - max(
                math.floor(live.position + TINY), live.fresh_at + 1
            )
            if done > 0:
                more = ((live.epoch_s, live.formed),) * min(done, SEEN_EPOCHS)
                live.seen = (live.seen + more)[-SEEN_EPOCHS:]
        live.position, live.since = position, self.now

    def account(self, live: SimJob) -> None:
        """Count the GPU time since it was last counted."""
        spent_s = self.now - live.accounted_at
        if live.workers and spent_s:
            live.running_s += spent_s
            live.gpu_s += spent_s * live.gpus
        live.accounted_at = self.now

    def count_lost(self, live: SimJob, seconds: float) -> None:
        """So long its GPUs were held, or will be, for no progress."""
        live.lost_gpu_s += seconds * live.gpus

    def cut_short(self, live: SimJob) -> None:
        """A start or change that was counted whole ends before its time: the rest is not lost."""
        self.count_lost(live, -max(0.0, live.ready_at - self.now))
        live.ready_at = min(live.ready_at, self.now)

    def _finish(self, live: SimJob) -> None:
        self.account(live)
        self.give(live, live.nodes)
        live.version += 1
        live.workers = live.formed = 0
        self.live.pop(live.truth.id)
        self.finished[live.truth.id] = (live, self.now)

    def charge_round(self) -> None:
        """ElasticFlow's simulator: every running job pays in every round, and on a new width at once.

        That rounds are at least a slot apart is our reading: what an epoch's end lets happen between
        them, where widths wait for it, makes another decision and no other round.
        """
        is_due = self.now >= self.round_at + ROUND_S
        self.rounds += is_due
        periodic = is_due and self.rounds % ROUNDS_BETWEEN_RESTARTS == 0
        if is_due:
            self.round_at = self.now
        for live in self.live.values():
            had = not periodic and live.workers in live.had
            if not live.workers or live.charged_at == self.now or (had and not is_due):
                continue
            live.charged_at = self.now
            cost_s = self.costs.round_s if had else self.start_s(live)
            if periodic:
                cost_s += self.costs.restart_s
                live.had = frozenset()
            if not had:
                live.had |= {live.workers}
            self.catch_up(live)
            live.ready_at = max(self.now, live.ready_at) + cost_s
            self.count_lost(live, cost_s)
            self.plan_next(live)

    def change_now(self, live: SimJob) -> None:
        """A narrower width at once: work since the last epoch's end is lost."""
        self.catch_up(live)
        self.redo(live)
        if live.formed != live.workers:
            live.resizes += 1
        paid_later = bool(self.costs.round_s)
        self._reform(live, live.workers, 0.0 if paid_later else self.start_s(live))

    def redo(self, live: SimJob) -> None:
        """Go back to the last epoch's end; without state, to the first one's beginning."""
        whole = math.floor(live.position + TINY) if live.row.holds_state else 0
        if live.formed:
            self.count_lost(live, (live.position - whole) * live.epoch_s)
        live.position = float(whole)

    def stop(self, live: SimJob, *, is_preemption: bool = True) -> None:
        now = self.now
        self.account(live)
        self.catch_up(live)
        self.cut_short(live)
        keeps = live.parked or live.row.stops_anywhere
        if not keeps or not live.row.holds_state:
            self.redo(live)
        self.leave(live, live.nodes)
        live.workers = live.formed = live.shrink_to = 0
        live.nodes = ()
        live.stop_at_boundary = live.parked = False
        live.version += 1
        live.row = replace(
            live.row,
            preemptions=live.row.preemptions + is_preemption,
            queued_at=now,
            stop_requested_at=None,
            stop_for="",
        )
        self.touch(live)
        self.fleet.count(self.now)

    def add(self, live: SimJob) -> None:
        """A job that was submitted now."""
        self.live[live.truth.id] = live
        self.touch(live)

    def touch(self, live: SimJob) -> None:
        """Something happened to it: its row is built anew."""
        live.dirty = True
        self._touched.append(live)

    def rows(self) -> tuple[Job, ...]:
        """The rows of unfinished jobs; those that cannot have changed are not looked at."""
        looked_at, self._touched = self._touched, []
        while self._due and self._due[0][0] <= self.now:
            due_at, _, live = heappop(self._due)
            if due_at == live.row_due_at:
                live.row_due_at = FOREVER
                looked_at.append(live)
        for live in looked_at:
            if self.live.get(live.truth.id) is live:
                self._refresh(live)
        return tuple([live.row for live in self.live.values()])

    def _refresh(self, live: SimJob) -> None:
        self.row(live)
        due_at = self._row_changes_at(live)
        if due_at != live.row_due_at:
            live.row_due_at = due_at
            heappush(self._due, (due_at, live.truth.number, live))

    def _row_changes_at(self, live: SimJob) -> float:
        """When its row will be another one if nothing happens to it, or a little before."""
        if self.now < live.ready_at:
            return live.ready_at
        if not live.formed or live.parked:
            return FOREVER
        return self._epoch_ends_at(live) - EARLY * (1.0 + live.epoch_s)

    def row(self, live: SimJob) -> Job:
        """Its row; the same object as long as nothing happened to it."""
        now = self.now
        position = live.at(now)
        shown = (math.floor(position + TINY), now >= live.ready_at)
        if not live.dirty and shown == live.shown:
            return live.row
        live.dirty, live.shown = False, shown
        self.account(live)
        self.catch_up(live)
        live.row = row_of(live, shown[0], now)
        return live.row
