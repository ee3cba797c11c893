"""From observed runs to stretches: epochs of one run, setting and width that can be compared."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import compress, groupby
from operator import mul, truediv
from typing import TYPE_CHECKING, Self

from laxity_profiler.history.observations import Epoch
from laxity_profiler.learning.fit_inputs import fit_inputs
from laxity_profiler.learning.run_shapes import collect_shapes
from laxity_profiler.model.model_fit import WorkloadSetting, fewest_nodes
from laxity_profiler.model.odd_epochs import NONE_RARE, UNKNOWN_RARE, RareEpochs, split_past
from laxity_profiler.model.run_shape import ShapeRuns

if TYPE_CHECKING:
    from laxity_profiler.history.history import TrainingRun


@dataclass(frozen=True, slots=True)
class Stretch:
    """Epochs of one run at one width, warmed up, oldest first, in seconds; on how many nodes.

    Each is over its place in the run's shape, `shape`, as the other runs show it (empty: all equal).
    `noise2` is what one epoch strays at least, where no other run shows that.
    """

    setting: WorkloadSetting
    width: int
    epoch_s: tuple[float, ...]
    only_warm_up: bool = False
    nodes: int | None = None
    shape: tuple[float, ...] = ()
    noise2: float = 0.0

    @property
    def mean_s(self) -> float:
        return sum(self.epoch_s) / len(self.epoch_s)

    def without_shape(self) -> Self:
        """The epochs as they were."""
        if not self.shape:
            return self
        epoch_s = tuple(map(mul, self.epoch_s, self.shape))
        return replace(self, epoch_s=epoch_s, shape=(), noise2=0.0)


def split_runs(
    runs: "Sequence[TrainingRun]",
    *,
    gpus_per_node: int | None = None,
    shapes: Mapping[int, ShapeRuns] | None = None,
) -> list[Stretch]:
    """The stretches of all runs. A run that has only warm-up epochs is not thrown away.

    Where nobody knows the nodes, they are the fewest that hold the workers.
    """
    stretches: list[Stretch] = []
    densest = node_workers(runs)
    shapes = collect_shapes(runs) if shapes is None else shapes
    effective = {fit.name for fit in fit_inputs(runs) if fit.has_effect}
    product_of = find_products(runs)
    for run in runs:
        setting = WorkloadSetting.of(run.workload, effective)
        lay_on = partial(fewest_nodes, run.workload, gpus_per_node, densest)
        alike = shapes.get(run.workload.epochs)
        others = alike.shape(without=run.uid) if alike else None
        noise2 = alike.alone_noise2 if alike and others else 0.0
        places = groupby(
            run.epochs,
            key=lambda epoch: (epoch.width, epoch.nodes or lay_on(epoch.width), product_of(epoch)),
        )
        for (width, nodes, product), epochs in places:
            every = tuple(epochs)
            warm = tuple(epoch for epoch in every if not epoch.warmup)
            place = tuple(others.ratio(epoch.epoch) for epoch in warm or every) if others else ()
            seconds = tuple(epoch.epoch_s for epoch in warm or every)
            if place:
                seconds = tuple(map(truediv, seconds, place))
            here = replace(setting, gpu_type=product or setting.gpu_type)
            stretches.append(Stretch(here, width, seconds, not warm, nodes, place, noise2))
    return stretches


def find_products(runs: "Iterable[TrainingRun]") -> Callable[[Epoch], str]:
    """The product that an epoch ran on. Where nobody knows, the only one that other epochs ran on."""
    products = {epoch.gpu_type for run in runs for epoch in run.epochs} - {""}
    only = products.pop() if len(products) == 1 else ""
    return lambda epoch: epoch.gpu_type or only


def node_workers(runs: "Iterable[TrainingRun]") -> int | None:
    """The most workers that were seen on one node; None where nobody knows the nodes."""
    densities = (
        -(-epoch.width // epoch.nodes) for run in runs for epoch in run.epochs if epoch.nodes
    )
    return max(densities, default=None)


def set_odd_apart(stretches: Sequence[Stretch]) -> tuple[list[Stretch], RareEpochs]:
    """The stretches without epochs that took far longer than usual, and what is known of these.

    One run alone keeps them: what is known of a whole run is its time.
    """
    if len(stretches) < 2:
        return list(stretches), UNKNOWN_RARE
    usual, rare = [], NONE_RARE
    for stretch in stretches:
        mixture = split_past(stretch.epoch_s)
        rare += mixture.rare
        epoch_s = tuple(compress(stretch.epoch_s, mixture.is_usual))
        place = tuple(compress(stretch.shape, mixture.is_usual)) if stretch.shape else ()
        usual.append(replace(stretch, epoch_s=epoch_s, shape=place))
    return usual, rare
