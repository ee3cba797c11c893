"""What a trial's worker does at each epoch's end: report to the study, and end there if it says so."""

import sys
import time
from pathlib import Path
from typing import Any

import pytest

from laxity import Training
from laxity.worker.checkpoints.training_state import TrainingError
from laxity.worker.training import run_of
from laxity.worker.trial import TrialTerms, pack_study, prepare_trial

optuna = pytest.importorskip("optuna")

FOREVER = 4e9
EPOCHS = 8


@pytest.fixture
def study(tmp_path: Path) -> Any:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    pruner = optuna.pruners.ThresholdPruner(lower=0.0)
    storage = f"sqlite:///{tmp_path}/study.db"
    return optuna.create_study(storage=storage, study_name="s", pruner=pruner)


def run(
    study: Any, function: Any, tmp_path: Path, *, until: float = FOREVER, metric: str = ""
) -> tuple[dict[str, Any], Training]:
    """One trial of the study in this process."""
    number = study.ask().number
    training = Training(EPOCHS, folder=tmp_path / f"trial-{number}")
    terms = TrialTerms(until, metric, pack_study(study), number)
    result = prepare_trial(function, training, terms.to_json(), "")()
    run_of(training).finish()
    return result, training


def fall(training: Training, trial: Any) -> float:
    """Its figure is below the threshold from epoch 4 on."""
    scale = trial.suggest_float("scale", 1.0, 1.0)
    for epoch in training.epochs():
        training.log(score=scale * (3.5 - epoch))
    return training.last("score")


def rise(training: Training, trial: Any) -> float:
    scale: float = trial.suggest_float("scale", 1.0, 2.0)
    for epoch in training.epochs():
        training.log(score=scale * epoch)
    return scale


def test_trial_that_is_not_pruned_runs_to_its_end(study: Any, tmp_path: Path) -> None:
    result, training = run(study, rise, tmp_path)
    reported = study.get_trials()[0].intermediate_values
    assert result == {"value": study.get_trials()[0].params["scale"]}
    assert (training.epoch, sorted(reported)) == (EPOCHS, list(range(1, EPOCHS + 1)))


def test_pruned_trial_ends_after_its_epoch(study: Any, tmp_path: Path) -> None:
    result, training = run(study, fall, tmp_path)
    assert result == {"value": -0.5, "ended": "pruned after epoch 4"}
    assert (training.epoch, run_of(training).judged) == (4, True)


def test_trial_ends_before_an_epoch_that_would_pass_the_deadline(
    study: Any, tmp_path: Path
) -> None:
    result, training = run(study, rise, tmp_path, until=time.time() + 1.0)
    assert result["ended"] == "out of time after epoch 1"
    assert training.epoch == 1


def test_objective_that_prunes_itself_is_no_failure(study: Any, tmp_path: Path) -> None:
    def prune(training: Training, trial: Any) -> float:
        for epoch in training.epochs():
            trial.report(1.5 - epoch, epoch)
            if trial.should_prune():
                raise optuna.TrialPruned
        return 0.0

    result, training = run(study, prune, tmp_path)
    assert result == {"value": -0.5, "ended": "pruned after epoch 1"}
    assert run_of(training).judged


def test_named_figure_is_the_objective(study: Any, tmp_path: Path) -> None:
    def two(training: Training, trial: Any) -> float:
        for epoch in training.epochs():
            training.log(loss=-1.0, score=float(epoch))
        return 1.0

    result, _ = run(study, two, tmp_path, metric="score")
    assert result == {"value": 1.0}
    assert study.get_trials()[0].intermediate_values[EPOCHS] == EPOCHS


@pytest.mark.parametrize(
    ("metric", "sentence"),
    [
        pytest.param("", "which figure is the objective: loss, score", id="two figures"),
        pytest.param("accuracy", "metric='accuracy' was not logged", id="another name"),
    ],
)
def test_unclear_objective_is_an_error(
    metric: str, sentence: str, study: Any, tmp_path: Path
) -> None:
    def two(training: Training, trial: Any) -> float:
        for _ in training.epochs():
            training.log(loss=1.0, score=1.0)
        return 1.0

    with pytest.raises(TrainingError, match=sentence):
        run(study, two, tmp_path, metric=metric)


def test_trial_without_a_number_is_an_error(study: Any, tmp_path: Path) -> None:
    def nothing(training: Training, trial: Any) -> None:
        for _ in training.epochs():
            training.log(score=1.0)

    with pytest.raises(TrainingError, match="returned None: return its objective, one number"):
        run(study, nothing, tmp_path)


def test_study_that_is_away_holds_up_no_training(
    study: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def lose(training: Training, trial: Any) -> float:
        for epoch in training.epochs():
            if epoch == 2:
                trial.storage = trial.study._storage = None
            training.log(score=float(epoch))
        return 1.0

    result, _ = run(study, lose, tmp_path)
    assert result == {"value": 1.0}
    assert "the study does not answer" in capsys.readouterr().err


def test_worker_without_optuna_says_what_to_install(
    study: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = TrialTerms(FOREVER, "", pack_study(study), study.ask().number).to_json()
    for name in [name for name in sys.modules if name.partition(".")[0] == "optuna"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(TrainingError, match=r"needs the package optuna.* install optuna there"):
        prepare_trial(rise, Training(EPOCHS, folder=tmp_path), packed, "")


def test_other_workers_take_what_worker_0_was_suggested(study: Any, tmp_path: Path) -> None:
    from laxity.worker.trial import _join_trial

    number = study.ask().number
    terms = TrialTerms(FOREVER, "", pack_study(study), number)
    leader, follower = _join_trial(terms, 0), _join_trial(terms, 1)
    suggested = leader.suggest_float("x", 0.0, 1.0)
    taken = follower.suggest_float("x", 0.0, 1.0)
    assert taken == suggested
    assert not follower.should_prune()
