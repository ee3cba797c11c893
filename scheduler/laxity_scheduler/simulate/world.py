"""A cluster that exists only as an event heap and a virtual clock.

It is a World like the live one: `observe` gives a snapshot, `carry_out` takes a plan. Events are
arrivals, ends, changes of width, stops, failures, repairs, slots of an inference load, and the
instant at which the policy's last plan wants to be woken. The same seed gives the same bytes.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from laxity_scheduler.model.cluster import ClusterState, NodeSet
from laxity_scheduler.model.job import FOREVER
from laxity_scheduler.plan import Plan
from laxity_scheduler.simulate.change_costs import Costs
from laxity_scheduler.simulate.events import EventQueue, Kind
from laxity_scheduler.simulate.execution import JobExecution
from laxity_scheduler.simulate.failures import Failures
from laxity_scheduler.simulate.ground_truth import GroundTruth
from laxity_scheduler.simulate.inference_fleet import InferenceFleet
from laxity_scheduler.simulate.plan_executor import PlanExecutor
from laxity_scheduler.simulate.simulated_job import SimJob
from laxity_scheduler.simulate.simulated_nodes import SimNodes


class SimWorld:
    """Jobs that arrive, nodes, and what was decided about them."""

    def __init__(
        self,
        jobs: Sequence[GroundTruth],
        nodes: Sequence[tuple[str, int]],
        costs: Costs,
        *,
        failures: Failures | None = None,
        refused_stay: bool = False,
        each_epoch: bool = False,
        sets: Mapping[str, NodeSet] | None = None,
        inference: InferenceFleet | None = None,
    ) -> None:
        """`nodes` are (name, GPUs) of training; `jobs` in order of submission; `sets` that they name.

        A refused job goes away with its flow; on a cluster its row may stay (`refused_stay`). The
        live service also looks whenever a worker reports an epoch (`each_epoch`).
        """
        self._memory: dict[str, Any] = {}  # of who reads the rows
        begins_at = jobs[0].submitted_at if jobs else 0.0
        self.jobs, self.costs, self._sets = jobs, costs, sets
        self.events = 0
        self._arrived = 0
        self._agenda = EventQueue(begins_at)
        self.inference = inference
        self.own_gpus = sum(gpus for _, gpus in nodes)  # without those of inference
        self._fleet = SimNodes([*nodes, *(inference.nodes if inference else ())], begins_at)
        self._passage = JobExecution(self._agenda, self._fleet, costs, each_epoch=each_epoch)
        self._carrier = PlanExecutor(self._passage, refused_stay=refused_stay, inference=inference)
        self._failures = failures
        self.live = self._passage.live
        self.busy = self._fleet.busy
        self.finished = self._passage.finished
        self.left = self._carrier.left
        self.refusals = self._carrier.refusals
        self.promised_at = self._carrier.promised_at
        if inference is not None:
            self._agenda.add(begins_at, "slot", "")
        if jobs and failures is not None:
            for name, _ in nodes:
                self._agenda.add(begins_at + failures.up_s(name), "failure", name)

    @property
    def now(self) -> float:
        return self._agenda.now

    @property
    def done(self) -> bool:
        """No job is left, and none will come."""
        return self.all_arrived and not self._passage.live

    @property
    def all_arrived(self) -> bool:
        return self._arrived == len(self.jobs)

    @property
    def total_gpus(self) -> int:
        return self._fleet.all_gpus

    def observe(self) -> ClusterState:
        """The cluster as it is now."""
        passage = self._passage
        return ClusterState(
            now=self.now,
            jobs=passage.rows(),
            nodes=self._fleet.observe_nodes(),
            holds=self._carrier.open_holds(),
            cycle=self._carrier.rounds,
            sets=self._sets,
            inference=None if self.inference is None else self.inference.demand(),
            memory=self._memory,
        )

    def carry_out(self, plan: Plan) -> None:
        """Apply what was decided; what it leads to happens as time passes."""
        self._carrier.carry_out(plan)

    def wake_at(self, at: float) -> None:
        """Let there be an event then (not in the past)."""
        self._agenda.wake_at(at)

    def advance(self) -> bool:
        """Go to the next instant at which something happens. False: nothing ever will."""
        while True:
            next_at = min(self._arrival_at(), self._agenda.next_at)
            if next_at == FOREVER:
                return False
            self._agenda.now = max(self.now, next_at)
            happened = False
            while min(self._arrival_at(), self._agenda.next_at) <= self.now:
                happened |= self._next_event()
            if happened:
                return True

    def _arrival_at(self) -> float:
        return FOREVER if self.all_arrived else self.jobs[self._arrived].submitted_at

    def _next_event(self) -> bool:
        """Let the next event happen. False if it was overtaken by another."""
        if self._arrival_at() < self._agenda.next_at:
            self._arrive()
        else:
            kind, name, version = self._agenda.pop()
            if kind == "job":
                live = self._passage.live.get(name)
                if live is None or live.version != version:
                    return False
                self._passage.settle(live)
            elif kind == "gone":
                if not self._passage.remove_pod(version):
                    return False
            elif kind == "look":
                if self._agenda.is_overtaken(version):
                    return False
            else:
                self._change_nodes(kind, name)
        self.events += 1
        return True

    def _change_nodes(self, kind: Kind, name: str) -> None:
        """A node fails or is repaired, or inference needs more or fewer of its own."""
        if kind == "failure":
            self._fail(name)
        elif kind == "repair":
            self._repair(name)
        elif kind == "slot":
            self._begin_inference_slot()

    def _arrive(self) -> None:
        truth = self.jobs[self._arrived]
        self._arrived += 1
        self._passage.add(SimJob(truth, truth.row(), since=self.now, accounted_at=self.now))

    def _begin_inference_slot(self) -> None:
        if self.inference is not None:
            self._agenda.add(self.inference.begin_slot(self.now), "slot", "")
            self._carrier.show_pools()

    def _fail(self, name: str) -> None:
        """A node is lost with all that ran on it; work since the last saved epoch is redone."""
        for live in list(self._passage.live.values()):
            if name in live.nodes:
                self._passage.move(live)
                if not live.parked:
                    self._passage.redo(live)
                self._passage.stop(live)
        self._passage.remove_node_pods(name)
        self._fleet.lose(name)
        if self._failures is not None:
            self._agenda.add(self.now + self._failures.down_s(name), "repair", name)

    def _repair(self, name: str) -> None:
        self._fleet.repair(name)
        if self._failures is not None:
            self._agenda.add(self.now + self._failures.up_s(name), "failure", name)
