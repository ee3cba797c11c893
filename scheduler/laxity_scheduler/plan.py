"""What to do, as values: decisions with reasons, checked against the snapshot they were made on."""

from dataclasses import dataclass, field
from typing import Final

from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.decision import Decision
from laxity_scheduler.model.job import FOREVER
from laxity_scheduler.model.plan_application import apply_decisions
from laxity_scheduler.plan_check import Misfit, check_decisions, drop_misfits

LOOK_AGAIN_S: Final = 10.0  # after something was dropped


@dataclass(frozen=True, slots=True)
class Plan:
    """Decisions in order. At `wake_at` the same state, merely older, would be decided otherwise.

    What was `dropped` did not fit, and is no part of the plan.
    """

    decisions: tuple[Decision, ...] = ()
    wake_at: float = FOREVER
    dropped: tuple[Misfit, ...] = field(default=(), compare=False)

    def check(self, state: ClusterState) -> None:
        """Raise PlanError unless every decision fits the snapshot; no row is built."""
        check_decisions(state, self.decisions)

    def fit(self, state: ClusterState) -> "Plan":
        """The plan without the decisions that do not fit the snapshot: all others stand."""
        decisions, misfits = drop_misfits(state, self.decisions)
        if not misfits:
            return self
        return Plan(tuple(decisions), min(self.wake_at, state.now + LOOK_AGAIN_S), misfits)

    def apply(self, state: ClusterState) -> ClusterState:
        """The snapshot after the plan, for what-ifs: shrunk and stopped GPUs count as terminating."""
        self.check(state)
        return apply_decisions(state, self.decisions)
