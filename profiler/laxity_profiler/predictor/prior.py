"""What is expected of a workload at a width before its own epochs are looked at: the best source.

In this order: history of the same model (measured levels, else the curve through them; a fit over
batch sizes for a setting never seen), else what its first epoch reads, similar models or the user's
estimate, whichever is surest, else nothing at all, which is infinity and not an error.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from laxity.human_time import count_noun
from laxity_profiler.estimate import Source, Workload
from laxity_profiler.model.calibration import NORMAL, Factors
from laxity_profiler.model.early_ends import ALL_EPOCHS, EpochShares, expected_shares
from laxity_profiler.model.epoch_curve import (
    ERROR_ONE_WIDTH,
    ONE_WIDTH,
    count_doublings,
    interpolate_curve,
)
from laxity_profiler.model.family import borrow_epoch_time, find_relatives
from laxity_profiler.model.inputs import ONE_RELATIVE, InputFit, unseen_inputs
from laxity_profiler.model.model_fit import (
    NOISE,
    SPREAD,
    ModelFit,
    SettingFit,
    WorkloadSetting,
    fewest_nodes,
    fill_sizes,
    nearest_setting,
    scale_text,
)
from laxity_profiler.model.odd_epochs import UNKNOWN_RARE, RareEpochs
from laxity_profiler.model.products import ProductFactors
from laxity_profiler.model.run_shape import RunShape
from laxity_profiler.model_key import model_of, pool_of
from laxity_profiler.overhead.costs import Part, StopCosts

USER_ERROR: Final = 0.3  # relative, of a user's estimate
WARM_UP_ERROR: Final = 0.3  # of the time of later epochs, known only from first ones
Levels = dict[tuple[int, int, int | None], tuple[float, float, int]]
Quantiles = tuple[float, float, float]  # P10, P50, P90 in seconds
UnitsLeft = tuple[float, float, float]  # their sum, as many equal ones, the next one: over the mean
ONE_UNIT: Final[UnitsLeft] = (1.0, 1.0, 1.0)
NO_TIME: Final[Quantiles] = (0.0, 0.0, 0.0)
UNKNOWN_VARIANCE: Final = 1e6  # relative, of a level that only the job's own epochs can give


@dataclass(frozen=True, slots=True)
class WidthPrior:
    """What is expected of one workload at one width, before its own epochs are looked at.

    `spread2` belongs to the run (the same at all widths), `error2` to this width.
    """

    epoch_s: float
    spread2: float
    error2: float
    noise2: float
    source: Source
    n: int
    start: Factors = NORMAL
    later: Factors = NORMAL
    end_s: Quantiles = NO_TIME  # from the last epoch until the Job is complete
    warm_up_s: Quantiles = NO_TIME  # by which a first epoch is longer
    rare: RareEpochs = UNKNOWN_RARE


UNKNOWN_PRIOR: Final = WidthPrior(math.inf, UNKNOWN_VARIANCE, 0.0, NOISE * NOISE, "prior", 0)


class PriorCache:
    """Priors of one predictor's models, each looked up once."""

    def __init__(
        self, models: Sequence[ModelFit], costs: StopCosts, gpus_per_node: int | None
    ) -> None:
        self._costs = costs
        self._gpus_per_node = gpus_per_node
        self._models = [fit for fit in models if fit.settings]
        self._by_model: Mapping[str, ModelFit] = {fit.model: fit for fit in models}
        self._products: dict[str, ProductFactors] = {}  # by who may teach one another
        self._workload_priors: dict[Workload, WorkloadPrior] = {}
        self._levels: Levels = {}
        self._parts: dict[tuple[str, Part, int], Quantiles] = {}

    def of(self, workload: Workload) -> "WorkloadPrior":
        prior = self._workload_priors.get(workload)
        if prior is None:
            fit = self._by_model.get(workload.model)
            given = workload
            if workload.whole and fit is not None and fit.lengths:
                workload = workload.counted(fit.lengths[-1])
            has_history = fit is not None and bool(fit.settings)
            family = [] if has_history else find_relatives(workload.model, self._models)
            part_s = partial(self._part_quantiles, workload.model)
            densest = fit.node_workers if fit else None
            lies_on = partial(fewest_nodes, workload, self._gpus_per_node, densest)
            products = self._products_of(pool_of(workload.model))
            prior = WorkloadPrior(workload, fit, family, self._levels, part_s, lies_on, products)
            self._workload_priors[given] = prior
        return prior

    def _products_of(self, pool: str) -> ProductFactors:
        if pool not in self._products:
            fits = [fit for fit in self._models if pool_of(fit.model) == pool]
            self._products[pool] = ProductFactors(fit.times_by_product() for fit in fits)
        return self._products[pool]

    def _part_quantiles(self, model: str, part: Part, width: int) -> Quantiles:
        """What finishing, or the warm-up of a first epoch, takes on so many workers."""
        key = model, part, width
        quantiles = self._parts.get(key)
        if quantiles is None:
            estimate = self._costs.estimate(model, (part,), width)
            quantiles = self._parts[key] = (estimate.p10_s, estimate.p50_s, estimate.p90_s)
        return quantiles


@dataclass(slots=True)
class WorkloadPrior:
    """One workload over all widths: `fit` is its own model's, `family` are those of models like it.

    `part_s` has the quantiles of finishing and of a warm-up by width, `lies_on` the nodes that a width
    takes; `levels` is shared by all workloads of a predictor.
    """

    workload: Workload
    fit: ModelFit | None
    family: Sequence[ModelFit]
    levels: Levels
    part_s: Callable[[Part, int], Quantiles]
    lies_on: Callable[[int], int | None]
    products: ProductFactors
    setting: WorkloadSetting = field(init=False)
    near: tuple[SettingFit, float, float] | None = field(init=False, default=None)
    unseen: tuple[tuple[InputFit, str], ...] = field(init=False, default=())
    shape: RunShape | None = field(init=False, default=None)
    width_priors: dict[int, WidthPrior] = field(default_factory=dict)

    def __post_init__(self) -> None:
        fit = self.fit
        setting = WorkloadSetting.of(self.workload, fit.effective if fit else ())
        self.setting = replace(setting, gpu_type=self.products.fill(setting.gpu_type))
        if fit and fit.settings:
            known = [setting_fit.setting for setting_fit in fit.settings]
            self.setting = fill_sizes(self.setting, self.workload, fit.inputs, known)
            self.near = nearest_setting(fit, self.setting, self.products)
            self.unseen = tuple(unseen_inputs(fit.inputs, self.workload))
            self.shape = fit.shape_of(self.workload.epochs)

    def units_left(self, done: int) -> UnitsLeft:
        """The epochs that are left, by the shape of such runs."""
        if self.shape is not None:
            return self.shape.rest(done)
        left = max(0, self.workload.epochs - done)
        return float(left), max(1.0, float(left)), 1.0

    def ratio_of(self, number: int) -> float:
        """This epoch over the mean of its run."""
        return self.fit.ratio_of(self.workload.epochs, number) if self.fit and self.shape else 1.0

    def prior_at(self, width: int) -> WidthPrior:
        prior = self.width_priors.get(width)
        if prior is None:
            prior = self.width_priors[width] = replace(
                self._best_source(width),
                end_s=self.part_s("finishing", width),
                warm_up_s=self.part_s("warmup", width),
            )
        return prior

    def expected_shares(self, done: int) -> EpochShares:
        """The shares of the epochs that are left that its runs lead to expect, at each quantile."""
        if self.fit is None or not self.fit.ended:
            return ALL_EPOCHS
        return expected_shares(self.fit.ended, self.workload.epochs, done)

    def epochs_seen_at(self, width: int) -> int:
        """Epochs of this model's history that so many workers ran; 0: what `prior_at` says is no history."""
        levels = self.near[0].levels if self.near is not None else ()
        return sum(level.n for level in levels if level.width == width)

    def scale_text(self) -> str:
        """From which sizes its runs are scaled to this workload; "" if from none."""
        if self.near is None:
            return ""
        setting_fit = self.near[0]
        is_stepped = self.prior_at(setting_fit.levels[0].width).source == "profile"
        return scale_text(setting_fit.setting, self.setting, by_steps=is_stepped)

    def product_text(self) -> str:
        """From which product its runs are scaled to this one, and by what; "" if from none."""
        if self.near is None:
            return ""
        seen, wanted = self.near[0].setting.gpu_type, self.setting.gpu_type
        product = self.products.between(seen, wanted)
        if not product.error:
            return ""
        model = model_of(self.workload.model)
        text = f"{model} has not run on {wanted or 'any known kind of GPU'}"
        if not product.models:
            return f"{text}: taken as on {seen or 'others'}, and very unsure"
        by = count_noun(product.models, "model")
        return f"{text}: {product.factor:.2g} times as long as on {seen}, by {by} that ran on both"

    @property
    def _is_on_unknown(self) -> bool:
        """Whether its runs were on other products, and nobody knows how this one compares."""
        if self.near is None:
            return False
        product = self.products.between(self.near[0].setting.gpu_type, self.setting.gpu_type)
        return bool(product.error) and not product.models

    @property
    def _warms_up(self) -> bool:
        """Whether its epochs are known from first ones alone, and more will follow."""
        levels = self.near[0].levels if self.near is not None else ()
        return self.workload.epochs > 1 and all(level.is_warm_up for level in levels)

    def _best_source(self, width: int) -> WidthPrior:
        sources = [self._from_traffic(width), self._from_family(width), self._from_user(width)]
        if self.fit is not None and self.near is not None:
            history = self._from_history(self.fit, *self.near, width)
            if not (self._warms_up or self._is_on_unknown):
                return history
            sources.append(history)
        return min(
            filter(None, sources),
            key=lambda width_prior: width_prior.spread2 + width_prior.error2,
            default=UNKNOWN_PRIOR,
        )

    def _from_history(
        self, fit: ModelFit, setting_fit: SettingFit, factor: float, off: float, width: int
    ) -> WidthPrior:
        nodes = self.lies_on(width)
        key = (id(setting_fit), width, nodes)
        level = self.levels.get(key)
        if level is None:
            level = self.levels[key] = (
                *interpolate_curve(setting_fit.levels, setting_fit.curve, width, nodes),
                setting_fit.n,
            )
        epoch_s, error, n = level
        error2 = error * error + off * off
        source: Source = "history"
        step = fit.step_on(self.setting.gpu_type)
        if off and step and self.setting.samples and self.setting.batch_size:
            step_error2 = step.error_at(width, nodes) ** 2
            samples, batch_size = self.setting.samples, self.setting.batch_size
            stepped_s = step.epoch_s(samples, batch_size, width, nodes)
            if step_error2 < error2 and stepped_s > 0.0:
                epoch_s, factor, error2, source = stepped_s, 1.0, step_error2, "profile"
        error2 += self._unseen_error() ** 2 + self._warms_up * WARM_UP_ERROR**2
        seconds = epoch_s * factor
        noise2 = fit.noise2_of(self.workload.epochs)
        return WidthPrior(
            seconds, fit.spread2, error2, noise2, source, n, fit.start, fit.later, rare=fit.rare
        )

    def _unseen_error(self) -> float:
        """The relative error of runs that had other inputs; less where the time is scaled by one."""
        errors = (
            ONE_RELATIVE
            if unseen.explains(value, getattr(self.setting, unseen.follows or "samples"))
            else unseen.error_at(value)
            for unseen, value in self.unseen
        )
        return max(errors, default=0.0)

    def _from_traffic(self, width: int) -> WidthPrior | None:
        """What is read in a first epoch; another setting is reached by the size of its data."""
        if self.fit is None or not self.fit.traffic:
            return None
        reading = replace(self.fit, settings=self.fit.traffic)
        setting_fit, factor, off = nearest_setting(reading, self.setting, self.products)
        epoch_s, error = interpolate_curve(setting_fit.levels, setting_fit.curve, width)
        error2 = error * error + off * off
        return WidthPrior(epoch_s * factor, SPREAD * SPREAD, error2, NOISE * NOISE, "traffic", 0)

    def _from_family(self, width: int) -> WidthPrior | None:
        borrowed = borrow_epoch_time(self.setting, width, self.family, self.products)
        if borrowed is None:
            return None
        noise2 = max(fit.noise2 for fit in self.family)
        return WidthPrior(
            borrowed.epoch_s, borrowed.error * borrowed.error, 0.0, noise2, "family", borrowed.n
        )

    def _from_user(self, width: int) -> WidthPrior | None:
        """The estimate is for one worker; beyond that a parallel share of 0.95 is assumed."""
        user_epoch_s = self.workload.user_epoch_s
        if user_epoch_s is None or not user_epoch_s > 0.0 or math.isinf(user_epoch_s):
            return None
        away = ERROR_ONE_WIDTH * count_doublings(1, width)
        seconds = user_epoch_s * ONE_WIDTH.epoch_s(width)
        return WidthPrior(
            seconds, USER_ERROR * USER_ERROR, away * away, 4.0 * NOISE * NOISE, "user", 0
        )


def assume_shape(width_prior: WidthPrior, width: int, one_worker_s: float) -> WidthPrior:
    """The same prior, or if nothing is known of it, the shape over the widths that is assumed.

    `one_worker_s` is the height of that shape: what the job's own last epoch comes to.
    """
    if width_prior.epoch_s != math.inf:
        return width_prior
    seconds = one_worker_s * ONE_WIDTH.epoch_s(width)
    return replace(width_prior, epoch_s=seconds, noise2=SPREAD * SPREAD)
