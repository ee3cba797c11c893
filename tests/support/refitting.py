"""A store with runs and a real MLflow beside it, and the command that refits them."""

from pathlib import Path
from typing import Any

import typer
from typer.testing import CliRunner, Result

from laxity_profiler.cli.commands import register
from laxity_profiler.learning.learner import Learner
from laxity_profiler.registry.refit import RefitResult, refit
from tests.support.mlflow_store import copy_store
from tests.support.runs import START_AT, history_in, trained, workload


class Place:
    """A store with two models' runs and finished jobs, and a real MLflow store beside it."""

    def __init__(self, folder: Path, blank: Path) -> None:
        self.folder = folder
        self.uri = copy_store(blank, folder)
        self.history = history_in(folder)
        for run in range(6):
            pace = 1.0 + 0.02 * run
            trained(self.history, f"a{run}", "mlp", epoch_s=[pace] * 8, width=1 + run % 2)
            trained(self.history, f"b{run}", "it's/2", epoch_s=[9.0 * pace] * 8, batch_size=32)
        learner = Learner(self.history)
        predictor, what = learner.predictor(), workload("mlp", epochs=20)
        for run in range(4):
            said = predictor.epoch_time(what, 1)
            learner.note_prediction(
                f"j{run}", what, stage="start", at=0.0, estimate=said, version=predictor.version
            )
            learner.observe_finish(f"j{run}", at=said.p50_s * (0.97 + 0.02 * run))

    def stopped(self, *resume_s: float, model: str = "mlp", after: int = 0) -> None:
        """Starts of a model that took so long, and stops that took a fifth of it."""
        for number, seconds in enumerate(resume_s, after):
            uid, what = f"{model}{number}", workload(model)
            for kind, took_s in (("resume", seconds), ("suspend", seconds / 5)):
                self.history.observe_stop(
                    uid,
                    what,
                    kind=kind,
                    workers=1 + number % 2,
                    seconds=took_s,
                    at=START_AT + number,
                )

    def refit(self) -> RefitResult:
        return refit(self.history.engine, self.uri, say=lambda _: None)

    @property
    def client(self) -> Any:
        from mlflow import MlflowClient

        return MlflowClient(tracking_uri=self.uri)

    def versions(self, name: str) -> list[Any]:
        found = self.client.search_model_versions(f"name = '{name}'")
        return sorted(found, key=lambda version: int(version.version))


def app() -> typer.Typer:
    found = typer.Typer()
    found.callback()(lambda: None)
    register(found)
    return found


def command(place: Place, *words: str) -> Result:
    env = {"LAXITY_HOME": str(place.folder), "MLFLOW_TRACKING_URI": "", "COLUMNS": "200"}
    return CliRunner().invoke(app(), ["refit", *words], env=env)
