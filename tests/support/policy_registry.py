"""An MLflow store of a test's own, with versions of a learned policy in it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from laxity_profiler.registry.registered_files import ModelFile, register_file
from laxity_scheduler.service.settings import Settings
from tests.support.mlflow_store import copy_store

ADDRESS = "models:/widths@champion"
AWAY_TEXT = "cannot be: there is no folder"


REGISTRY = "registry"  # the folder of the test's MLflow


def make_registry(home: Path, blank_mlflow: Path) -> None:
    (home / REGISTRY).mkdir()
    copy_store(blank_mlflow, home / REGISTRY)


def store_of(home: Path) -> str:
    return f"sqlite:///{home / REGISTRY / 'mlflow.db'}"


def settings_of(home: Path, **fields: Any) -> Settings:
    given: dict[str, Any] = {"tracking_uri": store_of(home)} | fields
    return Settings(home=home, **given)


@contextmanager
def mlflow_away(home: Path) -> Iterator[None]:
    """Nobody finds the store at its address meanwhile."""
    there, gone = home / REGISTRY, home / "gone"
    there.rename(gone)
    yield
    gone.rename(there)


def add(home: Path, file: Path, *, slowdown: float) -> str:
    figures = {"slowdown": slowdown}
    model = ModelFile("widths", file, "A policy.", {"teacher": "drf"}, figures)
    return register_file(store_of(home), model).version
