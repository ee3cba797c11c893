"""What documents and notebook say of predictions is what the bench prints, not what was typed."""

import json
import os
import re
from pathlib import Path

import pytest

from benchmarks.__main__ import benches
from tests.support.command_line import invoke

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs/prediction.md"
FIGURES = ROOT / "notebooks/figures"
TRACES = os.environ.get("LAXITY_TRACES", "")
needs_tables = pytest.mark.skipif(not TRACES, reason="LAXITY_TRACES is not set")


def block() -> str:
    found = re.search(
        r"<!-- bench prediction: begin -->\n(.*?)\n<!-- bench prediction: end -->",
        DOCUMENT.read_text(),
        re.DOTALL,
    )
    assert found
    return found.group(1)


def bench(*words: str) -> str:
    tables = str(Path(TRACES) / "elasticflow")
    return invoke(["prediction", "--tables", tables, *words], benches).stdout


def test_the_document_shows_the_figures_that_the_notebook_reads() -> None:
    figures = json.loads((FIGURES / "prediction.json").read_text())

    for name, figure in figures.items():
        value = figure["value"]
        shown = f"{value:.4f}" if isinstance(value, float) else value
        assert f"| {name} | {shown} | {figure['unit']} |" in block()


def test_the_document_names_every_model_that_was_judged() -> None:
    tables = {line.split(",")[0] for line in (FIGURES / "prediction.csv").read_text().split()[1:]}

    assert len(tables) == 13
    assert all(f"| {table} |" in block() for table in tables)


@needs_tables
def test_the_document_holds_what_the_bench_prints_now() -> None:
    assert block().split() == bench("--markdown").split()


@needs_tables
def test_the_notebook_reads_what_the_bench_writes_now(tmp_path: Path) -> None:
    said = json.loads(bench("--json", "--points", str(tmp_path / "points.csv")))

    kept = json.loads((FIGURES / "prediction.json").read_text())
    assert {name: figure["unit"] for name, figure in said.items()} == {
        name: figure["unit"] for name, figure in kept.items()
    }
    for name, figure in said.items():
        assert figure["value"] == kept[name]["value"] or figure["value"] == pytest.approx(
            kept[name]["value"], rel=1e-9
        )
    assert (tmp_path / "points.csv").read_text() == (FIGURES / "prediction.csv").read_text()


def test_the_prose_names_the_worst_as_the_figures_have_them() -> None:
    lines = [line.strip("| ").split(" | ") for line in block().splitlines() if "_T4/" in line]
    rows = {cells[0]: cells for cells in lines if len(cells) == 8}
    prose = " ".join(DOCUMENT.read_text().split())
    off = [float(rows[f"throughputs_T4/{model}"][7].split()[0]) for model in ("cifar10", "ncf")]
    (worst,) = rows["throughputs_T4/cifar10"][5].split()[:1]

    assert rows["throughputs_T4/cifar10"][5].endswith("x16")
    assert f"16 GPUs come out {int(worst)} % too slow" in prose
    assert f"still off by {off[0]:.0f} and {off[1]:.0f} %" in prose
    assert sum(float(cells[3].split()[0]) >= 10.0 for cells in rows.values()) == 2
