"""Policies as Prometheus sees them: a learned one's reward beside its teacher's, and a shadow's."""

from functools import partial

from prometheus_client import CollectorRegistry, Gauge

from laxity_scheduler.service.policy_in_force import PolicyInForce
from laxity_scheduler.width_comparison import ShadowTotals


class PolicyMetrics:
    """Series that say 0 where no policy was learned."""

    def __init__(self, registry: CollectorRegistry) -> None:
        gauge = partial(Gauge, registry=registry)
        self._reward = gauge(
            "laxity_policy_reward",
            "Shares of trainings done in the last 20 slots: measured, and what the teacher would have done",
            ("of",),
        )
        self._fallback = gauge(
            "laxity_policy_fallback", "1 while the teacher decides in place of a learned policy"
        )
        self._shadow_cycles = gauge(
            "laxity_shadow_cycles",
            "Cycles since the start by what the shadow policy did: same, differs, skipped, failed",
            ("shadow",),
        )
        self._shadow_trained = gauge(
            "laxity_shadow_trained",
            "Shares of trainings done since the start, predicted for widths: shadow, and policy in force",
            ("of",),
        )

    def record(self, policy: PolicyInForce) -> None:
        self._reward.labels("policy").set(policy.comparison.measured)
        self._reward.labels("teacher").set(policy.comparison.teacher)
        self._fallback.set(bool(policy.fallback))

    def record_shadow(self, totals: ShadowTotals) -> None:
        """Gauges, as they are kept elsewhere and only read here."""
        numbers = {
            "same": totals.cycles - totals.differing,
            "differs": totals.differing,
            "skipped": totals.skipped,
            "failed": totals.failed,
        }
        for name, number in numbers.items():
            self._shadow_cycles.labels(name).set(number)
        self._shadow_trained.labels("shadow").set(totals.trained)
        self._shadow_trained.labels("policy").set(totals.decided_trained)
