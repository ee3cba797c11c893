"""Compiles the loops that decisions about hundreds of jobs need: the service's image does it once.

numba keeps machine code under NUMBA_CACHE_DIR, for the processor that NUMBA_CPU_NAME names; with
`generic` any machine of that architecture can use it.
"""

from typing import Final

import numpy as np

from laxity_lab.world.crowd import TIED, crowd, underway
from laxity_lab.world.noisy_predictor import NoisyPredictor
from laxity_scheduler.plan import Policy
from laxity_scheduler.plan_check import apply_plan, check_plan
from laxity_scheduler.policies.registry import REGISTRY
from laxity_scheduler.simulated.change_costs import Costs, costs

CONTENDED: Final = 20  # jobs a node


def main() -> None:
    model = costs("live", cluster_gpus=8_000)
    for policy in REGISTRY.values():
        if policy.elastic:
            for each, tied in ((4, 0.0), (CONTENDED, 0.0), (4, TIED)):
                warm_up(policy.policy(), model, each=each, tied=tied)


def warm_up(decide: Policy, model: Costs, *, each: int, tied: float) -> None:
    """Have all compiled that decisions about crowds need, on `each` jobs a node.

    Some loops are for many jobs only, some where these share too few GPUs.
    """
    for jobs, on_a_node in ((40, 4), (1_000, 4), (3_000, max(4, each))):
        truths, state = crowd(jobs=jobs, nodes=jobs // on_a_node, seed=1, tied=tied)
        predictor = NoisyPredictor(truths, model)
        for _ in range(2):
            plan = decide(state, predictor)
            check_plan(plan, state)
            state = underway(apply_plan(plan, state), np.random.default_rng(2))


if __name__ == "__main__":
    main()
