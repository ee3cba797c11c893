"""Histories that are closed at the end of a test, and a store that was refitted."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from laxity_profiler.history.history import History
from tests.support.refitting import Place
from tests.support.runs import OpenHistory, history_in


@pytest.fixture
def open_history() -> Iterator[OpenHistory]:
    """Opens the history of a folder, as another process would if it is open already."""
    with ExitStack() as opened:

        def open_one(folder: Path) -> History:
            history = history_in(folder)
            opened.callback(history.engine.dispose)
            return history

        yield open_one


@pytest.fixture
def history(tmp_path: Path, open_history: OpenHistory) -> History:
    return open_history(tmp_path)


@pytest.fixture(scope="module")
def place(blank_mlflow: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    place = Place(tmp_path_factory.mktemp("refit"), blank_mlflow)
    place.refit()
    yield place
    place.history.engine.dispose()
