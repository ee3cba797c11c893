"""Sweeps over real trainings, with a real service and a real study, and what is killed meanwhile."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import laxity
from laxity import TrainingFailed, names
from laxity.sweeps.result import SweepFailed, SweepResult
from tests.support.local_service import LocalService, local_service
from tests.support.programs import sweeping
from tests.support.waiting import until

optuna = pytest.importorskip("optuna")
pytestmark = pytest.mark.slow
PROGRAM = str(Path(sweeping.__file__).resolve())


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalService]:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with local_service(tmp_path_factory.mktemp("home"), slots=3) as live:
        yield live


@pytest.fixture(autouse=True)
def _this_service(monkeypatch: pytest.MonkeyPatch, live: LocalService) -> None:
    for name in (names.ENV_URL, names.ENV_TOKEN, names.ENV_HOME):
        monkeypatch.setenv(name, live.environment[name])


def sweep_digits(study: Any, **options: Any) -> SweepResult:
    fields = {"deadline": "4m", "trials": 9, "epochs": sweeping.EPOCHS, "model": "digits"}
    return laxity.sweep(study, sweeping.train_digits, **{**fields, **options})


def group_of(live: LocalService, job: str) -> dict[str, Any]:
    return live.client.group(live.client.job(job).group)


def storage_of(folder: Path) -> str:
    return f"sqlite:///{folder}/study.db"


def start_client(
    live: LocalService, folder: Path, deadline: str = "4m"
) -> "subprocess.Popen[bytes]":
    optuna.storages.get_storage(storage_of(folder))  # two that make its tables at once clash
    return live.processes.start("client", [sys.executable, PROGRAM, str(folder), deadline, "6"])


def outcomes(folder: Path) -> list[str]:
    """Of the study's trials, as anybody reads them."""
    storage = storage_of(folder)
    if "killed" not in optuna.get_all_study_names(storage):
        return []
    return [
        trial.state.name for trial in optuna.load_study(study_name="killed", storage=storage).trials
    ]


def test_sweep_is_kept_though_a_third_of_its_trials_is_slow(live: LocalService) -> None:
    study = optuna.create_study(
        direction="maximize", pruner=optuna.pruners.SuccessiveHalvingPruner()
    )

    result = sweep_digits(study)

    group = group_of(live, result.trials[0].job)
    ends = [job["finished_at"] for job in group["jobs"]]
    assert len(result.trials) == len(study.trials) == 9
    assert {trial.outcome for trial in result.trials} <= {"complete", "pruned"}
    assert result.best.share == 1.0
    assert result.best_value == study.best_value > 0.8
    assert max(ends) <= group["deadline_at"]
    assert group["state"] == "finished"


def test_grid_is_tried_without_a_study(live: LocalService) -> None:
    result = laxity.sweep(
        train=sweeping.train_point,
        grid={"alpha": [3.0, 1.0, 2.0]},
        deadline="3m",
        epochs=sweeping.EPOCHS,
        model="digits",
    )
    assert (result.best_value, dict(result.best_params)) == (1.0, {"alpha": 1.0})
    assert [trial.value for trial in result.trials] == [3.0, 1.0, 2.0]


def test_killed_client_goes_on_with_its_trials(live: LocalService, tmp_path: Path) -> None:
    first = start_client(live, tmp_path)
    until(lambda: outcomes(tmp_path).count("COMPLETE") >= 1, "a trial has ended")
    first.kill()
    first.wait()
    begun = len(outcomes(tmp_path))

    again = start_client(live, tmp_path, deadline="5m")
    assert again.wait(timeout=200) == 0, live.processes.tail("client")

    rows = json.loads((tmp_path / "rows.json").read_text())
    jobs = [live.client.job(job) for _, _, job in rows]
    assert begun < 6
    assert [outcome for _, outcome, _ in rows] == ["complete"] * 6
    assert {job.attempt for job in jobs} == {1}
    assert {job.epochs_done for job in jobs} == {sweeping.EPOCHS}
    assert group_of(live, jobs[0].id)["deadline_at"] > (jobs[0].submitted_at or 0.0) + 270.0
    assert "run already" in live.processes.tail("client", 100)


def test_sweep_outlasts_a_killed_service(live: LocalService, tmp_path: Path) -> None:
    client = start_client(live, tmp_path)
    until(lambda: outcomes(tmp_path).count("RUNNING") >= 2, "trials run")
    live.kill()

    live.start()
    assert client.wait(timeout=200) == 0, live.processes.tail("client")

    rows = json.loads((tmp_path / "rows.json").read_text())
    assert [outcome for _, outcome, _ in rows] == ["complete"] * 6


@pytest.mark.parametrize("workers", [1, 2])
def test_pruner_that_ends_all_trials_is_named(workers: int, live: LocalService) -> None:
    study = optuna.create_study(
        direction="maximize", pruner=optuna.pruners.ThresholdPruner(lower=2.0)
    )
    with pytest.raises(SweepFailed, match="the pruner has ended all 3 trials") as failed:
        sweep_digits(study, trials=3, workers=workers)
    assert {trial.note for trial in failed.value.trials} == {"pruned after epoch 1"}


def test_deadline_too_short_for_one_trial_is_refused(live: LocalService) -> None:
    with pytest.raises(SweepFailed, match=r"one trial takes .* at P90, until"):
        sweep_digits(optuna.create_study(direction="maximize"), deadline="1m", epochs=500)


def test_trials_that_all_fail_end_the_sweep_with_their_error(live: LocalService) -> None:
    study = optuna.create_study()
    with pytest.raises(TrainingFailed, match="this net cannot be built"):
        laxity.sweep(study, sweeping.fail, deadline="3m", trials=8, epochs=2, restarts=0)
    assert len(study.trials) <= 5
