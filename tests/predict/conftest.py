"""Stores that were refitted."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.refitting import Place


@pytest.fixture(scope="module")
def place(blank_mlflow: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    place = Place(tmp_path_factory.mktemp("refit"), blank_mlflow)
    place.refit()
    yield place
    place.history.engine.dispose()
