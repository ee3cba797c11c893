"""How far the predictions of a model can be trusted: past runs predicted, and what came of it.

Two kinds of rows. *Backtests*: each past run predicted from the others of its kind (before its
start, and at half of it), with factors from the scores before it. *Live*: what was predicted of a
job's remaining time when it started, and what it took. Calibration is the share of actual times at
or below a predicted quantile, beside the quantile's own level, with Wilson's 95 % interval.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any, Final

import numpy as np

from laxity_profiler.history.history import TrainingRun
from laxity_profiler.learning.fit_model import BacktestTrial, backtest_trials
from laxity_profiler.learning.stretches import Stretch
from laxity_profiler.model.calibration import factor_at, score_quantiles, wilson_interval

LEVELS: Final = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
LIVE_LEVELS: Final = (0.1, 0.5, 0.9)


@dataclass(frozen=True, slots=True)
class PredictionOutcome:
    """One prediction that met the truth; `quantiles_s` by the levels they were made for.

    `mean_s` is what was expected on average, where that is said apart from `predicted_s`, the P50.
    """

    model: str
    stage: str
    predicted_s: float
    actual_s: float
    levels: tuple[float, ...]
    quantiles_s: tuple[float, ...]
    mean_s: float | None = None

    @property
    def ape(self) -> float:
        return abs(self.predicted_s / self.actual_s - 1.0)


@dataclass(frozen=True, slots=True)
class CalibrationPoint:
    """One point of a calibration curve: of n, this share was at or below the quantile."""

    level: float
    share: float
    n: int

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % interval of the share."""
        return wilson_interval(self.share, self.n)


@dataclass(frozen=True, slots=True)
class TrainingSummary:
    """What a model's fit was made of: counts and ranges, as a registry shows them."""

    runs: int
    epochs: int
    widths: tuple[int, ...]
    batch_sizes: tuple[int, ...]
    samples: tuple[int, ...]
    nodes: tuple[int, ...]
    first_at: float
    last_at: float

    @classmethod
    def of(cls, runs: Sequence[TrainingRun]) -> "TrainingSummary":
        epochs = [epoch for run in runs for epoch in run.epochs]
        works = [run.workload for run in runs]
        return cls(
            len(runs),
            len(epochs),
            tuple(sorted({epoch.width for epoch in epochs})),
            tuple(sorted({work.batch_size for work in works if work.batch_size})),
            tuple(sorted({work.samples for work in works if work.samples})),
            tuple(sorted({epoch.nodes for epoch in epochs if epoch.nodes})),
            min((epoch.at for epoch in epochs), default=0.0),
            max((epoch.at for epoch in epochs), default=0.0),
        )


def run_backtests(model: str, stretches: Sequence[Stretch]) -> list[PredictionOutcome]:
    """Past runs of a model predicted from its others, in their order."""
    outcomes: list[PredictionOutcome] = []
    scores: dict[str, list[float]] = {}
    for trial in backtest_trials(stretches):
        before = scores.setdefault(trial.stage, [])
        outcomes.append(_backtest_outcome(model, trial, before))
        before.append(trial.score)
    return outcomes


def live_outcomes(rows: Iterable[Any]) -> list[PredictionOutcome]:
    """Of rows with model, stage, p10_s, p50_s, p90_s and actual_s, those that came to an end."""
    return [live_outcome(row, row.actual_s) for row in rows if row.actual_s]


def live_outcome(row: Any, actual_s: float) -> PredictionOutcome:
    """What came of one prediction, which took so long."""
    quantiles_s = (row.p10_s, row.p50_s, row.p90_s)
    return PredictionOutcome(row.model, row.stage, row.p50_s, actual_s, LIVE_LEVELS, quantiles_s)


def calibration_curve(outcomes: Sequence[PredictionOutcome]) -> list[CalibrationPoint]:
    """The curve of these outcomes, by level."""
    held: dict[float, list[bool]] = {}
    for outcome in outcomes:
        for level, quantile_s in zip(outcome.levels, outcome.quantiles_s, strict=True):
            held.setdefault(level, []).append(outcome.actual_s <= quantile_s)
    return [CalibrationPoint(level, fmean(hits), len(hits)) for level, hits in sorted(held.items())]


def error_metrics(
    outcomes: Sequence[PredictionOutcome], *, stage: str = "start"
) -> dict[str, float]:
    """Errors and coverage at one stage, as metrics; nothing without outcomes."""
    chosen = [outcome for outcome in outcomes if outcome.stage == stage]
    if not chosen:
        return {}
    metrics = {
        "error/mean_ape": fmean(outcome.ape for outcome in chosen),
        "error/median_ape": median(outcome.ape for outcome in chosen),
        "error/n": float(len(chosen)),
    }
    means = [outcome.mean_s for outcome in chosen if outcome.mean_s is not None]
    if len(means) == len(chosen):
        metrics["error/of_mean"] = abs(
            sum(means) / sum(outcome.actual_s for outcome in chosen) - 1.0
        )
    for point in calibration_curve(chosen):
        if point.level in LIVE_LEVELS:
            metrics[f"coverage/p{100 * point.level:.0f}"] = point.share
    return metrics


def _backtest_outcome(
    model: str, trial: BacktestTrial, before: Sequence[float]
) -> PredictionOutcome:
    z = np.asarray(score_quantiles(before, LEVELS))
    up = factor_at(z * trial.sigma)
    middle = trial.predicted_s * float(up[LEVELS.index(0.5)])
    return PredictionOutcome(
        model,
        trial.stage,
        middle,
        trial.actual_s,
        LEVELS,
        tuple(float(trial.predicted_s * ratio) for ratio in up),
    )
