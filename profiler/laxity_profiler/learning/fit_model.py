"""From the observed runs of one model to its numbers: levels, spread, noise and calibration.

The calibration needs no live predictions: each past run is predicted from the others (leave one
out; where the level of the runs moves, from those before it), before its start and again at half of
it, by the same rules that the predictor uses. How far off that was, in units of the expected error,
are the scores.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import compress, pairwise
from statistics import fmean, median
from typing import Final

from laxity_profiler.history.report_fold import EPOCHS_KEPT
from laxity_profiler.learning.stretches import Stretch, set_odd_apart
from laxity_profiler.model.calibration import P90, factors_of_scores, miss_score, widen_for_few
from laxity_profiler.model.drift import Drift, LevelEstimate, drift_of, places
from laxity_profiler.model.epoch_curve import ONE_WIDTH, Level, WidthCurve
from laxity_profiler.model.inputs import InputFit
from laxity_profiler.model.model_fit import (
    NOISE,
    SPREAD,
    ModelFit,
    SettingFit,
    StepFit,
    WorkloadSetting,
)
from laxity_profiler.model.odd_epochs import split_epochs
from laxity_profiler.model.run_factor import Belief, last_jump, update_belief
from laxity_profiler.model.run_shape import ShapeRuns

LEAST_SPREAD2: Final = 1e-6
NOISE_POINTS: Final = 4.0
RUNS_SCORED: Final = 200
LONGEST_MEMORY: Final = 30.0  # inflation of the noise of a mean by resemblance of neighbours


@dataclass(frozen=True, slots=True)
class Regime:
    """Stretches of one setting, width and number of nodes between two jumps, oldest first.

    The last is current.
    """

    setting: WorkloadSetting
    width: int
    stretches: tuple[Stretch, ...]
    is_current: bool = True
    nodes: int | None = None

    @property
    def n_epochs(self) -> int:
        return sum(len(stretch.epoch_s) for stretch in self.stretches)


@dataclass(frozen=True, slots=True)
class BacktestTrial:
    """One stretch of a past run: seconds per epoch as predicted from the others, and as they were.

    `sigma` is the relative error that was expected.
    """

    stage: str  # "start", or "half": after half of its own epochs
    width: int
    predicted_s: float
    actual_s: float
    sigma: float

    @property
    def score(self) -> float:
        return miss_score(self.actual_s, self.predicted_s, self.sigma)


def fit_model(
    model: str,
    stretches: Sequence[Stretch],
    *,
    level: float = P90,
    later_level: float = P90,
    node_workers: int | None = None,
    shapes: Iterable[ShapeRuns] = (),
    ended: tuple[float, ...] = (),
    inputs: tuple[InputFit, ...] = (),
    lengths: tuple[int, ...] = (),
) -> ModelFit:
    """All numbers of one model. The levels are the adapted ones of its P90 at a start and later.

    `ended` are the shares of their epochs that runs trained, `inputs` what they were called with,
    `lengths` the epochs that they declared.
    """
    usual, rare = set_odd_apart(stretches)
    noise2 = _fit_noise2(usual)
    regimes = _split_into_regimes(usual, noise2)
    drift = _fit_drift(regimes, noise2)
    wide = drift if drift.step2 else Drift(_fit_spread2(regimes, noise2, is_wide=True))
    settings = _fit_settings(regimes, wide, noise2)
    trials = list(predict_trials(regimes, drift=drift, noise2=noise2))
    at_start, at_half = (
        [trial.score for trial in trials if trial.stage == stage] for stage in ("start", "half")
    )
    return ModelFit(
        model,
        settings,
        wide.spread2,
        noise2,
        factors_of_scores(at_start, level=level),
        factors_of_scores(at_half, level=later_level),
        _fit_step_times(settings),
        node_workers,
        ended,
        inputs,
        shapes=tuple(shape for runs in shapes if (shape := runs.shape()) is not None),
        plain_noise2=_fit_noise2([stretch.without_shape() for stretch in usual]),
        lengths=lengths,
        rare=rare,
    )


def predict_trials(
    regimes: Sequence[Regime], *, drift: Drift, noise2: float
) -> Iterator[BacktestTrial]:
    """Each stretch as others of its regime predict it: before its start, and at its half.

    Where the level stands still these are all others, where it moves those before it.
    """
    for regime in regimes:
        before = _from_those_before if drift.step2 > 0.0 else _leave_one_out
        for stretch, place in before(regime, drift, noise2):
            level_s = place.level_s
            belief = Belief(1.0, drift.spread2 + place.error2, 0.0, noise2, 0)
            ratios = [seconds / level_s for seconds in stretch.epoch_s]
            yield _make_trial("start", regime, level_s, belief, ratios)
            if half := len(ratios) // 2:
                own = ratios[max(0, half - EPOCHS_KEPT) : half]
                usual = compress(own, split_epochs(own, belief).is_usual)
                after = update_belief(belief, list(usual))
                yield _make_trial("half", regime, level_s, after, ratios[half:])


def _leave_one_out(
    regime: Regime, drift: Drift, noise2: float
) -> Iterator[tuple[Stretch, LevelEstimate]]:
    """The latest stretches, each with the weighted mean of all the others."""
    group = regime.stretches
    weights = [1.0 / (drift.spread2 + noise2 / len(stretch.epoch_s)) for stretch in group]
    total = sum(weights)
    sums = sum(weight * stretch.mean_s for weight, stretch in zip(weights, group, strict=True))
    for weight, stretch in list(zip(weights, group, strict=True))[-RUNS_SCORED:]:
        rest = total - weight
        if rest > 1e-9 * total and not stretch.only_warm_up:
            yield stretch, LevelEstimate((sums - weight * stretch.mean_s) / rest, 1.0 / rest)


def _from_those_before(
    regime: Regime, drift: Drift, noise2: float
) -> Iterator[tuple[Stretch, LevelEstimate]]:
    """The latest stretches but the first, each with the level as it was known before it."""
    if regime.stretches[0].only_warm_up:
        return
    estimates = places(_run_means(regime), drift, noise2)
    later = zip(regime.stretches[1:], estimates, strict=False)
    yield from list(later)[-RUNS_SCORED:]


def _make_trial(
    stage: str, regime: Regime, level_s: float, belief: Belief, rest: Sequence[float]
) -> BacktestTrial:
    sigma = math.sqrt(belief.left2 + belief.noise2 / len(rest))
    actual_s = level_s * (sum(rest) / len(rest))
    return BacktestTrial(stage, regime.width, level_s * belief.factor, actual_s, sigma)


def backtest_trials(stretches: Sequence[Stretch]) -> list[BacktestTrial]:
    """The trials that a fit of these stretches is calibrated with, in the order of the runs."""
    usual, _ = set_odd_apart(stretches)
    noise2 = _fit_noise2(usual)
    regimes = _split_into_regimes(usual, noise2)
    return list(predict_trials(regimes, drift=_fit_drift(regimes, noise2), noise2=noise2))


def _split_into_regimes(stretches: Sequence[Stretch], noise2: float) -> list[Regime]:
    """Stretches that can be compared, oldest first; cut where the model became slower or faster."""
    groups: dict[tuple[WorkloadSetting, int, int | None], list[Stretch]] = {}
    for stretch in stretches:
        groups.setdefault((stretch.setting, stretch.width, stretch.nodes), []).append(stretch)
    regimes = []
    for (setting, width, nodes), group in groups.items():
        rest = [stretch for stretch in group if not stretch.only_warm_up] or group
        while cut := last_jump([stretch.mean_s for stretch in rest], noise2):
            regimes.append(Regime(setting, width, tuple(rest[:cut]), is_current=False, nodes=nodes))
            rest = rest[cut:]
        regimes.append(Regime(setting, width, tuple(rest), nodes=nodes))
    return regimes


def _fit_noise2(stretches: Sequence[Stretch]) -> float:
    """Relative variance of one epoch as it counts in a mean: inflated where neighbours resemble."""
    squares, points, steps = 0.0, 0.0, 0.0
    for stretch in stretches:
        n, mean = len(stretch.epoch_s), stretch.mean_s
        if n < 2 or stretch.only_warm_up:
            continue
        squares += sum((seconds / mean - 1.0) ** 2 for seconds in stretch.epoch_s)
        pairs = pairwise(stretch.epoch_s)
        steps += sum(((after - before) / mean) ** 2 for before, after in pairs) / 2 * n / (n - 1)
        points += n - 1
    noise2 = (NOISE_POINTS * NOISE * NOISE + squares) / (NOISE_POINTS + points)
    noise2 = max(noise2, max((stretch.noise2 for stretch in stretches), default=0.0))
    if points < 10 or squares <= 0.0:
        return noise2
    # von Neumann's ratio gives the correlation of neighbours; a mean of n has 1 + 2 sum rho^k
    rho = max(0.0, 1.0 - steps / squares) * points / (points + 20.0)
    return noise2 * min(LONGEST_MEMORY, (1.0 + rho) / (1.0 - rho) if rho < 1.0 else math.inf)


def _fit_spread2(regimes: Sequence[Regime], noise2: float, *, is_wide: bool = False) -> float:
    """Relative variance between runs, what epoch noise makes of it taken off.

    `is_wide`: that of a normal distribution with the P90 of what so few runs say.
    """
    squares, noise, points = 0.0, 0.0, 0
    for regime in regimes:
        group = regime.stretches
        means = [stretch.mean_s for stretch in group]
        middle = sum(means) / len(means)
        squares += sum((mean / middle - 1.0) ** 2 for mean in means)
        points += len(group) - 1
        noise += (len(group) - 1) * fmean(noise2 / len(stretch.epoch_s) for stretch in group)
    if not points:
        return SPREAD * SPREAD
    factor = widen_for_few(points) if is_wide else 1.0
    return max(LEAST_SPREAD2, (factor * factor * squares - noise) / points)


def _fit_drift(regimes: Sequence[Regime], noise2: float) -> Drift:
    """How much runs differ, and how fast their level moves between jumps."""
    sequences = [_run_means(regime) for regime in regimes if not regime.stretches[0].only_warm_up]
    return drift_of(sequences, spread2=_fit_spread2(regimes, noise2), noise2=noise2)


def _run_means(regime: Regime) -> list[tuple[float, int]]:
    return [(stretch.mean_s, len(stretch.epoch_s)) for stretch in regime.stretches]


def _fit_settings(regimes: Sequence[Regime], drift: Drift, noise2: float) -> tuple[SettingFit, ...]:
    by_setting: dict[WorkloadSetting, list[Level]] = {}
    for regime in regimes:
        if regime.is_current:
            level = _fit_level(regime, drift, noise2)
            by_setting.setdefault(regime.setting, []).append(level)
    fits = []
    for setting, levels in by_setting.items():
        levels.sort(key=lambda level: (level.width, level.nodes or 0))
        fits.append(SettingFit(setting, tuple(levels), _fit_level_curve(levels)))
    return tuple(sorted(fits, key=lambda fit: repr(fit.setting)))


def _fit_level(regime: Regime, drift: Drift, noise2: float) -> Level:
    """Where it is now if it moves, else the weighted mean of the runs' means."""
    group = regime.stretches
    n = sum(len(stretch.epoch_s) for stretch in group)
    if drift.step2 > 0.0 and not group[0].only_warm_up:
        *_, place = places(_run_means(regime), drift, noise2)
        return Level(
            regime.width, place.level_s, math.sqrt(place.error2), len(group), n, regime.nodes
        )
    weights = [1.0 / (drift.spread2 + noise2 / len(stretch.epoch_s)) for stretch in group]
    total = sum(weights)
    mean = (
        sum(weight * stretch.mean_s for weight, stretch in zip(weights, group, strict=True)) / total
    )
    error = math.sqrt(1.0 / total)
    return Level(
        regime.width, mean, error, len(group), n, regime.nodes, is_warm_up=group[0].only_warm_up
    )


def _fit_level_curve(levels: Sequence[Level]) -> WidthCurve:
    """Fitted on the levels; with one width the parallel share is assumed."""
    if len(levels) == 1:
        scale = levels[0].epoch_s / ONE_WIDTH.epoch_s(levels[0].width)
        return WidthCurve(ONE_WIDTH.alpha * scale, ONE_WIDTH.beta * scale)
    from laxity_profiler.model.scaling import fit_curve

    beyond = [level.is_beyond for level in levels]
    return fit_curve([level.width for level in levels], [level.epoch_s for level in levels], beyond)


def _fit_step_times(settings: Sequence[SettingFit]) -> tuple[StepFit, ...]:
    """The step times on each product that has points enough."""
    products = sorted({fit.setting.gpu_type for fit in settings})
    fits = (
        _fit_steps_on([fit for fit in settings if fit.setting.gpu_type == product])
        for product in products
    )
    pairs = zip(fits, products, strict=True)
    return tuple(replace(fit, gpu_type=product) for fit, product in pairs if fit)


def _fit_steps_on(settings: Sequence[SettingFit]) -> StepFit | None:
    """Step times over batch sizes and widths, if there are four points of two of each at least."""
    points = [
        (fit.setting.samples, fit.setting.batch_size, level)
        for fit in settings
        for level in fit.levels
        if fit.setting.samples and fit.setting.batch_size
    ]
    batches = {point[1] for point in points}
    widths = {point[2].width for point in points}
    if len(points) < 4 or len(batches) < 2 or len(widths) < 2:
        return None
    from laxity_profiler.model.scaling import fit_steps

    rows = [
        (batch, level.width, level.epoch_s / math.ceil(samples / batch), level.nodes or 1)
        for samples, batch, level in points
        if samples and batch
    ]
    a, b, c, d, e = fit_steps(rows)
    node_counts = [level.nodes for _, _, level in points if level.nodes is not None]
    fit = StepFit(a, b, c, 0.0, min(widths), max(widths), d, e, max(node_counts, default=None))
    errors = [
        abs(fit.epoch_s(batch, batch, width, nodes) / step_s - 1.0)
        for batch, width, step_s, nodes in rows
    ]
    return replace(fit, error=max(0.05, 1.5 * median(errors)))
