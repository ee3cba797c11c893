"""What stops and starts cost, as the registry takes it: one model for all, with its held-back errors.

Held back: every fifth observation of a model and part, five times over, so that each is predicted
once from the others by the rules of laxity_profiler.overhead.costs, at its own width. `mean_ape` is of
single events by the P50; `of_mean` is how far the sum of all events was from the sum of their means.
What took no time at all has no relative error and is not counted.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from itertools import product
from typing import Final, cast, get_args

from laxity_profiler.estimate import Estimate
from laxity_profiler.history.observations import ObservedStop
from laxity_profiler.learning.backtest import LIVE_LEVELS, PredictionOutcome, error_metrics
from laxity_profiler.overhead.costs import LOCAL, Part, StopCosts, fit_costs
from laxity_profiler.overhead.part import PartFit
from laxity_profiler.registry.entry import (
    QUANTILES,
    Column,
    RegistryEntry,
    instant_text,
    join_numbers,
    mlflow_params,
)

NAME: Final = "laxity-overhead"  # not "laxity.": what follows there is the key of some model
SERVED: Final = "served_costs.py"
ABOUT: Final = "What it costs to suspend and to resume a training: P10, P50, mean and P90."
FOLDS: Final = 5
ALL: Final = "all"
SIDES: Final = ("suspend", "resume")


def overhead_entry(
    costs: StopCosts, stops: Sequence[ObservedStop], *, prior: tuple[PartFit, ...] = LOCAL
) -> RegistryEntry:
    """These costs, and the observations that they were fitted on, over this prior."""
    document = {"kind": "overhead", "costs": costs.to_json()}
    digest = sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:12]
    metrics = cross_validation_errors(cross_validate(stops, prior=prior))
    seconds = [Column("double", f"{side}_{name}") for side, name in product(SIDES, QUANTILES)]
    sources = [Column("string", f"{side}_source") for side in SIDES]
    return RegistryEntry(
        name=NAME,
        digest=digest,
        predicts="overhead",
        about=ABOUT,
        description=_describe_fit(stops, metrics),
        fit=document,
        served=SERVED,
        inputs=(Column("string", "model"), Column("long", "workers", required=False)),
        outputs=(*seconds, *sources),
        params=_training_params(stops, digest),
        metrics=metrics,
    )


def cross_validate(
    stops: Sequence[ObservedStop], *, prior: tuple[PartFit, ...]
) -> list[PredictionOutcome]:
    """Every observation predicted from the other folds; its part is the outcome's stage."""
    outcomes: list[PredictionOutcome] = []
    folds = _deal_into_folds([stop for stop in stops if stop.kind in get_args(Part)])
    for number, fold in enumerate(folds):
        others = [stop for index, other in enumerate(folds) if index != number for stop in other]
        costs = fit_costs(others, prior=prior)
        estimates: dict[tuple[str, str, int], Estimate] = {}
        for stop in fold:
            key = (stop.model, stop.kind, stop.workers)
            if key not in estimates:
                part = cast("Part", stop.kind)
                estimates[key] = costs.estimate(stop.model, (part,), stop.workers)
            if stop.seconds > 0.0 and estimates[key].p50_s > 0.0:
                outcomes.append(_fold_outcome(stop, estimates[key]))
    return outcomes


def cross_validation_errors(outcomes: Sequence[PredictionOutcome]) -> dict[str, float]:
    """Metrics over all parts (`error/median_ape`), and by part (`error/resume_median_ape`)."""
    metrics = error_metrics([replace(outcome, stage=ALL) for outcome in outcomes], stage=ALL)
    for part in sorted({outcome.stage for outcome in outcomes}):
        for name, value in error_metrics(outcomes, stage=part).items():
            prefix, _, figure = name.partition("/")
            metrics[f"{prefix}/{part}_{figure}"] = value
    return metrics


def _deal_into_folds(stops: Sequence[ObservedStop]) -> list[list[ObservedStop]]:
    """Dealt out in turn within each model and part, so that no fold has all of one."""
    folds: list[list[ObservedStop]] = [[] for _ in range(FOLDS)]
    dealt: Counter[tuple[str, str]] = Counter()
    for stop in stops:
        folds[dealt[stop.model, stop.kind] % FOLDS].append(stop)
        dealt[stop.model, stop.kind] += 1
    return folds


def _fold_outcome(stop: ObservedStop, estimate: Estimate) -> PredictionOutcome:
    quantiles = (estimate.p10_s, estimate.p50_s, estimate.p90_s)
    return PredictionOutcome(
        stop.model, stop.kind, estimate.p50_s, stop.seconds, LIVE_LEVELS, quantiles, estimate.mean_s
    )


def _training_params(stops: Sequence[ObservedStop], digest: str) -> dict[str, str]:
    """What they were fitted on: observations in all and by part, of which models and widths."""
    by_part = Counter(stop.kind for stop in stops)
    models = sorted({stop.model for stop in stops})
    instants = [stop.at for stop in stops if stop.at > 0.0]
    params: dict[str, object] = {
        "digest": digest,
        "observations": len(stops),
        "models": len(models),
        "model_keys": ", ".join(models),
        "widths": join_numbers(tuple(sorted({stop.workers for stop in stops}))),
        "first_observed_at": instant_text(min(instants, default=0.0)),
        "last_observed_at": instant_text(max(instants, default=0.0)),
    }
    return mlflow_params(params | {f"n_{part}": n for part, n in sorted(by_part.items())})


def _describe_fit(stops: Sequence[ObservedStop], metrics: Mapping[str, float]) -> str:
    models = {stop.model for stop in stops}
    text = f"Fitted on {len(stops)} stops, starts and warm-ups of {len(models)} models."
    if "error/median_ape" in metrics:
        text += (
            f" Of {metrics['error/n']:.0f} held back: mean error "
            f"{100 * metrics['error/mean_ape']:.1f} %, median {100 * metrics['error/median_ape']:.1f} %, "
            f"{100 * metrics['coverage/p90']:.0f} % within P90, all together "
            f"{100 * metrics['error/of_mean']:.1f} % from their predicted sum."
        )
    return text
