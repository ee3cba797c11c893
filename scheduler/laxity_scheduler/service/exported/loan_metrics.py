"""Loans as people see them: GPUs lent, wanted back and lacking, how long returns and pods take."""

from functools import partial
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from laxity_scheduler.loans.demand_history import DemandHistory
from laxity_scheduler.loans.inference_waits import InferenceWaits
from laxity_scheduler.model.cluster import FLEET_POOLS, LENT_POOLS, ClusterState
from laxity_scheduler.model.decision import Preempt, Reclaim
from laxity_scheduler.plan import Plan
from laxity_scheduler.service.views.view_fields import finite_or_none

WAITS: Final = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3_600.0)


def loan_view(state: ClusterState, history: DemandHistory) -> dict[str, Any] | None:
    """The inference fleet of a snapshot, and how its forecast did; None if there is none."""
    demand = state.inference
    if demand is None:
        return None
    fleet, lent = state.count_gpus(FLEET_POOLS), state.count_gpus(LENT_POOLS)
    own = fleet - lent
    coverage, slots = history.coverage()
    return {
        "fleet_gpus": fleet,
        "lent_gpus": lent,
        "needed_gpus": demand.needed_gpus,
        "forecast_gpus": demand.peak_gpus,
        "wanted_gpus": min(lent, max(0.0, demand.peak_gpus - own)),
        "short_gpus": max(0.0, demand.needed_gpus - own),
        "wanted_by": finite_or_none(demand.reclaim_by),
        "horizon_at": finite_or_none(demand.horizon_at),
        "forecast_coverage": coverage if slots else None,
        "forecast_slots": slots,
        "forecast_slot_s": history.method.slot_s,
        "problems": demand.find_problems(fleet, state.now),
    }


class LoanMetrics:
    """Series that say 0 where nothing is ever lent."""

    def __init__(self, registry: CollectorRegistry) -> None:
        gauge, counter = partial(Gauge, registry=registry), partial(Counter, registry=registry)
        histogram = partial(Histogram, registry=registry, buckets=WAITS)
        self._gauges = {
            "lent_gpus": gauge("laxity_lent_gpus", "GPUs of inference nodes that are lent"),
            "wanted_gpus": gauge("laxity_lent_gpus_wanted_back", "Lent GPUs that are to go back"),
            "short_gpus": gauge(
                "laxity_inference_gpus_short",
                "GPUs that inference needs beyond those that are not lent",
            ),
        }
        self._coverage = gauge(
            "laxity_inference_forecast_coverage",
            "Share of slots in which the need of inference stayed within its forecast",
        )
        self._time_to_return = histogram(
            "laxity_reclaim_seconds", "From when lent GPUs are wanted back to the return of a node"
        )
        self._returned = counter("laxity_nodes_reclaimed", "Lent nodes given back")
        self._stopped = counter("laxity_reclaim_preemptions", "Jobs stopped for nodes that go back")
        self._waits = histogram(
            "laxity_inference_wait_seconds",
            "From the creation of an inference pod that needs GPUs to its node",
        )
        self._waiting = gauge(
            "laxity_inference_pods_waiting", "Inference pods that need GPUs and have no node"
        )
        self._longest_wait = gauge(
            "laxity_inference_longest_wait_seconds",
            "How long the inference pod that waits longest has waited; 0 of none",
        )
        self._wanted_since: float | None = None
        self._leaving: set[str] = set()  # jobs that were counted since

    def record(self, state: ClusterState, plan: Plan, history: DemandHistory) -> None:
        """What a cycle saw and decided."""
        view = loan_view(state, history) or dict.fromkeys(self._gauges, 0.0)
        self._coverage.set(history.coverage()[0])
        for name, gauge in self._gauges.items():
            gauge.set(view[name])
        if not view["wanted_gpus"]:
            self._wanted_since = None
            self._leaving.clear()
            return
        if self._wanted_since is None:
            self._wanted_since = state.now
        for decision in plan.decisions:
            if isinstance(decision, Reclaim):
                self._returned.inc(len(decision.nodes))
                for _ in decision.nodes:
                    self._time_to_return.observe(state.now - self._wanted_since)
            elif isinstance(decision, Preempt) and decision.reason.code == "leave_lent_node":
                self._stopped.inc(decision.job not in self._leaving)
                self._leaving.add(decision.job)

    def record_waits(self, waits: InferenceWaits, now: float, *, counted: bool) -> None:
        """How long pods of inference wait, and waited; a replica that does not lead counts none."""
        ended_s, running_s = waits.take_ended(), waits.running_s(now)
        for wait_s in ended_s if counted else ():
            self._waits.observe(wait_s)
        self._waiting.set(len(running_s))
        self._longest_wait.set(max(running_s, default=0.0))
