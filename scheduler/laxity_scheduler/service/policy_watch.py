"""What happens beside decisions: a learned policy is compared with its teacher, a shadow is shown them.

None of it harms a decision.
"""

import logging
from threading import Lock
from typing import Final

from laxity_profiler.estimate import Predictor
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.plan import Plan
from laxity_scheduler.service.metrics import Metrics
from laxity_scheduler.service.policy_in_force import PolicyInForce
from laxity_scheduler.service.shadow import Shadow
from laxity_scheduler.width_comparison import DecidedCycle

LOG: Final = logging.getLogger(__name__)


class PolicyWatch:
    """Is told of every snapshot that was decided on, after the plan was carried out."""

    def __init__(self, policies: PolicyInForce, metrics: Metrics, deciding: Lock) -> None:
        self._policies, self._metrics, self._deciding = policies, metrics, deciding
        self.shadow: Shadow | None = None

    def observe(self, state: ClusterState, plan: Plan, predictor: Predictor) -> None:
        """Compare; what that raises is logged and counted, and the cycle goes on."""
        if self.shadow is not None:
            self.shadow.show(DecidedCycle(state, plan, predictor, self._policies.decide))
            self._metrics.policies.record_shadow(self.shadow.totals)
        try:
            with self._deciding:
                self._policies.observe(state, predictor)
            self._metrics.policies.record(self._policies)
        except Exception:
            LOG.exception("the policy cannot be compared with its teacher in this cycle")
            self._metrics.failed_cycles.labels("part").inc()
