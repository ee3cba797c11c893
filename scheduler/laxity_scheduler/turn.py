"""One decision of the service: first finish what was begun, then ask the policy.

The loop, what-ifs and replay all decide through this function, so they cannot come apart.
"""

from laxity_profiler.estimate import Predictor
from laxity_scheduler.engine import Policy
from laxity_scheduler.follow_up import with_follow_up
from laxity_scheduler.plan import Plan
from laxity_scheduler.state import ClusterState


def decide(state: ClusterState, predictor: Predictor, policy: Policy) -> Plan:
    """Follow-ups and the policy's decisions as one plan on `state`."""
    return with_follow_up(policy)(state, predictor)
