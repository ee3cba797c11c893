"""The notebooks: run on the traces that ship, and their kept pages against their kept figures."""

import ast
import contextlib
import io
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HOME = Path(__file__).parents[2] / "notebooks"
PAGES = sorted(path.stem for path in HOME.glob("*.ipynb"))
AS_IN_A_PAGE = ("display.max_columns", 20)  # tables as Jupyter writes them
MOST_BYTES = 1_100_000  # of kept figures, in all


def cells(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((HOME / f"{name}.ipynb").read_text())["cells"]
    return found


def code(name: str) -> list[dict[str, Any]]:
    return [cell for cell in cells(name) if cell["cell_type"] == "code"]


def ran(name: str) -> Iterator[tuple[dict[str, Any], str]]:
    """Each code cell with what it prints and shows as text, run in this process."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt
    import pandas as pd

    known: dict[str, Any] = {"__name__": "page"}
    for number, cell in enumerate(code(name)):
        tree = ast.parse("".join(cell["source"]))
        said = io.StringIO()
        with contextlib.redirect_stdout(said), pd.option_context(*AS_IN_A_PAGE):
            shown = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
            exec(compile(tree, f"{name}[{number}]", "exec"), known)  # noqa: S102 - our own page
            value = None
            if isinstance(shown, ast.Expr):
                value = eval(compile(ast.Expression(shown.value), name, "eval"), known)  # noqa: S307
            text = "" if value is None else _shown(value)
        plt.close("all")
        yield cell, said.getvalue() + text


def _shown(value: Any) -> str:
    """A table as its HTML, which no window's width wraps; anything else as text."""
    return str(value._repr_html_()) if hasattr(value, "_repr_html_") else repr(value)


def kept(cell: dict[str, Any]) -> str:
    """What a cell printed and showed when the page was made."""
    texts = []
    for output in cell["outputs"]:
        if output["output_type"] == "stream":
            texts += output["text"]
        elif output["output_type"] == "execute_result":
            texts += output["data"].get("text/html", output["data"]["text/plain"])
    return "".join(texts)


def test_there_is_a_page_for_each_claim() -> None:
    assert PAGES == [
        "chains",
        "deadlines",
        "decisions",
        "learned",
        "loans",
        "pickyman",
        "prediction",
        "qos",
    ]


@pytest.fixture
def at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Jupyter starts a page, with the kept figures."""
    monkeypatch.chdir(HOME)
    monkeypatch.delenv("LAXITY_STUDY", raising=False)


@pytest.mark.slow
@pytest.mark.usefixtures("at_home")
@pytest.mark.parametrize("name", PAGES)
def test_a_page_shows_what_the_kept_figures_say(name: str) -> None:
    for cell, said in ran(name):
        assert said.split() == kept(cell).split(), "".join(cell["source"])


@pytest.mark.slow
@pytest.mark.timeout(600)  # the first of a clone compiles loops
@pytest.mark.parametrize("name", PAGES)
def test_a_page_runs_on_the_traces_that_ship(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import nbformat
    from nbclient import NotebookClient

    if name == "learned":  # trains a policy
        pytest.importorskip("torch")
    monkeypatch.setenv("LAXITY_STUDY", "samples")
    page = nbformat.read(HOME / f"{name}.ipynb", as_version=4)  # type: ignore[no-untyped-call]
    client = NotebookClient(page, timeout=500, resources={"metadata": {"path": str(HOME)}})
    client.execute()
    assert "nan +- " not in json.dumps(page)


@pytest.mark.parametrize("name", PAGES)
def test_a_page_states_its_claim_and_how_its_rows_are_made(name: str) -> None:
    first = "".join(cells(name)[0]["source"])
    assert "**Claim**" in first
    assert any(
        f in first for f in ("python -m studies", "python -m benchmarks", "laxity bench chains")
    )


@pytest.mark.parametrize("name", PAGES)
def test_a_kept_page_holds_no_error_and_no_times(name: str) -> None:
    for cell in code(name):
        assert cell["execution_count"] is None
        assert cell["metadata"] == {}
        for output in cell["outputs"]:
            assert output["output_type"] != "error"
            assert output.get("name") != "stderr"


def test_kept_figures_are_small_and_hold_no_times_of_a_machine() -> None:
    files = sorted((HOME / "figures").iterdir())
    assert sum(path.stat().st_size for path in files) < MOST_BYTES
    for path in files:
        assert not {"cpu_s", "wall_s", "jobs_per_s"} & set(
            path.read_text().replace('"', ",").split(",")
        )


def test_published_figures_are_shares() -> None:
    import csv

    with (HOME / "figures/published.csv").open() as lines:
        for row in csv.DictReader(lines):
            shares = [float(row[name]) for name in list(row)[3:] if row[name]]
            assert all(0.0 < share < 1.0 and math.isfinite(share) for share in shares)
            assert float(row["elasticflow"]) <= float(row["elastic"])
