"""What a plan does to the simulated cluster, decision by decision."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol, assert_never

from laxity_scheduler.link_end import LINK_ENDS
from laxity_scheduler.model.cluster import HOLD_S, Hold, Pool, cut_holds
from laxity_scheduler.model.decision import (
    Admit,
    Continue,
    Forecasted,
    Loan,
    Preempt,
    Promised,
    Reclaim,
    Refuse,
    Resize,
    Wait,
    verdict_after,
)
from laxity_scheduler.model.job import Promise, Refusal
from laxity_scheduler.plan import Plan
from laxity_scheduler.simulated.execution import JobExecution
from laxity_scheduler.simulated.simulated_job import TINY, SimJob


class LendingNodes(Protocol):
    """Inference nodes of a simulated cluster that may be lent."""

    @property
    def horizon_at(self) -> float: ...

    def pools(self) -> Mapping[str, Pool]: ...

    def count_used(self) -> Mapping[str, int]: ...

    def move(self, names: Sequence[str], now: float, *, lent: bool) -> None: ...

    def count_preemption(self) -> None:
        """A job was told to leave a lent node."""
        ...


class PlanExecutor:
    """Carries plans out; keeps who was promised what, who was refused and what is held for whom."""

    def __init__(
        self,
        execution: JobExecution,
        *,
        refused_stay: bool = False,
        inference: LendingNodes | None = None,
    ) -> None:
        self.refused_stay, self.inference = refused_stay, inference
        self.execution, self.timeline, self.fleet = execution, execution.timeline, execution.fleet
        self.rounds = 0
        self.left: dict[str, SimJob] = {}  # refused: they went away
        self.refusals: dict[str, str] = {}
        self.promised_at: dict[str, float] = {}
        self.holds: list[Hold] = []

    @property
    def now(self) -> float:
        return self.timeline.now

    def open_holds(self) -> tuple[Hold, ...]:
        """Holds that are still in force."""
        if self.holds:
            self.holds = [
                hold
                for hold in self.holds
                if hold.until_at > self.now and hold.job in self.execution.live
            ]
        return tuple(self.holds)

    def carry_out(self, plan: Plan) -> None:
        """Apply what was decided; what it leads to happens as time passes."""
        self.rounds += 1
        self._end_holds(plan)
        for decision in plan.decisions:
            match decision:
                case Promised() | Forecasted() | Refuse():
                    self._verdict(decision)
                case Admit():
                    self._admit(decision)
                case Resize():
                    self._resize(decision)
                case Preempt():
                    self._preempt(decision)
                case Continue():
                    self._continue(decision)
                case Loan() | Reclaim():
                    self._move_nodes(decision)
                case Wait():
                    pass
                case _:
                    assert_never(decision)
        if self.execution.costs.round_s:
            self.execution.charge_round()
        self.timeline.look_at(plan.wake_at)

    def _verdict(self, decision: Promised | Forecasted | Refuse) -> None:
        live = self.execution.live[decision.job]
        verdict = verdict_after(live.row, decision, self.now)
        live.row = replace(live.row, verdict=verdict, asked=False)
        self.execution.touch(live)
        if isinstance(verdict, Promise):
            self.promised_at.setdefault(decision.job, verdict.p90_at)
        if isinstance(verdict, Refusal):  # its flow ends: nothing more will come of it
            self.refusals[decision.job] = verdict.reason.code
            if not self.refused_stay:
                self.left[decision.job] = self.execution.live.pop(decision.job)

    def _admit(self, decision: Admit) -> None:
        live, now = self.execution.live[decision.job], self.now
        if live.workers:
            return  # a plan carried out twice is the same as once
        self.fleet.take(decision.nodes, live.truth.gpus_per_worker)
        self.execution.account(live)
        live.workers = live.formed = decision.workers
        live.nodes = decision.nodes
        live.move_to(self.fleet.products_on(live.nodes))
        live.since = now
        live.first_start_at = min(live.first_start_at, now)
        live.fresh_at = math.floor(live.position + TINY)
        cost_s = 0.0 if self.execution.costs.round_s else self.execution.start_s(live)
        live.ready_at, live.starting = now + cost_s, True
        self.execution.count_lost(live, cost_s)
        live.row = replace(live.row, resumed_at=now, width_changed_at=now)
        self.execution.plan_next(live)
        self.fleet.count(self.now)

    def _resize(self, decision: Resize) -> None:
        live, now = self.execution.live[decision.job], self.now
        if decision.at == "epoch":
            live.shrink_to = decision.workers
        elif decision.workers > live.workers:
            self._grow(live, decision)
        else:
            self._shrink(live, decision)
        live.row = replace(live.row, width_changed_at=now)
        self.execution.plan_next(live)
        self.fleet.count(self.now)

    def _grow(self, live: SimJob, decision: Resize) -> None:
        added = decision.nodes[live.workers :]
        self.fleet.take(added, live.truth.gpus_per_worker)
        self.execution.account(live)
        live.workers, live.nodes = decision.workers, decision.nodes
        self.execution.catch_up(live)
        live.move_to(self.fleet.products_on(live.nodes))
        live.shrink_to = 0
        live.grown_at = self.now + self.execution.start_s(live)

    def _shrink(self, live: SimJob, decision: Resize) -> None:
        """The workers have re-formed and the others go; or they go at once."""
        gone = live.nodes[decision.workers :]
        self.execution.account(live)
        self.execution.leave(live, gone)
        live.workers, live.nodes = decision.workers, decision.nodes
        live.shrink_to = 0
        if live.formed > live.workers:  # nobody had re-formed
            self.execution.change_now(live)
        self.timeline.wake_at(self.now)  # its GPUs may be free now: others have waited for them

    def _preempt(self, decision: Preempt) -> None:
        live, now = self.execution.live[decision.job], self.now
        if not live.workers:
            return
        leaves = decision.reason.code == "leave_lent_node"
        if self.inference is not None and leaves and live.row.stop_requested_at is None:
            self.inference.count_preemption()
        if decision.at == "epoch":
            live.stop_at_boundary = True
            live.row = replace(live.row, stop_requested_at=now, stop_for=decision.beneficiary)
            self.execution.plan_next(live)
            return
        if decision.beneficiary:
            freed = Counter(live.nodes)
            self.holds += [
                Hold(decision.beneficiary, node, workers * live.truth.gpus_per_worker, now + HOLD_S)
                for node, workers in sorted(freed.items())
            ]
        self.execution.stop(live, is_preemption=decision.reason.code not in LINK_ENDS)
        self.timeline.wake_at(now)  # its GPUs are free now

    def _move_nodes(self, decision: Loan | Reclaim) -> None:
        """Lend nodes or hand them back: they can be used from the next cycle on."""
        if self.inference is not None:
            self.inference.move(decision.nodes, self.now, lent=isinstance(decision, Loan))
            self.show_pools()
            self.timeline.wake_at(self.now)

    def show_pools(self) -> None:
        """Let snapshots show what inference lends and uses now."""
        if self.inference is not None:
            pools, used = self.inference.pools(), self.inference.count_used()
            self.fleet.set_pools(pools, used, self.inference.horizon_at)

    def _continue(self, decision: Continue) -> None:
        live = self.execution.live[decision.job]
        self.execution.catch_up(live)  # as long as it waited it has not trained
        live.stop_at_boundary = live.parked = False
        live.row = replace(live.row, stop_requested_at=None, stop_for="")
        self.execution.plan_next(live)

    def _end_holds(self, plan: Plan) -> None:
        """Who starts or grows takes what is held for it; others may take what binds nobody."""
        started = {d.job for d in plan.decisions if isinstance(d, Admit | Resize)}
        if not (self.open_holds() and started):
            return
        self.holds = [hold for hold in self.holds if hold.job not in started]
        taken = Counter[str]()
        for decision in plan.decisions:
            if isinstance(decision, Admit | Resize):
                live = self.execution.live[decision.job]
                for node in decision.nodes[live.workers :]:
                    taken[node] += live.truth.gpus_per_worker
        held_for = [self.execution.live[name] for name in {hold.job for hold in self.holds}]
        rows = {live.row.id: replace(live.row, workers=live.workers) for live in held_for}
        self.holds = cut_holds(self.holds, taken, self.fleet.free_on(taken), rows)
