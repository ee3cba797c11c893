"""What a world is, and one cycle of it under a policy: observe, decide, check, act.

The live loop takes the same steps, with a journal between the check and the act (`service.loop`).
"""

from dataclasses import dataclass
from typing import Protocol

from laxity_profiler.estimate import Predictor
from laxity_scheduler.job_faults import JobFaults
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.plan import Plan, Policy
from laxity_scheduler.plan_check import PlanError, check_plan


class World(Protocol):
    """Where jobs run: simulated or live."""

    def observe(self) -> ClusterState:
        """The cluster as it is now, with what carried-out plans have become."""

    def carry_out(self, plan: Plan) -> None:
        """Request what the plan says and return at once; its effect is observed later."""


@dataclass(frozen=True, slots=True)
class DecidedCycle:
    """What the loop decided: the snapshot, the plan, and by whom."""

    state: ClusterState
    plan: Plan
    predictor: Predictor
    decide: Policy
    policy: str = ""  # its name, where that is known


def record_dropped(plan: Plan, faults: JobFaults) -> None:
    """Count and log each decision that did not fit, by its job."""
    for misfit in plan.dropped:
        faults.record_fault("plan", misfit.about, PlanError(str(misfit)))


def run_cycle(world: World, decide: Policy, predictor: Predictor) -> Plan:
    """Observe, decide, check, carry out. PlanError before anything is touched."""
    state = world.observe()
    plan = decide(state, predictor)
    check_plan(plan, state)  # a plan that does not fit is refused before anything is touched
    world.carry_out(plan)
    return plan
