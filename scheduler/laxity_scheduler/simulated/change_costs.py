"""What starts, stops and changes of width cost a job: four models, each with its source.

When a change takes effect is the same in all of them, and as live: jobs stop and change their width
at an epoch's end, new workers join once they have started, a stop at once loses the running epoch.

    live          laxity's own workers: a stop or a re-forming costs 6 s (1 + log2 w) to save, a start
                  24 s (1 + log2 w) (Chronus' figures)
    flat          the world of most simulators: starts cost the same seconds each time, stops nothing
    elasticflow   ElasticFlow's released simulator: in each scheduling round every running job pays
                  2 s (7 s on 256 GPUs or more); 2 (log2 w + 1) s more on a width that it has not had
                  since the last periodic restart, which comes every 60th round and adds 27 s (47 s).
                  That a round comes with a decision, at the earliest 60 s after the last one, is ours
    free          nothing costs anything

w is the number of GPUs that the job holds.
"""

import math
from dataclasses import dataclass, fields, replace
from typing import Final, Literal

CostName = Literal["live", "flat", "elasticflow", "free"]
COST_NAMES: Final[tuple[CostName, ...]] = ("live", "flat", "elasticflow", "free")
ROUND_S: Final = 60.0  # ElasticFlow's slot
ROUNDS_BETWEEN_RESTARTS: Final = 60
LARGE_CLUSTER_GPUS: Final = 256


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds by GPUs held."""

    name: CostName
    start_fixed_s: float = 0.0
    start_log_s: float = 0.0  # times 1 + log2(gpus)
    stop_log_s: float = 0.0  # times 1 + log2(gpus)
    round_s: float = 0.0  # paid by every running job in every round
    restart_s: float = 0.0  # more, in every 60th round
    gone_s: float = 0.0  # until a stopped worker's pod has gone and its GPUs are free

    def start_s(self, gpus: int) -> float:
        """From the decision to the first useful step, or to the first on another width."""
        return self.start_fixed_s + self.start_log_s * (1.0 + math.log2(max(1, gpus)))

    def stop_s(self, gpus: int) -> float:
        """Saving at an epoch's end."""
        return self.stop_log_s * (1.0 + math.log2(max(1, gpus)))


def costs(name: CostName, *, cluster_gpus: int, restart_s: float = 0.0) -> Costs:
    """`restart_s` is what a start costs in the flat model; the others bring their own figures."""
    if name == "live":
        return Costs("live", start_log_s=24.0, stop_log_s=6.0)
    if name == "flat":
        return Costs("flat", start_fixed_s=restart_s)
    if name == "elasticflow":
        large = cluster_gpus >= LARGE_CLUSTER_GPUS
        always_s = 7.0 if large else 2.0
        return Costs(
            "elasticflow",
            start_fixed_s=always_s,
            start_log_s=2.0,
            round_s=always_s,
            restart_s=47.0 if large else 27.0,
        )
    return Costs("free")


def scale(model: Costs, factor: float) -> Costs:
    """The same model with all its seconds times `factor`."""
    names = [field.name for field in fields(model) if field.name.endswith("_s")]
    return replace(model, **{name: factor * getattr(model, name) for name in names})
