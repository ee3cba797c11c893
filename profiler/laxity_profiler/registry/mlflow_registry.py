"""Fitted predictors in MLflow's model registry: one registered model per model key, one of overheads.

A version is made only if the fit changed, or the page of laxity that serves it: it carries digests
of both as tags, and is looked for before another is made, so a refit that died half-way is finished
by the next one and nothing is there twice. A page imports laxity, so one of an older laxity may not
load in a newer one; the next refit makes a version that does. The alias `champion` names the newest. What a fit was trained on stands in the run that
the version comes from, its errors as metrics.
"""

import json
import tempfile
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from laxity.worker.mlflow_tracking import write_ahead
from laxity_profiler.registry.entry import Column, RegistryEntry, own_version
from laxity_profiler.registry.mlflow_errors import SQLITE, translate_mlflow_errors

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion

EXPERIMENT: Final = "laxity-predictors"
ALIAS: Final = "champion"
SHOWN_AS_TRAINING: Final = ("mlflow.experimentKind", "custom_model_development")
TAG_DIGEST: Final = "laxity.digest"
TAG_PAGE: Final = "laxity.page"
TAG_PREDICTS: Final = "laxity.predicts"  # not `laxity.model`: these are no trainings


@dataclass(frozen=True, slots=True)
class Published:
    """A version of a registered model; `is_new` if this call made it."""

    name: str
    version: str
    is_new: bool


class Registry:
    """The registry of one MLflow. Calls raise MlflowAwayError where MLflow fails."""

    def __init__(self, tracking_uri: str) -> None:
        self.uri = tracking_uri

    @cached_property
    def client(self) -> "MlflowClient":
        with translate_mlflow_errors(self.uri):
            from mlflow import MlflowClient

            write_ahead(self.uri)
            return MlflowClient(tracking_uri=self.uri)

    @cached_property
    def experiment(self) -> str:
        """The experiment of predictors and their pictures, made if it is not there."""
        with translate_mlflow_errors(self.uri):
            experiment = self.client.get_experiment_by_name(EXPERIMENT)
            if experiment is not None:
                return str(experiment.experiment_id)
            made = self.client.create_experiment(EXPERIMENT, _artifacts_beside(self.uri))
            self.client.set_experiment_tag(made, *SHOWN_AS_TRAINING)
            return str(made)

    def publish(self, entry: RegistryEntry) -> Published:
        """The version of this fit, made if it is not there; the alias points to it."""
        with translate_mlflow_errors(self.uri):
            self._ensure_registered(entry)
            found_version = self.newest_version(entry.name, _has_digests(entry))
            version = found_version or self._create_version(entry)
            if found_version is None or not self._is_champion(entry.name, version):
                self.client.set_registered_model_alias(entry.name, ALIAS, version)
            return Published(entry.name, version, is_new=found_version is None)

    def _ensure_registered(self, entry: RegistryEntry) -> None:
        from mlflow.exceptions import MlflowException

        try:
            self.client.get_registered_model(entry.name)
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            tags = {TAG_PREDICTS: entry.predicts}
            self.client.create_registered_model(entry.name, tags=tags, description=entry.about)

    def newest_version(self, name: str, condition: str) -> str | None:
        """The newest version of this model that a search by this condition finds."""
        versions = self.client.search_model_versions(f"name = '{name}' AND {condition}")
        return max((str(there.version) for there in versions), key=int, default=None)

    def _is_champion(self, name: str, version: str) -> bool:
        registered = self.client.get_registered_model(name)
        return str(registered.aliases.get(ALIAS, "")) == version

    def _create_version(self, entry: RegistryEntry) -> str:
        """Run, model and version, in this order: what counts comes last."""
        from mlflow.entities import Metric, Param

        client, now_ms = self.client, round(1000 * time.time())
        tags = {**_digest_tags(entry), TAG_PREDICTS: entry.predicts}
        self._drop_unfinished(entry)
        run = client.create_run(self.experiment, tags=tags, run_name=entry.name)
        run_id = str(run.info.run_id)
        model = client.create_logged_model(
            self.experiment, "predictor", run_id, tags, dict(entry.params), "predictor"
        )
        with tempfile.TemporaryDirectory(prefix="laxity-model-") as folder:
            save_model(entry, Path(folder) / "model")
            client.log_model_artifacts(model.model_id, str(Path(folder) / "model"))
        client.finalize_logged_model(model.model_id, "READY")
        metrics = [
            Metric(name, value, now_ms, 0, model_id=model.model_id, run_id=run_id)
            for name, value in entry.metrics.items()
        ]
        params = [Param(name, value) for name, value in entry.params.items()]
        client.log_batch(run_id, metrics=metrics, params=params)
        client.set_terminated(run_id)
        made: ModelVersion = client.create_model_version(
            entry.name,
            model.artifact_location,
            run_id,
            tags | dict(entry.params),
            description=entry.description,
            model_id=model.model_id,
        )
        return str(made.version)

    def _drop_unfinished(self, entry: RegistryEntry) -> None:
        """Runs of a refit that died before it came to the version."""
        for run in self.client.search_runs([self.experiment], _has_digests(entry)):
            self.client.delete_run(run.info.run_id)


def save_model(entry: RegistryEntry, folder: Path) -> None:
    """The fit as an MLflow model in a folder."""
    from mlflow import pyfunc
    from mlflow.models import ModelSignature

    signature = ModelSignature(_column_schema(entry.inputs), _column_schema(entry.outputs))
    with tempfile.TemporaryDirectory(prefix="laxity-fit-") as aside, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # MLflow would like an example of the input beside it
        fit = Path(aside) / "fit.json"
        fit.write_text(json.dumps(entry.fit), encoding="utf-8")
        pyfunc.save_model(
            path=str(folder),
            python_model=str(_page_path(entry)),
            artifacts={"fit": str(fit)},
            signature=signature,
            pip_requirements=[f"laxity=={own_version()}", "pandas"],
        )


def _page_path(entry: RegistryEntry) -> Path:
    return Path(__file__).with_name(entry.served)


def _digest_tags(entry: RegistryEntry) -> dict[str, str]:
    """Tags of the fit and of the page that serves it."""
    page = sha256(_page_path(entry).read_bytes()).hexdigest()[:12]
    return {TAG_DIGEST: entry.digest, TAG_PAGE: page}


def _has_digests(entry: RegistryEntry) -> str:
    """The condition of a search for runs or versions with both."""
    return " AND ".join(f"tags.`{tag}` = '{value}'" for tag, value in _digest_tags(entry).items())


def _column_schema(columns: Sequence[Column]) -> Any:
    from mlflow.types import ColSpec, Schema

    return Schema(
        [ColSpec(column.kind, column.name, required=column.required) for column in columns]
    )


def _artifacts_beside(uri: str) -> str | None:
    """Beside a local SQLite store; elsewhere the server decides."""
    if not uri.startswith(SQLITE):
        return None
    return (Path(uri.removeprefix(SQLITE)).resolve().parent / "mlartifacts").as_uri()
