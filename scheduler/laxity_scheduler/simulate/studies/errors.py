"""Decisions on predictions that are wrong, where stops and starts cost what they cost.

Mean absolute errors of 0, 10, 20 and 40 %, drawn per job and shrinking as its epochs are seen; three
models of costs; promises given greedily or at a price.
"""

from collections.abc import Sequence
from typing import Final

from laxity_scheduler.simulate.costs import CostName
from laxity_scheduler.simulate.run import Setting
from laxity_scheduler.simulate.studies.cases import Whole
from laxity_scheduler.simulate.studies.shelf import BOOKS, Shelf
from laxity_scheduler.simulate.studies.trial import Trial, simulated

ERRORS: Final = (0.0, 0.1, 0.2, 0.4)
COSTS: Final[Sequence[CostName]] = ("flat", "elasticflow", "live")
POLICIES: Final = ("elasticflow", "laxity")
ADMISSIONS: Final = ("greedy", "priced")
GPUS: Final = {"195job": 64, "10": 32, "01": 128}
LIVE: Final = ("195job", "10")  # jobs that stop at epoch ends only are simulated cycle by cycle


def trials(shelf: Shelf, seeds: Sequence[int]) -> list[Trial]:
    """Each trace on a scarce cluster; without an error one seed is enough."""
    names = shelf.having(["195job"] if shelf.samples else list(GPUS))
    costs = [model for model in COSTS if not (shelf.samples and model == "live")]
    return [
        simulated(
            Whole(shelf.source(name)),
            Setting(
                policy,
                GPUS[name] // BOOKS[name].gpus_per_node,
                BOOKS[name].gpus_per_node,
                cost_model=model,
                error=error,
                seed=seed,
                admission=admission,
            ),
            part="errors",
            trace=name,
        )
        for model in costs
        for name in names
        if model != "live" or name in LIVE
        for policy in POLICIES
        for admission in ADMISSIONS
        for error in ERRORS
        for seed in (seeds if error else seeds[:1])
    ]
