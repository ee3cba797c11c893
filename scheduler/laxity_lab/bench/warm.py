"""Compiles the loops that decisions about hundreds of jobs need: the service's image does it once.

numba keeps machine code under NUMBA_CACHE_DIR, for the processor that NUMBA_CPU_NAME names; with
`generic` any machine of that architecture can use it.
"""

from typing import Final

from laxity_lab.bench.bench_decisions import TIED, warm_up
from laxity_scheduler.policies.registry import REGISTRY
from laxity_scheduler.simulated.change_costs import costs

CONTENDED: Final = 20  # jobs a node


def main() -> None:
    model = costs("live", cluster_gpus=8_000)
    for policy in REGISTRY.values():
        if policy.elastic:
            for each, tied in ((4, 0.0), (CONTENDED, 0.0), (4, TIED)):
                warm_up(policy.policy(), model, each=each, tied=tied)


if __name__ == "__main__":
    main()
