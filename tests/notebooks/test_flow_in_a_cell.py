"""A deadline flow in a cell of a notebook, with a real kernel: it cannot run, and says what to do."""

from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

FLOW = """from laxity import Training, deadline_flow

@deadline_flow(deadline="2m", epochs=2, epoch_estimate="1s")
def train(training: Training) -> int:
    return len([epoch for epoch in training.epochs()])
"""


def run_cells(folder: Path, *cells: str) -> list[str]:
    """What each cell printed, showed or raised, as one text."""
    make: Any = nbformat.v4
    notebook = make.new_notebook(cells=[make.new_code_cell(cell) for cell in cells])
    kernel: dict[str, Any] = {"allow_errors": True, "kernel_name": "python3", "timeout": 120}
    resources = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, resources=resources, **kernel).execute()
    return [str(cell.outputs) for cell in notebook.cells]


@pytest.mark.slow
def test_a_flow_of_a_cell_says_how_to_write_it_to_a_file(
    tmp_path: Path, prefect_api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT_API_URL", prefect_api)

    *_, refused = run_cells(tmp_path, FLOW, "train()")

    assert "%%writefile flows.py, then from flows import train" in refused
    assert "Traceback" not in refused


@pytest.mark.slow
def test_a_flow_that_a_cell_wrote_to_a_file_trains(tmp_path: Path) -> None:
    *_, trained = run_cells(
        tmp_path, f"%%writefile flows.py\n{FLOW}", "from flows import train", "train.alone()"
    )

    assert "'text/plain': '2'" in trained
