"""A machine for each test, whose workers end with it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from laxity_k8s.local import stop_workers
from tests.acting.machine import Machine


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path)
    yield made
    made.api.close()
    stop_workers(tmp_path)
