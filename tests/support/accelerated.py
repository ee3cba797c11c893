"""`accelerate_script.py` on several workers beside one process with as large a batch."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import pytest

ACCELERATE: Final = Path(__file__).parent / "programs/accelerate_script.py"
Json = dict[str, Any]


def seen_alone(folder: Path) -> Json:
    """What one process sees, without laxity; skips where the libraries are not installed."""
    if find_spec("accelerate") is None:
        pytest.skip("Accelerate is not installed")
    alone = folder / "alone"
    alone.mkdir()
    subprocess.run([sys.executable, ACCELERATE, alone], check=True)
    return read(alone / "rank-0")


def assert_one_model(alone: Json, folder: Path) -> None:
    """Two workers have seen each other, have the same weights, and the losses of one process."""
    first, second = (read(folder / f"rank-{rank}") for rank in (0, 1))
    assert (alone["processes"], first["processes"], second["processes"]) == (1, 2, 2)
    assert first == second
    assert len(alone["losses"]) == 16
    assert first["losses"] == pytest.approx(alone["losses"], rel=1e-5)


def read(path: Path) -> Json:
    found: Json = json.loads(path.read_text())
    return found
