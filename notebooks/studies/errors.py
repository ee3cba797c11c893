"""Decisions on predictions that are wrong, where stops and starts cost what they cost.

Mean absolute errors of 0, 10, 20 and 40 %, drawn per job and shrinking as its epochs are seen; costs
that are nil, flat, those of ElasticFlow's authors, or those of laxity's own workers (`live`);
promises given greedily, by the policy's own rule, or not at all. EDF's jobs pay for
their start as all others do.
"""

from collections.abc import Sequence
from typing import Final

from laxity_lab.simulate.run import Setting
from laxity_scheduler.simulated.change_costs import CostName
from studies.datasets import TRACE_FILES, Datasets
from studies.study_rows import Trial, simulation_trial

ERRORS: Final = (0.0, 0.1, 0.2, 0.4)
COSTS: Final[Sequence[CostName]] = ("free", "flat", "elasticflow", "live")
RULES: Final[Sequence[tuple[str, str | None]]] = (
    ("elasticflow", "greedy"),
    ("edf_elastic", "greedy"),
    ("edf", None),
    ("edf", "greedy"),
    ("qos", None),
)
GPUS: Final = {"195job": 64, "10": 32, "01": 128}
FEW: Final = ("195job", "10")


def trials(datasets: Datasets, seeds: Sequence[int]) -> list[Trial]:
    """Each trace on a scarce cluster; without an error one seed is enough."""
    names = datasets.having(["195job"] if datasets.samples else list(GPUS))
    costs = [model for model in COSTS if not (datasets.samples and model == "live")]
    return [
        simulation_trial(
            datasets.source(name),
            Setting(
                policy,
                GPUS[name] // TRACE_FILES[name].gpus_per_node,
                TRACE_FILES[name].gpus_per_node,
                cost_model=model,
                error=error,
                seed=seed,
                admission=admission,
                paid_starts=True,
            ),
            part="errors",
            trace=name,
        )
        for model in costs
        for name in names
        for policy, admission in RULES
        if _is_compared(policy, model, name, few=datasets.samples)
        for error in ERRORS
        for seed in (seeds if error else seeds[:1])
    ]


def _is_compared(policy: str, model: CostName, trace: str, *, few: bool) -> bool:
    """All policies on some traces and costs, ElasticFlow on all."""
    if policy == "elasticflow":
        return trace in FEW or model in {"flat", "elasticflow"}
    return trace in FEW and model != "flat" and not few
