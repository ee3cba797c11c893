"""What happens beside decisions: a learned policy is compared with its teacher, a shadow is shown them.

None of it harms a decision. Prometheus sees what comes of it.
"""

import logging
from functools import partial
from threading import Lock
from typing import Final

from prometheus_client import Gauge

from laxity_profiler.estimate import Predictor
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.plan import Plan
from laxity_scheduler.service.metrics import Metrics
from laxity_scheduler.service.policy_in_force import PolicyInForce
from laxity_scheduler.service.shadow import Shadow
from laxity_scheduler.width_comparison import DecidedCycle, ShadowTotals

LOG: Final = logging.getLogger(__name__)


class PolicyWatch:
    """Is told of every snapshot that was decided on, after the plan was carried out.

    Its series say 0 where no policy was learned.
    """

    def __init__(self, policies: PolicyInForce, metrics: Metrics, deciding: Lock) -> None:
        self._policies, self._metrics, self._deciding = policies, metrics, deciding
        self.shadow: Shadow | None = None
        gauge = partial(Gauge, registry=metrics.registry)
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

    def observe(self, state: ClusterState, plan: Plan, predictor: Predictor) -> None:
        """Compare; what that raises is logged and counted, and the cycle goes on."""
        policies = self._policies
        if self.shadow is not None:
            self.shadow.show(DecidedCycle(state, plan, predictor, policies.decide))
            self._count_shadow(self.shadow.totals)
        try:
            with self._deciding:
                policies.observe(state, predictor)
            self._reward.labels("policy").set(policies.comparison.measured)
            self._reward.labels("teacher").set(policies.comparison.teacher)
            self._fallback.set(bool(policies.fallback))
        except Exception:
            LOG.exception("the policy cannot be compared with its teacher in this cycle")
            self._metrics.failed_cycles.labels("part").inc()

    def _count_shadow(self, totals: ShadowTotals) -> None:
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
