"""The finish that a job is told: that of the queue run down, times what later arrivals usually do."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.decision import Forecasted, Promised, Refuse, verdict_after
from laxity_scheduler.model.job import FOREVER, Job, Promise, Refusal, Verdict
from laxity_scheduler.plan import Plan
from laxity_scheduler.simulated.overtaking import Overtaking

PROMISED: Final = "promised"
UNLEARNED_P90: Final = (
    2.0  # over the P50, until enough jobs have ended: docs/measurements/promises.md
)


@dataclass(frozen=True, slots=True)
class ToldFinish:
    """Instants. `queue_s`: from `at` on, what the queue alone says; None where it says nothing."""

    at: float
    p50_at: float
    p90_at: float
    queue_s: float | None = None

    @property
    def finite(self) -> tuple[float | None, float | None]:
        """P50 and P90, None for never."""
        p50_at, p90_at = self.p50_at, self.p90_at
        return (p50_at if p50_at < FOREVER else None, p90_at if p90_at < FOREVER else None)


def kind_of(verdict: str, service_class: str) -> str:
    """Jobs of one kind are overtaken alike."""
    return PROMISED if verdict == PROMISED else service_class


def told_finishes(
    state: ClusterState, plan: Plan, ends: Mapping[str, float], overtaking: Overtaking
) -> dict[str, ToldFinish]:
    """Of each job of a snapshot, by the verdict that the plan leaves it and its end in the rollout."""
    verdicts = {job.id: job.verdict for job in state.jobs}
    for decision in plan.decisions:
        if isinstance(decision, Promised | Forecasted | Refuse):
            verdicts[decision.job] = verdict_after(state.by_id[decision.job], decision, state.now)
    finishes = {
        job.id: told_finish(job, verdicts[job.id], ends.get(job.id), state.now, overtaking)
        for job in state.jobs
    }
    return {name: finish for name, finish in finishes.items() if finish is not None}


def told_finish(
    job: Job, verdict: Verdict | None, ends_at: float | None, now: float, overtaking: Overtaking
) -> ToldFinish | None:
    """None of a refused job, and where neither the queue nor a verdict says anything.

    `ends_at` is when it ends if nobody else comes; without it the verdict's own finish is told. The P90
    of a promise that is in time is no later than its deadline: it is what the promise says.
    """
    if isinstance(verdict, Refusal):
        return None
    if job.pinned and not job.workers:  # whoever stopped it has to start it
        return ToldFinish(now, FOREVER, FOREVER)
    if ends_at is None:
        return None if verdict is None else ToldFinish(now, verdict.p50_at, verdict.p90_at)
    queue_s = ends_at - now
    promised = isinstance(verdict, Promise)
    kind = kind_of(PROMISED if promised else "", job.service_class)
    p50, p90 = overtaking.factors(kind, queue_s) or (1.0, max(UNLEARNED_P90, _spread(verdict, now)))
    p50_at, p90_at = now + p50 * queue_s, now + p90 * queue_s
    if isinstance(verdict, Promise):
        if verdict.p90_at <= verdict.deadline_at:
            p90_at = min(p90_at, verdict.deadline_at)
        else:
            p90_at = max(p90_at, verdict.p90_at)
    return ToldFinish(now, min(p50_at, p90_at), p90_at, queue_s)


def _spread(verdict: Verdict | None, now: float) -> float:
    """P90 over P50 of the time that is left, by the verdict."""
    if verdict is None or isinstance(verdict, Refusal):
        return 1.0
    if not now < verdict.p50_at <= verdict.p90_at < FOREVER:
        return 1.0
    return (verdict.p90_at - now) / (verdict.p50_at - now)
