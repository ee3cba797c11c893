"""Two policies on the same snapshots: where their widths differ, and what these would train."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from laxity_profiler.estimate import Predictor
from laxity_scheduler.engine import DecidedCycle
from laxity_scheduler.frame.curve import Curve
from laxity_scheduler.frame.remaining import Forecasts
from laxity_scheduler.inflight import with_follow_ups
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.decision import Admit, Preempt, Resize
from laxity_scheduler.model.job import HOUR_S, Job
from laxity_scheduler.plan import Plan, Policy

ROUNDS: Final = 4


@dataclass(frozen=True, slots=True)
class WidthComparison:
    """Widths by job that the other policy and the one that decided are heading for, and what these train.

    Rates are shares of whole trainings an hour, predicted.
    """

    cycle: int
    widths: Mapping[str, int]
    decided: Mapping[str, int]
    rate: float
    decided_rate: float

    @property
    def differing(self) -> dict[str, tuple[int, int]]:
        """By job: workers decided, workers of the other policy."""
        both = {job: (self.decided[job], self.widths.get(job, 0)) for job in self.decided}
        return {job: pair for job, pair in both.items() if pair[0] != pair[1]}


@dataclass(slots=True)
class WidthTotals:
    """What came of a policy's widths: shares of whole trainings, predicted, from cycle to cycle."""

    cycles: int = 0
    differing: int = 0
    trained: float = 0.0
    decided_trained: float = 0.0
    last: WidthComparison | None = None
    _last_at: float = 0.0

    def add(self, now: float, compared: WidthComparison) -> None:
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
        """How much more the other policy would have trained, as a share; 0 before anything is known."""
        return self.trained / self.decided_trained - 1.0 if self.decided_trained > 0.0 else 0.0


def compare_widths(decide: Policy, cycle: DecidedCycle, memory: dict[str, Any]) -> WidthComparison:
    """Both policies on one snapshot; `memory` is kept from one snapshot to the next."""
    state, predictor = replace(cycle.state, memory=memory), cycle.predictor
    decided = settle_widths(state, with_follow_ups(cycle.decide), predictor, cycle.plan)
    widths = settle_widths(state, with_follow_ups(decide), predictor)
    return WidthComparison(
        cycle=state.cycle,
        widths=widths,
        decided=decided,
        rate=reward_rate(state, widths, predictor),
        decided_rate=reward_rate(state, decided, predictor),
    )


def settle_widths(
    state: ClusterState, decide: Policy, predictor: Predictor, plan: Plan | None = None
) -> dict[str, int]:
    """Workers by job id once what was decided has been carried out: decided anew until nothing changes.

    `plan` is what was decided first, if that is known. Whatever `decide` raises is raised.
    """
    plan = plan or decide(state, predictor)
    for _ in range(ROUNDS):
        after = carry_out_at_once(state, plan)
        if after is state:
            break
        state = after
        plan = decide(state, predictor)
    return {job.id: job.workers for job in state.jobs}


def carry_out_at_once(state: ClusterState, plan: Plan) -> ClusterState:
    """The snapshot as if jobs re-formed and stopped in no time; itself if the plan changes no width."""
    rows: dict[str, Job] = {}
    freed: Counter[str] = Counter()
    for decision in plan.decisions:
        if isinstance(decision, Admit | Resize | Preempt):
            before = rows.get(decision.job, state.by_id[decision.job])
            after = rows[decision.job] = _row_after(before, decision)
            for node in before.nodes:
                freed[node] += before.gpus_per_worker
            for node in after.nodes:
                freed[node] -= before.gpus_per_worker
    if not rows:
        return state
    return replace(
        state,
        nodes=tuple(
            [replace(node, free_gpus=node.free_gpus + freed[node.id]) for node in state.nodes]
        ),
        jobs=tuple([rows.get(job.id, job) for job in state.jobs]),
        holds=(),
    )


def training_rate(job: Job, curve: Curve, width: int) -> float:
    """The share of the whole training done in a second on so many workers; 0 if that is not known."""
    epoch_s = curve.epoch_s(width, "mean") if width in curve.totals else 0.0
    return 1.0 / (max(1, job.workload.epochs) * epoch_s) if epoch_s > 0.0 else 0.0


def reward_rate(state: ClusterState, widths: Mapping[str, int], predictor: Predictor) -> float:
    """Shares of whole trainings an hour, summed over jobs, predicted for these widths."""
    forecasts = Forecasts(state, predictor)
    return HOUR_S * sum(
        training_rate(job, forecasts.curve(job), widths.get(job.id, 0)) for job in state.jobs
    )


def _row_after(job: Job, decision: Admit | Resize | Preempt) -> Job:
    nodes = () if isinstance(decision, Preempt) else decision.nodes
    return replace(
        job,
        workers=len(nodes),
        nodes=nodes,
        formed=len(nodes),
        resize_to=0,
        stop_requested_at=None,
        stop_for="",
        parked_epoch=None,
    )
