"""A training as one trial of a sweep: it reports to its study at each epoch's end, and may end there.

LAXITY_TRIAL holds the trial as JSON. The study is in it as a pickle, whose storage object finds the
same storage from here: so the study's own pruner decides, while nobody waits for the client. An epoch
that would not end before the deadline is not begun: the trial ends with what it has.
"""

import base64
import json
import math
import pickle
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from laxity.stderr import say
from laxity.worker.chain_link import EPOCH_MARGIN, LEAVING_S
from laxity.worker.checkpoints.training_state import TrainingError
from laxity.worker.code.entrypoint import call_arguments
from laxity.worker.training import Training, run_of

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import Trial

KNOWN_S: Final = 120.0  # worker 0 has suggested its parameters by then
LOOK_S: Final = 0.2
VALUE: Final = "value"  # fields of the result of a trial's job
ENDED: Final = "ended"


@dataclass(frozen=True, slots=True)
class TrialTerms:
    """What a trial's worker is told. `study` is "" in a grid; `until` is the deadline, POSIX seconds."""

    until: float
    metric: str = ""
    study: str = ""
    number: int = 0

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def pack_study(study: "Study") -> str:
    """The study as a text for `TrialTerms`: its name, storage, sampler and pruner."""
    return base64.b64encode(zlib.compress(pickle.dumps(study))).decode()


def _open_study(text: str) -> "Study":
    try:
        study: Study = pickle.loads(zlib.decompress(base64.b64decode(text)))  # noqa: S301 - it stands in the Job, beside the code to run
    except ModuleNotFoundError as error:
        raise TrainingError(
            f"this trial needs the package {error.name} where its worker runs: install optuna there, "
            "in the version of the client"
        ) from error
    study.sampler.reseed_rng()  # else each trial would draw the same numbers
    return study


def prepare_trial(
    function: Callable[..., Any], training: Training, text: str, parameters: str
) -> Callable[[], dict[str, Any]]:
    """The call of a trial: its objective as `value`, and why it `ended` before its last epoch.

    A function of a study takes the trial, one of a grid the `parameters`.
    """
    judge = TrialJudge(training, TrialTerms(**json.loads(text)))
    run_of(training).judge_with(judge)
    if judge.trial is None:
        call = partial(function, **call_arguments(function, training, parameters))
    else:
        call = partial(judge.call, function)
    return lambda: judge.result(call())


class TrialJudge:
    """Says at each boundary of worker 0 whether the trial ends there, and why."""

    def __init__(self, training: Training, terms: TrialTerms) -> None:
        self._terms, self._training = terms, training
        self.trial = _join_trial(terms, training.rank) if terms.study else None
        self._longest_s = 0.0
        self.ended = ""

    def __call__(self, epoch: int, metrics: Mapping[str, float], epoch_s: float) -> bool:
        """Whether the trial ends after this epoch, which has logged these figures."""
        self._longest_s = max(self._longest_s, epoch_s)
        if self._is_pruned(epoch, metrics):
            self.ended = f"pruned after epoch {epoch}"
        elif time.time() + EPOCH_MARGIN * self._longest_s + LEAVING_S > self._terms.until:
            self.ended = f"out of time after epoch {epoch}"
        if self.ended:
            run_of(self._training).note_judged()
        return bool(self.ended)

    def call(self, function: Callable[..., Any]) -> Any:
        """The function's objective; of one that raises TrialPruned, the value that it reported last."""
        from optuna import TrialPruned

        assert self.trial is not None  # noqa: S101 - of a study
        try:
            return function(self._training, self.trial)
        except TrialPruned:
            self.ended = self.ended or f"pruned after epoch {self._training.epoch}"
            run_of(self._training).note_judged()
            reported = _reported(self.trial)
            return reported[max(reported)] if reported else math.nan

    def result(self, value: Any) -> dict[str, Any]:
        """The result of the trial's job; TrainingError where the function returned no number."""
        try:
            number = float(value)
        except (TypeError, ValueError):
            raise TrainingError(
                f"the trial returned {value!r:.60}: return its objective, one number"
            ) from None
        objective = number if math.isfinite(number) else None
        return {VALUE: objective, **({ENDED: self.ended} if self.ended else {})}

    def _is_pruned(self, epoch: int, metrics: Mapping[str, float]) -> bool:
        trial = self.trial
        if trial is None or not metrics:
            return False
        value = self._objective(metrics)
        if value is None:
            return False
        try:
            if epoch not in _reported(trial):
                trial.report(value, epoch)
            return bool(trial.should_prune())
        except Exception as error:  # noqa: BLE001 - a storage that is away; the training goes on
            say(f"the study does not answer ({error}): the trial goes on")
            return False

    def _objective(self, metrics: Mapping[str, float]) -> float | None:
        """The figure that is the objective; TrainingError where it cannot be told."""
        name = self._terms.metric or (next(iter(metrics)) if len(metrics) == 1 else "")
        if name in metrics:
            return metrics[name]
        logged = ", ".join(sorted(metrics))
        if self._terms.metric:
            raise TrainingError(f"metric={name!r} was not logged in this epoch; logged: {logged}")
        raise TrainingError(
            f"which figure is the objective: {logged}? Name it: laxity.sweep(metric=...)"
        )


def _reported(trial: "Trial") -> Mapping[int, float]:
    values: Mapping[int, float] = trial.storage.get_trial(trial._trial_id).intermediate_values  # noqa: SLF001 - Optuna has no other way
    return values


def _join_trial(terms: TrialTerms, rank: int) -> "Trial":
    """The study's trial, as an object that suggests and reports."""
    study = _open_study(terms.study)
    from optuna.trial import Trial

    class TrialFollower(Trial):  # type: ignore[misc]
        """The trial in workers 1 and up: they take what worker 0 was suggested, and report nothing."""

        def _suggest(self, name: str, distribution: Any) -> Any:
            until = time.monotonic() + KNOWN_S
            while time.monotonic() < until:
                known = self.storage.get_trial(self._trial_id).params
                if name in known:
                    return known[name]
                time.sleep(LOOK_S)
            raise TrainingError(f"worker 0 has suggested no {name!r} to the trial")

        def report(self, value: float, step: int) -> None:
            pass

        def should_prune(self) -> bool:
            return False

    trial_id = study.get_trials(deepcopy=False)[terms.number]._trial_id  # noqa: SLF001 - the same
    return (TrialFollower if rank else Trial)(study, trial_id)
