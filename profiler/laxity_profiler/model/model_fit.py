"""What was learned of each model: plain numbers, all that a predictor needs, to and from JSON.

A model's runs are grouped by setting (samples, batch, dataset, GPU type): epochs of one setting can
be compared, those of another only after scaling. Floats survive JSON exactly.
"""

import math
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Self

from laxity_profiler.estimate import Workload
from laxity_profiler.model.calibration import NORMAL, Factors
from laxity_profiler.model.epoch_curve import ERROR_UNSEEN, Level, WidthCurve, count_doublings
from laxity_profiler.model.inputs import SIZES, InputFit, number_of
from laxity_profiler.model.odd_epochs import UNKNOWN_RARE, RareEpochs
from laxity_profiler.model.products import EpochTimes, ProductFactors
from laxity_profiler.model.run_shape import RunShape

SPREAD: Final = 0.10  # between runs of one model, relative, before anything is known
NOISE: Final = 0.05  # of one epoch, relative
OTHER_INPUT: Final = 0.35  # relative error, of a run with another value of an input, per doubling


@dataclass(frozen=True, slots=True)
class WorkloadSetting:
    """What the time of an epoch depends on, beside the model and the width."""

    samples: int | None = None
    batch_size: int | None = None
    dataset_bytes: int | None = None
    parameters: int | None = None
    gpu_type: str = ""
    inputs: tuple[tuple[str, str], ...] = ()  # those that have an effect

    @classmethod
    def of(cls, workload: Workload, effective: Collection[str] = ()) -> Self:
        """The setting of a workload; of its inputs only the `effective` ones count."""
        return cls(
            workload.samples,
            workload.batch_size,
            workload.dataset_bytes,
            workload.parameters,
            workload.gpu_type,
            tuple(given for given in workload.inputs if given[0] in effective),
        )


@dataclass(frozen=True, slots=True)
class SettingFit:
    """Levels by width (ascending, at least one) and the curve through them."""

    setting: WorkloadSetting
    levels: tuple[Level, ...]
    curve: WidthCurve

    @property
    def n(self) -> int:
        return sum(level.n for level in self.levels)


@dataclass(frozen=True, slots=True)
class StepFit:
    """Seconds per step, a + b B/w + c log2 w (of one node's) + d [nodes > 1] + e (nodes - 1).

    `error` is relative; widths and the greatest number of nodes are those that it was fitted on.
    """

    a: float
    b: float
    c: float
    error: float
    least_width: int
    greatest_width: int
    d: float = 0.0
    e: float = 0.0
    most_nodes: int | None = None  # None: nobody knows
    gpu_type: str = ""

    def epoch_s(self, samples: int, batch_size: int, width: int, nodes: int | None = None) -> float:
        steps, lay_on = math.ceil(samples / batch_size), nodes or 1
        step_s = self.a + self.b * batch_size / width + self.c * math.log2(-(-width // lay_on))
        return steps * (step_s + self.d * (lay_on > 1) + self.e * (lay_on - 1))

    def error_at(self, width: int, nodes: int | None) -> float:
        """Twice as much outside the widths it was fitted on, and more on nodes never seen."""
        error = self.error * (1.0 if self.least_width <= width <= self.greatest_width else 2.0)
        never = self.most_nodes == 1 and (nodes or 1) > 1
        return math.hypot(error, ERROR_UNSEEN) if never else error


@dataclass(frozen=True, slots=True)
class ModelFit:
    """One model.

    `spread2` is the relative variance between runs, `noise2` that of one epoch (inflated where
    epochs resemble their neighbours); `start` and `later` are the factors for P10, P50 and P90
    before and after a run's own first epochs. `node_workers` is the most workers that were seen on
    one node, None where nobody knows. `shapes` are those of runs of so many epochs, `plain_noise2` is
    the variance of one epoch where no shape is known.
    """

    model: str
    settings: tuple[SettingFit, ...]
    spread2: float = SPREAD * SPREAD
    noise2: float = NOISE * NOISE
    start: Factors = NORMAL
    later: Factors = NORMAL
    steps: tuple[StepFit, ...] = ()  # one for each product with enough points
    node_workers: int | None = None
    ended: tuple[float, ...] = ()  # shares of their epochs that runs trained, where any ended early
    inputs: tuple[InputFit, ...] = ()
    shapes: tuple[RunShape, ...] = ()
    plain_noise2: float | None = None
    lengths: tuple[int, ...] = ()  # epochs that each of the latest runs declared
    traffic: tuple[SettingFit, ...] = ()  # while there are no settings: what a first epoch reads
    rare: RareEpochs = UNKNOWN_RARE

    @property
    def n(self) -> int:
        return sum(fit.n for fit in self.settings)

    def times_by_product(self) -> Mapping[str, EpochTimes]:
        """Its measured levels on each product."""
        times: dict[str, dict[Hashable, float]] = {}
        for fit in self.settings:
            alike = replace(fit.setting, gpu_type="")
            for level in fit.levels:
                place = alike, level.width, level.nodes
                times.setdefault(fit.setting.gpu_type, {})[place] = level.epoch_s
        return times

    def step_on(self, gpu_type: str) -> StepFit | None:
        """The step times on this product, or on those that nobody knows; None if there are none."""
        by_product = {step.gpu_type: step for step in self.steps}
        return by_product.get(gpu_type) or (by_product.get("") if len(by_product) == 1 else None)

    def shape_of(self, epochs: int) -> RunShape | None:
        """How the epochs of a run of so many differ; None: as far as is known they are equal."""
        return next((shape for shape in self.shapes if shape.epochs == epochs), None)

    def ratio_of(self, epochs: int, number: int) -> float:
        """This epoch over the mean of its run, of a run of so many."""
        shape = self.shape_of(epochs)
        return shape.ratio(number) if shape else 1.0

    def noise2_of(self, epochs: int) -> float:
        """The relative variance of one epoch in a run of so many."""
        if self.shapes and self.plain_noise2 is not None and self.shape_of(epochs) is None:
            return self.plain_noise2
        return self.noise2

    @property
    def effective(self) -> frozenset[str]:
        """The names of the inputs that settings differ by."""
        return frozenset(fit.name for fit in self.inputs if fit.has_effect)

    def to_json(self) -> dict[str, object]:
        return asdict(self)

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        steps = fields.get("steps") or filter(None, [fields.get("step")])  # as 0.1 wrote it
        return cls(
            fields["model"],
            tuple(_setting_fit(setting) for setting in fields["settings"]),
            fields["spread2"],
            fields["noise2"],
            Factors(**fields["start"]),
            Factors(**fields["later"]),
            tuple(StepFit(**step) for step in steps),
            fields.get("node_workers"),
            tuple(fields.get("ended", ())),
            tuple(
                InputFit(**row | {"values": tuple(row["values"])})
                for row in fields.get("inputs", ())
            ),
            tuple(
                RunShape(shape["epochs"], tuple(shape["ratios"]), shape["runs"])
                for shape in fields.get("shapes", ())
            ),
            fields.get("plain_noise2"),
            tuple(fields.get("lengths", ())),
            tuple(_setting_fit(setting) for setting in fields.get("traffic", ())),
            RareEpochs(**fields.get("rare", {})),
        )


def _setting_fit(fields: Mapping[str, Any]) -> SettingFit:
    return SettingFit(
        WorkloadSetting(**fields["setting"] | {"inputs": _pairs(fields["setting"])}),
        tuple(Level(**level) for level in fields["levels"]),
        WidthCurve(**fields["curve"]),
    )


def _pairs(setting: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple((name, value) for name, value in setting.get("inputs", ()))


def nearest_setting(
    fit: ModelFit, wanted: WorkloadSetting, products: ProductFactors
) -> tuple[SettingFit, float, float]:
    """The setting most like the wanted one, the factor from it, and the factor's relative error."""
    scaled = [
        (candidate, *_scale_between(candidate.setting, wanted, products))
        for candidate in fit.settings
    ]
    return min(scaled, key=lambda row: row[2])


def scale_text(old: WorkloadSetting, new: WorkloadSetting, *, by_steps: bool) -> str:
    """Say `scaled from 1000 samples`; "" if the time of an epoch is that of the runs themselves.

    `by_steps`: it follows from the time of a step, so that the batch size scales it, too.
    """
    sizes = [("{} samples", old.samples, new.samples)]
    if not (old.samples and new.samples):
        sizes = [("{} bytes of data", old.dataset_bytes, new.dataset_bytes)]
    if by_steps:
        sizes.append(("a batch size of {}", old.batch_size, new.batch_size))
    texts = [text.format(before) for text, before, now in sizes if before and now and before != now]
    return f"scaled from {' and '.join(texts)}" if texts else ""


def _scale_between(
    candidate: WorkloadSetting, wanted: WorkloadSetting, products: ProductFactors
) -> tuple[float, float]:
    """(factor, relative error): from one product to another, and to other work of an epoch."""
    product = products.between(candidate.gpu_type, wanted.gpu_type)
    factor, error = _scale_work(replace(candidate, gpu_type=wanted.gpu_type), wanted)
    return factor * product.factor, math.hypot(error, product.error) if product.error else error


def _scale_work(candidate: WorkloadSetting, wanted: WorkloadSetting) -> tuple[float, float]:
    """(factor, relative error) on one product: an epoch's work grows with what it reads."""
    if candidate == wanted:
        return 1.0, 0.0
    factor, error = 1.0, 0.1
    for old, new in (
        (candidate.samples, wanted.samples),
        (candidate.dataset_bytes, wanted.dataset_bytes),
    ):
        if old and new:
            factor = new / old
            error += 0.1 * min(3.0, count_doublings(old, new))
            break
    else:
        error += 0.1
    if candidate.batch_size and wanted.batch_size:
        error += 0.1 * min(3.0, count_doublings(candidate.batch_size, wanted.batch_size))
    if candidate.parameters and wanted.parameters:
        error += 0.15 * min(4.0, count_doublings(candidate.parameters, wanted.parameters))
    given = dict(wanted.inputs)
    error += sum(_input_error(value, given.get(name)) for name, value in candidate.inputs)
    return factor, error


def _input_error(old: str, new: str | None) -> float:
    """How little a run with another value of an input says; least for the nearest number."""
    if old == new:
        return 0.0
    numbers = [number_of(value) for value in (old, new) if value is not None]
    positive = [number for number in numbers if number is not None and number > 0.0]
    if len(positive) < 2:
        return OTHER_INPUT
    return OTHER_INPUT * min(2.0, abs(math.log2(positive[0] / positive[1])))


def fewest_nodes(
    workload: Workload, gpus_per_node: int | None, node_workers: int | None, width: int
) -> int | None:
    """On how many nodes so many workers lie: the fewest that hold them.

    By the GPUs of a node, else by the most workers that were seen on one; None without either.
    """
    held = node_workers
    if gpus_per_node:
        held = max(1, gpus_per_node // workload.gpus_per_worker)
    return -(-width // held) if held else None


def fill_sizes(
    setting: WorkloadSetting,
    workload: Workload,
    fits: Sequence[InputFit],
    known: Sequence[WorkloadSetting],
) -> WorkloadSetting:
    """The setting with sizes that only a worker can tell, as the runs with these inputs had them."""
    given = dict(workload.inputs)
    filled: dict[str, Any] = {}
    for size in SIZES:
        seen = {getattr(other, size) for other in known}
        if getattr(setting, size) is not None or None in seen:
            continue
        leading = next((fit for fit in fits if fit.follows == size and fit.name in given), None)
        number = None if leading is None else number_of(given[leading.name])
        if leading is not None and number is not None:
            filled[size] = max(1, round(number / leading.ratio))
        elif len(seen) == 1:
            filled[size] = seen.pop()
    return replace(setting, **filled)
