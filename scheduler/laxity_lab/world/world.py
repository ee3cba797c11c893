"""A cluster that exists only as an event heap and a virtual clock.

It is a World like the live one: `observe` gives a snapshot, `carry_out` takes a plan. Events are
arrivals, ends, changes of width, stops, failures, repairs, slots of an inference load, and the
instant at which the policy's last plan wants to be woken. The same seed gives the same bytes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from zlib import crc32

import numpy as np

from laxity_lab.world.inference_fleet import InferenceFleet
from laxity_scheduler.model.cluster import ClusterState, NodeSet
from laxity_scheduler.model.job import FOREVER
from laxity_scheduler.plan import Plan
from laxity_scheduler.simulated.change_costs import Costs
from laxity_scheduler.simulated.events import EventQueue
from laxity_scheduler.simulated.execution import JobExecution
from laxity_scheduler.simulated.ground_truth import GroundTruth
from laxity_scheduler.simulated.plan_executor import PlanExecutor
from laxity_scheduler.simulated.simulated_job import SimJob
from laxity_scheduler.simulated.simulated_nodes import SimNodes


@dataclass(slots=True)
class Failures:
    """A node is up for `between_s` on average and down for `repair_s` on average."""

    between_s: float
    repair_s: float
    seed: int = 0
    _streams: dict[str, np.random.Generator] = field(default_factory=dict)

    def up_s(self, node: str) -> float:
        return float(self._stream(node).exponential(self.between_s))

    def down_s(self, node: str) -> float:
        return float(self._stream(node).exponential(self.repair_s))

    def _stream(self, node: str) -> np.random.Generator:
        if node not in self._streams:
            self._streams[node] = np.random.default_rng([self.seed, crc32(node.encode())])
        return self._streams[node]


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
        products: Mapping[str, str] | None = None,
    ) -> None:
        """`nodes` are (name, GPUs) of training; `jobs` in order of submission; `sets` that they name.

        A refused job goes away with its flow; on a cluster its row may stay (`refused_stay`). The
        live service also looks whenever a worker reports an epoch (`each_epoch`). `products` are those
        of the GPUs, by node.
        """
        self._memory: dict[str, Any] = {}  # of who reads the rows
        begins_at = jobs[0].submitted_at if jobs else 0.0
        self.jobs, self.costs, self._sets = jobs, costs, sets
        self.events = 0
        self._arrived = 0
        self._timeline = EventQueue(begins_at)
        self.inference = inference
        self.own_gpus = sum(gpus for _, gpus in nodes)  # without those of inference
        every = [*nodes, *(inference.nodes if inference else ())]
        self._fleet = SimNodes(every, begins_at, products)
        self._execution = JobExecution(self._timeline, self._fleet, costs, each_epoch=each_epoch)
        self._executor = PlanExecutor(
            self._execution, refused_stay=refused_stay, inference=inference
        )
        self._failures = failures
        self.live = self._execution.live
        self.busy = self._fleet.busy
        self.finished = self._execution.finished
        self.left = self._executor.left
        self.refusals = self._executor.refusals
        self.promised_at = self._executor.promised_at
        if inference is not None:
            self._timeline.add(begins_at, self._begin_inference_slot)
        if jobs and failures is not None:
            for name, _ in nodes:
                self._timeline.add(begins_at + failures.up_s(name), partial(self._fail, name))

    @property
    def now(self) -> float:
        return self._timeline.now

    @property
    def done(self) -> bool:
        """No job is left, and none will come."""
        return self.all_arrived and not self._execution.live

    @property
    def all_arrived(self) -> bool:
        return self._arrived == len(self.jobs)

    @property
    def total_gpus(self) -> int:
        return self._fleet.all_gpus

    def observe(self) -> ClusterState:
        """The cluster as it is now."""
        execution = self._execution
        return ClusterState(
            now=self.now,
            jobs=execution.rows(),
            nodes=self._fleet.observe_nodes(),
            holds=self._executor.open_holds(),
            cycle=self._executor.rounds,
            sets=self._sets,
            inference=None if self.inference is None else self.inference.demand(),
            memory=self._memory,
        )

    def carry_out(self, plan: Plan) -> None:
        """Apply what was decided; what it leads to happens as time passes."""
        self._executor.carry_out(plan)

    def wake_at(self, at: float) -> None:
        """Let there be an event then (not in the past)."""
        self._timeline.wake_at(at)

    def advance(self) -> bool:
        """Go to the next instant at which something happens. False: nothing ever will."""
        while True:
            next_at = min(self._arrival_at(), self._timeline.next_at)
            if next_at == FOREVER:
                return False
            self._timeline.now = max(self.now, next_at)
            happened = False
            while min(self._arrival_at(), self._timeline.next_at) <= self.now:
                happened |= self._next_event()
            if happened:
                return True

    def _arrival_at(self) -> float:
        return FOREVER if self.all_arrived else self.jobs[self._arrived].submitted_at

    def _next_event(self) -> bool:
        """Let the next event happen. False if it was overtaken by another."""
        arrives = self._arrival_at() < self._timeline.next_at
        happened = self._arrive() if arrives else self._timeline.happen()
        self.events += happened
        return happened

    def _arrive(self) -> bool:
        truth = self.jobs[self._arrived]
        self._arrived += 1
        self._execution.add(SimJob(truth, truth.row(), since=self.now, accounted_at=self.now))
        return True

    def _begin_inference_slot(self) -> bool:
        """Inference needs more or fewer of its own nodes."""
        if self.inference is not None:
            self._timeline.add(self.inference.begin_slot(self.now), self._begin_inference_slot)
            self._executor.show_pools()
        return True

    def _fail(self, name: str) -> bool:
        """A node is lost with all that ran on it; work since the last saved epoch is redone."""
        for live in list(self._execution.live.values()):
            if name in live.nodes:
                self._execution.catch_up(live)
                if not live.parked:
                    self._execution.redo(live)
                self._execution.stop(live)
        self._execution.remove_node_pods(name)
        self._fleet.lose(name)
        if self._failures is not None:
            self._timeline.add(self.now + self._failures.down_s(name), partial(self._repair, name))
        return True

    def _repair(self, name: str) -> bool:
        self._fleet.repair(name)
        if self._failures is not None:
            self._timeline.add(self.now + self._failures.up_s(name), partial(self._fail, name))
        return True
