"""Two policies on the same snapshots: where their widths differ, and what these would train."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from laxity_profiler.estimate import Predictor
from laxity_scheduler.engine import Policy
from laxity_scheduler.inflight import with_follow_ups
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.plan import Plan
from laxity_scheduler.settled_widths import HOUR_S, reward_rate, settle_widths


@dataclass(frozen=True, slots=True)
class DecidedCycle:
    """What the loop decided: the snapshot, the plan, and by whom."""

    state: ClusterState
    plan: Plan
    predictor: Predictor
    decide: Policy
    policy: str = ""  # its name, where that is known


@dataclass(frozen=True, slots=True)
class ShadowComparison:
    """Widths by job that the shadow and the policy in force are heading for, and what these train.

    Rates are shares of whole trainings an hour, predicted.
    """

    cycle: int
    widths: Mapping[str, int]
    decided: Mapping[str, int]
    rate: float
    decided_rate: float

    @property
    def differing(self) -> dict[str, tuple[int, int]]:
        """By job: workers in force, workers of the shadow."""
        both = {job: (self.decided[job], self.widths.get(job, 0)) for job in self.decided}
        return {job: pair for job, pair in both.items() if pair[0] != pair[1]}


@dataclass(slots=True)
class ShadowTotals:
    """What came of a policy's widths: shares of whole trainings, predicted, from cycle to cycle."""

    cycles: int = 0
    differing: int = 0
    skipped: int = 0
    failed: int = 0
    trained: float = 0.0
    decided_trained: float = 0.0
    last: ShadowComparison | None = None
    _last_at: float = 0.0

    def add(self, now: float, compared: ShadowComparison) -> None:
        """Count a cycle; the widths of the last one were trained on until now."""
        if self.last is not None and now > self._last_at:
            hours = (now - self._last_at) / HOUR_S
            self.trained += hours * self.last.rate
            self.decided_trained += hours * self.last.decided_rate
        self.cycles += 1
        self.differing += bool(compared.differing)
        self.last, self._last_at = compared, now

    @property
    def gain(self) -> float:
        """How much more the shadow would have trained, as a share; 0 before anything is known."""
        return self.trained / self.decided_trained - 1.0 if self.decided_trained > 0.0 else 0.0


def compare_widths(decide: Policy, cycle: DecidedCycle, memory: dict[str, Any]) -> ShadowComparison:
    """Both policies on one snapshot; `memory` is kept from one snapshot to the next."""
    state, predictor = replace(cycle.state, memory=memory), cycle.predictor
    decided = settle_widths(state, with_follow_ups(cycle.decide), predictor, cycle.plan)
    widths = settle_widths(state, with_follow_ups(decide), predictor)
    return ShadowComparison(
        cycle=state.cycle,
        widths=widths,
        decided=decided,
        rate=reward_rate(state, widths, predictor),
        decided_rate=reward_rate(state, decided, predictor),
    )
