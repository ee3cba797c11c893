"""The predictor in use: a frozen value, answering from what was learned, the same way every time.

For each (workload, width) it takes the best source there is: the model's own history (measured
levels, else its curve), a fit over batch sizes, similar models, the user's estimate; a job's own
epochs correct it. The remaining n epochs as one sum have the relative variance

    sigma^2 = what is left of the run's own factor + error of the level + epoch noise / n

and quantiles n * level * f(z * sigma), f(x) = x + sqrt(1 + x^2), with z from the calibration. So
more epochs never take less time, at any quantile.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from threading import Lock
from typing import Any, Final, Self

from laxity_profiler.estimate import NO_PROGRESS, Ask, Estimate, Estimates, Progress, Workload
from laxity_profiler.model.early_ends import ALL_EPOCHS, early_text
from laxity_profiler.model.inputs import length_text
from laxity_profiler.model.model_fit import ModelFit
from laxity_profiler.overhead.costs import Part, StopCosts
from laxity_profiler.predictor.answer_cache import AnswerCache
from laxity_profiler.predictor.own_epochs import (
    OwnEpochs,
    Row,
    estimate_rows,
    row_of_one_epoch,
    row_of_prior,
)
from laxity_profiler.predictor.prior import NO_TIME, ONE_UNIT, PriorCache, UnitsLeft, WorkloadPrior

FORMAT: Final = 1


@dataclass(frozen=True)
class HistoryPredictor:
    """Answers from history; see the module. Equal parameters are equal predictors.

    Workers are taken to lie on the fewest nodes of `gpus_per_node` that hold them, or if that is
    None, as close together as the model's runs ever did.
    """

    models: tuple[ModelFit, ...] = ()
    costs: StopCosts = field(default_factory=StopCosts)
    gpus_per_node: int | None = None
    _answers: AnswerCache = field(
        default_factory=AnswerCache, init=False, repr=False, compare=False, hash=False
    )
    _cost_answers: dict[tuple[str, tuple[Part, ...], int], Estimate] = field(
        default_factory=dict, init=False, repr=False, compare=False, hash=False
    )
    _lock: Any = field(default_factory=Lock, init=False, repr=False, compare=False, hash=False)

    @cached_property
    def version(self) -> str:
        """A short digest of all parameters."""
        text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @cached_property
    def _prior_cache(self) -> PriorCache:
        return PriorCache(self.models, self.costs, self.gpus_per_node)

    def epoch_time(self, workload: Workload, workers: int) -> Estimate:
        """One epoch on `workers` workers, warmed up."""
        if workload.whole:
            return self.remaining(workload, NO_PROGRESS, workers)
        with self._lock:
            return estimate_rows(
                [row_of_one_epoch(self._prior_cache.of(workload).prior_at(workers))]
            )[0]

    def remaining(self, workload: Workload, progress: Progress, workers: int) -> Estimate:
        """All epochs that are left, as one sum."""
        return self.table((Ask(workload, progress, workers),))[0]

    def table(self, asks: Sequence[Ask]) -> Estimates:
        """`remaining` for many rows; rows asked before come from memory."""
        with self._lock:
            return self._answers.table(asks, self._answer_asks)

    def suspend_cost(self, workload: Workload, workers: int) -> Estimate:
        """Checkpoint and stop, after the epoch's end, until the GPUs are free."""
        return self._cost(workload, ("save", "suspend"), workers)

    def resume_cost(self, workload: Workload, workers: int) -> Estimate:
        """From the patch that starts the pods to the first useful step, and the slow first steps."""
        return self._cost(workload, ("resume", "warmup"), workers)

    def finishing_time(self, workload: Workload, workers: int) -> Estimate:
        """From the end of the last epoch until the job is complete: part of `remaining`."""
        return self._cost(workload, ("finishing",), workers)

    def _cost(self, workload: Workload, parts: tuple[Part, ...], workers: int) -> Estimate:
        """What a stop, a start or an end costs, computed once for all jobs of a model and width."""
        key = (workload.model, parts, workers)
        answer = self._cost_answers.get(key)
        if answer is None:
            answer = self._cost_answers[key] = self.costs.estimate(*key)
        return answer

    def to_json(self) -> dict[str, object]:
        """All parameters as plain JSON."""
        return {
            "format": FORMAT,
            "kind": "history",
            "models": [fit.to_json() for fit in self.models],
            "costs": self.costs.to_json(),
            "gpus_per_node": self.gpus_per_node,
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """The same value again; ValueError for a format this laxity does not know."""
        if fields.get("format") != FORMAT or fields.get("kind") != "history":
            text = f"{fields.get('kind')!r} in format {fields.get('format')!r}"
            raise ValueError(
                f"a predictor of kind {text} cannot be read; 'history' in {FORMAT} can"
            )
        models = tuple(ModelFit.from_json(fit) for fit in fields["models"])
        return cls(models, StopCosts.from_json(fields["costs"]), fields.get("gpus_per_node"))

    def epochs_seen_at(self, workload: Workload, workers: int) -> int:
        """Epochs seen of this model on so many workers; 0: answers for them are extrapolated."""
        return self._prior_cache.of(workload).epochs_seen_at(workers)

    def notes(self, workload: Workload) -> str:
        """What its readers should know of an answer for this workload; "" for nothing."""
        prior = self._prior_cache.of(workload)
        unseen = [fit.text(value) for fit, value in prior.unseen]
        if prior.fit is None or prior.near is None:
            return "; ".join(unseen)
        length = length_text(prior.fit.lengths, workload.epochs)
        early = early_text(prior.fit.ended, workload.epochs)
        scaled = prior.scale_text(), prior.product_text()
        return "; ".join(filter(None, (*unseen, length, *scaled, early)))

    def _own_epochs(self, prior: WorkloadPrior, progress: Progress) -> OwnEpochs | None:
        """What its own epochs say, beside what was expected on the product that they ran on."""
        if not progress.epoch_s:
            return None
        product = progress.gpu_type
        if product in ("", prior.workload.gpu_type):
            return OwnEpochs.of(prior, progress)
        there = self._prior_cache.of(replace(prior.workload, gpu_type=product))
        error = prior.products.between(product, prior.workload.gpu_type).error
        error2 = 0.0 if prior.near else error * error  # else the level here has it
        return replace(OwnEpochs.of(there, progress), moved_error2=error2)

    def _answer_asks(self, asks: Sequence[Ask]) -> Estimates:
        """Answers that are not in memory; consecutive asks of one job share its correction."""
        rows: list[Row] = []
        last: Ask | None = None
        workload_prior: WorkloadPrior = self._prior_cache.of(asks[0].workload)
        own: OwnEpochs | None = None
        left: UnitsLeft = ONE_UNIT
        shares = ALL_EPOCHS
        for ask in asks:
            workload, progress = ask.workload, ask.progress
            if last is None or workload is not last.workload or progress is not last.progress:
                last = ask
                workload_prior = self._prior_cache.of(workload)
                left = workload_prior.units_left(progress.epochs_done)
                own = self._own_epochs(workload_prior, progress)
                shares = workload_prior.expected_shares(progress.epochs_done)
            width_prior = workload_prior.prior_at(ask.workers)
            warm_up_s = width_prior.warm_up_s if progress.warms_up and left[0] else NO_TIME
            rows.append(
                own.row(width_prior, ask.workers, left, warm_up_s, shares)
                if own
                else row_of_prior(width_prior, left, warm_up_s, shares)
            )
        return estimate_rows(rows)
