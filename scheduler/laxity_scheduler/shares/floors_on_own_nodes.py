"""The floors of promised jobs for who sees lent nodes too: no promise rests on a loan."""

from copy import deepcopy
from dataclasses import replace

from laxity_profiler.estimate import Predictor
from laxity_scheduler.loans.own_nodes import without_loans
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.shares.promised_widths import PromiseFloors, plan_promises


def plan_floors(state: ClusterState, predictor: Predictor) -> PromiseFloors:
    """Once per snapshot, as the policy and who compares it with another ask the same."""
    last: tuple[ClusterState, Predictor, PromiseFloors] | None = state.memory.get("promises")
    if last is None or last[0] is not state or last[1] is not predictor:
        floors = plan_promises(without_loans(state), predictor)
        last = state.memory["promises"] = state, predictor, floors
    return replace(last[2], plans=deepcopy(last[2].plans))  # who asks takes GPUs of them
