"""A study of Optuna and a grid as sources of trials: what is kept, and what cannot be meant."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import laxity
from laxity import QoSError, Training
from laxity.sweeps.trials import GridTrials, SweepRecord, Trials

optuna = pytest.importorskip("optuna")

from laxity.sweeps.optuna_study import StudyTrials  # noqa: E402 - it needs Optuna

Study = Any
NOW_OR_LATER = 4e9  # a deadline that has not passed


@pytest.fixture(autouse=True)
def _own_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LAXITY_HOME", str(tmp_path))
    optuna.logging.set_verbosity(optuna.logging.ERROR)


def trials_of(study: Study, **changes: Any) -> StudyTrials:
    fields = {"title": "train", "epochs": 10, "metric": "", "direction": None, **changes}
    return StudyTrials(study, **fields)


def stored(tmp_path: Path, **options: Any) -> Study:
    return optuna.create_study(storage=f"sqlite:///{tmp_path}/study.db", study_name="s", **options)


def suggest(trials: StudyTrials, number: int, x: float = 0.5) -> None:
    """As a worker does."""
    trial_id = trials.study.get_trials()[number]._trial_id
    distribution = optuna.distributions.FloatDistribution(0.0, 1.0)
    trials.study._storage.set_trial_param(trial_id, "x", x, distribution)


def begin(trials: Trials) -> laxity.sweeps.trials.SweepTrial:
    trial = trials.ask()
    assert trial is not None
    trials.note_job(trial, f"default/job-{trial.number}")
    return trial


def train_point(training: Training, alpha: float, depth: int = 2) -> float:
    return alpha * depth


def test_first_trial_of_a_study_goes_alone(tmp_path: Path) -> None:
    trials = trials_of(stored(tmp_path))
    begin(trials)
    alone = trials.ask()
    suggest(trials, 0)
    second = trials.ask()
    assert alone is None
    assert second is not None
    assert set(second.parameters) == {"x"}


def test_ended_trials_are_told_with_value_length_and_reason(tmp_path: Path) -> None:
    from dataclasses import replace

    trials = trials_of(stored(tmp_path, direction="maximize"))
    first = begin(trials)
    suggest(trials, 0)
    second = begin(trials)
    trials.study._storage.set_trial_intermediate_value(
        trials.study.get_trials()[1]._trial_id, 4, 0.3
    )

    trials.tell(replace(first, outcome="complete", value=0.9))
    trials.tell(replace(second, outcome="pruned", note="pruned after epoch 4"))

    rows = trials.begun()
    assert [(row.outcome, row.value, row.share, row.note) for row in rows] == [
        ("complete", 0.9, 1.0, ""),
        ("pruned", 0.3, 0.4, "pruned after epoch 4"),
    ]
    assert trials.study.best_value == 0.9


def test_sampler_that_has_tried_all_ends_the_sweep(tmp_path: Path) -> None:
    from dataclasses import replace

    trials = trials_of(stored(tmp_path, sampler=optuna.samplers.GridSampler({"x": [0.0, 1.0]})))
    exhausted = []
    for _ in range(2):
        trial = begin(trials)
        suggest(trials, trial.number)
        trials.tell(replace(trial, outcome="complete", value=0.5))
        exhausted.append(trials.is_exhausted)
    assert exhausted == [False, True]
    assert [row.outcome for row in trials.begun()] == ["complete", "complete"]


def test_study_in_memory_is_kept_in_a_file_and_given_back(tmp_path: Path) -> None:
    from dataclasses import replace

    study = optuna.create_study(direction="maximize")
    trials = trials_of(study)
    trials.write_record(SweepRecord("u", "8h", NOW_OR_LATER))
    trials.tell(replace(begin(trials), outcome="complete", value=0.7))

    trials.close()

    assert (tmp_path / "sweeps" / "train.journal").exists()
    assert study.best_value == 0.7


def test_study_in_memory_goes_on_until_its_sweep_is_over() -> None:
    first = trials_of(optuna.create_study())
    first.write_record(record := SweepRecord("u", "8h", NOW_OR_LATER))
    begin(first)

    again = trials_of(optuna.create_study())
    goes_on = (again.name, again.read_record(), [row.number for row in again.begun()])
    again.write_record(SweepRecord("u", "8h", NOW_OR_LATER, is_over=True))
    new = trials_of(optuna.create_study())

    assert goes_on == ("train-1", record, [0])
    assert (new.name, new.read_record(), list(new.begun())) == ("train-2", None, [])


def test_trials_of_others_are_not_those_of_the_sweep(tmp_path: Path) -> None:
    study = stored(tmp_path)
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=3)
    study.ask()
    trials = trials_of(study)
    trials.write_record(SweepRecord("u", "8h", NOW_OR_LATER, first=trials.count_all()))
    study.ask()
    begin(trials)
    assert [row.number for row in trials.begun()] == [5]


def test_grid_goes_on_under_its_record_and_no_other_grid_does() -> None:
    grid: dict[str, list[float]] = {"alpha": [1.0, 2.0], "depth": [1, 3]}
    trials = GridTrials("train", "minimize", grid, train_point)
    trials.write_record(record := SweepRecord("u", "8h", NOW_OR_LATER))

    again = GridTrials("train", "minimize", grid, train_point)
    other = GridTrials("train", "minimize", {"alpha": [1.0]}, train_point)

    points = [trial.parameters for trial in iter(again.ask, None)]
    assert len(points) == 4
    assert points[:3] == [
        {"alpha": 1.0, "depth": 1},
        {"alpha": 1.0, "depth": 3},
        {"alpha": 2.0, "depth": 1},
    ]
    assert again.read_record() == record
    assert other.read_record() is None


def own_pruner(tmp_path: Path) -> Study:
    """Of a class that is written into the script."""
    import __main__

    own = type("OwnPruner", (optuna.pruners.NopPruner,), {"__module__": "__main__"})
    vars(__main__)["OwnPruner"] = own
    return stored(tmp_path, pruner=own())


def with_password(tmp_path: Path) -> Study:
    study = stored(tmp_path)
    study._storage._backend.url = "postgresql://me:secret@db/studies"
    return study


@pytest.mark.parametrize(
    ("make", "changes", "sentence"),
    [
        pytest.param(
            lambda path: stored(path, direction="minimize"),
            {"direction": "maximize"},
            "study 's' is to minimize, and 'maximize' is asked for",
            id="another direction",
        ),
        pytest.param(
            lambda path: stored(path, directions=["minimize", "maximize"]),
            {},
            "2 objectives; a sweep has one",
            id="two objectives",
        ),
        pytest.param(own_pruner, {}, "OwnPruner stands in the script itself", id="own pruner"),
        pytest.param(with_password, {}, "holds a password", id="password"),
    ],
)
def test_study_that_workers_cannot_use_is_named(
    make: Callable[[Path], Study], changes: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    study = make(tmp_path)
    with pytest.raises(QoSError, match=sentence):
        trials_of(study, **changes)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        pytest.param({"grid": {}}, "0 trials: expected 1 to 1000", id="empty grid"),
        pytest.param({"grid": {"alpha": 0.1}}, "is no list of values", id="no list"),
        pytest.param({"grid": {"alpha": list(range(2000))}}, "2000 trials", id="large grid"),
        pytest.param({"grid": {"alpha": [1.0], "beta": [1]}}, "'beta'", id="unknown parameter"),
        pytest.param(
            {"grid": {"alpha": [1.0], "depth": ["two"]}}, "depth = 'two'", id="wrong type"
        ),
        pytest.param(
            {"grid": {"alpha": [1.0]}, "trials": 4}, "leave this out", id="trials of grid"
        ),
        pytest.param({"study": True}, "trials: is missing", id="no number"),
        pytest.param({"study": True, "trials": 10_000}, "10000 trials", id="too many"),
        pytest.param({}, "either an Optuna study or a grid", id="neither"),
        pytest.param({"study": True, "grid": {"alpha": [1.0]}}, "either", id="both"),
        pytest.param({"grid": {"alpha": [1.0]}, "direction": "up"}, "neither minimize", id="up"),
        pytest.param({"grid": {"alpha": [1.0]}, "deadline": "soon"}, "soon", id="deadline"),
        pytest.param(
            {"grid": {"alpha": [1.0]}, "deadline": "2020-01-01T00:00:00Z"}, "passed", id="past"
        ),
        pytest.param({"grid": {"alpha": [1.0]}, "deadline": None}, "is missing", id="none"),
        pytest.param({"grid": {"alpha": [1.0]}, "epoch": 3}, "no such option", id="option"),
    ],
)
def test_wrong_declaration_is_one_sentence(options: dict[str, Any], sentence: str) -> None:
    study = optuna.create_study() if options.pop("study", False) else None
    options.setdefault("deadline", "1h")
    with pytest.raises(QoSError, match=sentence):
        laxity.sweep(study, train_point, **options)
