"""Model files of laxity's own form in MLflow's registry: what was trained on, errors, and an alias.

Such a file is an artifact of a run, not a model that MLflow serves: laxity alone reads it. A version
is made only if no other has the same bytes; an alias, `champion` unless another is named, is moved to
the one registered last. To roll back is to move it again.
"""

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from laxity_profiler.registry.entry import mlflow_params
from laxity_profiler.registry.mlflow_errors import check_answers, translate_mlflow_errors
from laxity_profiler.registry.mlflow_registry import ALIAS, TAG_DIGEST, Published, Registry

if TYPE_CHECKING:
    from mlflow import MlflowClient

SCHEME: Final = "models:/"
FOLDER: Final = "file"  # of a run's artifacts


class RefusedFileError(ValueError):
    """The registry has a version, and its file is not taken."""


@dataclass(frozen=True, slots=True)
class ModelFile:
    """One file for the registry. `about` is said of the registered model.

    `describe` makes the text of a version's page from its number; without it the page says what the
    version was trained on (`params`).
    """

    name: str
    path: Path
    about: str
    params: Mapping[str, object] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    alias: str = ALIAS
    describe: Callable[[str], str] | None = None


@dataclass(frozen=True, slots=True)
class RegisteredVersion:
    """One version with the figures of its run, and the aliases that name it."""

    version: str
    aliases: Sequence[str]
    metrics: Mapping[str, float]


def register_file(tracking_uri: str, file: ModelFile) -> Published:
    """The version of this file, made if it is not there. MlflowAwayError where MLflow fails."""
    check_answers(tracking_uri)
    registry = Registry(tracking_uri)
    digest = digest_of(file.path.read_bytes())
    with translate_mlflow_errors(tracking_uri):
        client = registry.client
        if not client.search_registered_models(f"name = '{file.name}'"):
            client.create_registered_model(file.name, description=file.about)
        version = registry.newest_version(file.name, f"tags.`{TAG_DIGEST}` = '{digest}'")
        is_new = version is None
        version = version or create_version(registry, file, digest)
        client.set_registered_model_alias(file.name, file.alias, version)
        return Published(file.name, version, is_new=is_new)


def create_version(registry: Registry, file: ModelFile, digest: str) -> str:
    """Run, artifact and version, in this order: what counts comes last."""
    from mlflow.entities import Metric, Param

    client, now_ms = registry.client, round(1000 * time.time())
    run = client.create_run(registry.experiment, tags={TAG_DIGEST: digest}, run_name=file.name)
    run_id = str(run.info.run_id)
    params = [Param(name, value) for name, value in mlflow_params(file.params).items()]
    metrics = [Metric(name, value, now_ms, 0) for name, value in file.metrics.items()]
    client.log_batch(run_id, metrics=metrics, params=params)
    client.log_artifact(run_id, str(file.path), FOLDER)
    client.set_terminated(run_id)
    source = f"{run.info.artifact_uri}/{FOLDER}"
    figures = {name: f"{value:.4g}" for name, value in file.metrics.items()}
    tags = {**figures, TAG_DIGEST: digest}  # the page of a model shows them in this order
    made = client.create_model_version(
        file.name, source, run_id, tags=tags, description=describe_origin(file.params)
    )
    version = str(made.version)
    if file.describe is not None:
        client.update_model_version(file.name, version, file.describe(version))
    return version


def describe_origin(params: Mapping[str, object]) -> str:
    """What a version was trained on, as a sentence for its page; figures are tags beside it."""
    origin = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in params.items())
    return f"Trained: {origin}." if origin else ""


def fetch_file(tracking_uri: str, address: str, *, most_bytes: int) -> bytes:
    """What the file at `models:/NAME@ALIAS` or `models:/NAME/VERSION` holds.

    ValueError if the address is none; MlflowAwayError where MLflow fails or has no such version;
    RefusedFileError where it has another file than was registered, or one of more bytes.
    """
    there = _version_at(tracking_uri, address)
    run_id = str(there.run_id)
    with (
        tempfile.TemporaryDirectory(prefix="laxity-model-") as folder,
        _open_client(tracking_uri) as client,
    ):
        listed = client.list_artifacts(run_id, FOLDER)
        if len(listed) != 1 or listed[0].is_dir:
            raise RefusedFileError(f"{address} holds {len(listed)} files; expected 1")
        _check_size(address, listed[0].file_size or 0, most_bytes)
        file = Path(client.download_artifacts(run_id, listed[0].path, folder))
        _check_size(address, file.stat().st_size, most_bytes)
        body = file.read_bytes()
    digest, registered = digest_of(body), there.tags.get(TAG_DIGEST)
    if registered not in (None, digest):
        message = f"{address} is damaged: its digest is {digest}, that of the version {registered}"
        raise RefusedFileError(message)
    return body


def digest_of(body: bytes) -> str:
    """By which a version is known: of the same bytes there is one only."""
    return sha256(body).hexdigest()[:12]


def _check_size(address: str, size: int, most_bytes: int) -> None:
    if size > most_bytes:
        raise RefusedFileError(f"{address} has {size} bytes; at most {most_bytes} are read")


@dataclass(frozen=True, slots=True)
class NamedVersion:
    """The number of a version, and the digest of its file as it was registered ("": by others)."""

    version: str
    digest: str


def find_version(tracking_uri: str, address: str) -> NamedVersion:
    """The version that an address names now; errors as of `fetch_file`."""
    there = _version_at(tracking_uri, address)
    return NamedVersion(str(there.version), str(there.tags.get(TAG_DIGEST, "")))


def move_alias(tracking_uri: str, name: str, alias: str, version: str) -> None:
    """Let an alias name this version. MlflowAwayError where MLflow fails or has no such version."""
    with _open_client(tracking_uri) as client:
        client.get_model_version(name, version)
        client.set_registered_model_alias(name, alias, version)


def list_versions(tracking_uri: str, name: str) -> list[RegisteredVersion]:
    """All versions, oldest first. MlflowAwayError where MLflow fails or has no such model."""
    with _open_client(tracking_uri) as client:
        aliases = client.get_registered_model(name).aliases
        versions = [
            RegisteredVersion(
                str(there.version),
                sorted(
                    alias
                    for alias, version in aliases.items()
                    if str(version) == str(there.version)
                ),
                dict(client.get_run(str(there.run_id)).data.metrics),
            )
            for there in client.search_model_versions(f"name = '{name}'")
        ]
    return sorted(versions, key=lambda each: int(each.version))


@contextmanager
def _open_client(tracking_uri: str) -> Iterator["MlflowClient"]:
    """The client of an MLflow that answers; MlflowAwayError where it fails."""
    check_answers(tracking_uri)
    client = Registry(tracking_uri).client
    with translate_mlflow_errors(tracking_uri):
        yield client


def _version_at(tracking_uri: str, address: str) -> Any:
    name, alias, version = read_address(address)
    with _open_client(tracking_uri) as client:
        if alias:
            return client.get_model_version_by_alias(name, alias)
        return client.get_model_version(name, version)


def read_address(address: str) -> tuple[str, str, str]:
    """Name, alias and version; one of the last two is empty."""
    rest = address.removeprefix(SCHEME)
    name, mark, alias = rest.partition("@")
    if not mark:
        name, mark, version = rest.rpartition("/")
        alias = ""
    else:
        version = ""
    if not (address.startswith(SCHEME) and mark and name and (alias or version)):
        raise ValueError(f"{address}: models:/NAME@ALIAS or models:/NAME/VERSION")
    return name, alias, version
