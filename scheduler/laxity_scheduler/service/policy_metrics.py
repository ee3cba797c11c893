"""A learned policy as Prometheus sees it: its reward beside its teacher's, and whether it fell back."""

from prometheus_client import CollectorRegistry, Gauge

from laxity_scheduler.service.policy_in_force import PolicyInForce


class PolicyMetrics:
    """Series that say 0 where no policy was learned."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._reward = Gauge(
            "laxity_policy_reward",
            "Shares of trainings done in the last 20 slots: measured, and what the teacher would have done",
            ("of",),
            registry=registry,
        )
        self._fallback = Gauge(
            "laxity_policy_fallback",
            "1 while the teacher decides in place of a learned policy",
            registry=registry,
        )

    def record(self, policy: PolicyInForce) -> None:
        self._reward.labels("policy").set(policy.comparison.measured)
        self._reward.labels("teacher").set(policy.comparison.teacher)
        self._fallback.set(bool(policy.fallback))
