"""What to do, as values: decisions with reasons, checked against the snapshot they were made on."""

from dataclasses import dataclass

from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.decision import Decision
from laxity_scheduler.model.job import FOREVER
from laxity_scheduler.model.plan_application import apply_decisions
from laxity_scheduler.plan_check import check_decisions


@dataclass(frozen=True, slots=True)
class Plan:
    """Decisions in order. At `wake_at` the same state, merely older, would be decided otherwise."""

    decisions: tuple[Decision, ...] = ()
    wake_at: float = FOREVER

    def check(self, state: ClusterState) -> None:
        """Raise PlanError unless every decision fits the snapshot; no row is built."""
        check_decisions(state, self.decisions)

    def apply(self, state: ClusterState) -> ClusterState:
        """The snapshot after the plan, for what-ifs: shrunk and stopped GPUs count as terminating."""
        self.check(state)
        return apply_decisions(state, self.decisions)
