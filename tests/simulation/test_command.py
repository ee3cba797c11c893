"""`laxity simulate` for scripts."""

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from laxity_scheduler.simulate.commands import instant, register
from tests.simulation.jobs import SAMPLES

PHILLY = str(SAMPLES / "philly" / "philly.csv")
ITP = str(SAMPLES / "itp" / "195job.csv")
NAMES = [
    "jobs",
    "finished",
    "refused",
    "deadline_met_ratio",
    "deadline_bound",
    "avg_jct_s",
    "avg_wait_s",
    "makespan_s",
    "gpu_utilisation",
    "preemptions",
    "resizes",
    "promises",
    "promises_broken",
    "wall_s",
    "jobs_per_s",
]


def called(*words: str) -> tuple[int, str]:
    app = typer.Typer()
    register(app)
    result = CliRunner().invoke(app, ["simulate", *words])
    return result.exit_code, result.output


def test_one_run_prints_one_json_object_with_all_its_figures() -> None:
    code, text = called(
        "--policy",
        "sjf",
        "--trace",
        PHILLY,
        "--format",
        "philly",
        "--nodes",
        "8",
        "--pooled",
        "--json",
    )
    figures = json.loads(text)
    assert code == 0
    assert set(NAMES) <= set(figures)
    assert (figures["jobs"], figures["deadline_met_ratio"]) == (271, None)


def test_tables_that_lie_beside_a_trace_are_found() -> None:
    code, text = called(
        "--policy",
        "elasticflow",
        "--trace",
        ITP,
        "--nodes",
        "16",
        "--pooled",
        "--cost-model",
        "elasticflow",
        "--json",
    )
    assert code == 0
    assert json.loads(text)["deadline_met_ratio"] > 0.749


def test_a_sweep_gives_every_run_and_its_summary() -> None:
    code, text = called(
        "--policy",
        "sjf,fifo",
        "--trace",
        PHILLY,
        "--nodes",
        "8",
        "--pooled",
        "--json",
        "--error",
        "0.2",
        "--seeds",
        "2",
        "--processes",
        "1",
    )
    found = json.loads(text)
    assert code == 0
    assert len(found["runs"]) == 4
    assert [one["runs"] for one in found["summary"]] == [2, 2]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        pytest.param(["--policy", "best"], "unknown policy 'best'", id="policy"),
        pytest.param(["--policy", "sjf", "--trace", "none.csv"], "none.csv", id="trace"),
        pytest.param(
            ["--policy", "sjf", "--admission", "dear"], "admission is none", id="admission"
        ),
        pytest.param(["--policy", "sjf", "--from", "soon"], "neither a number", id="instant"),
        pytest.param(["--policy", "sjf", "--cost-model", "odd"], "unknown cost model", id="costs"),
    ],
)
def test_what_cannot_be_run_is_said_in_one_line(words: list[str], says: str) -> None:
    given = words if "--trace" in words else [*words, "--trace", PHILLY]
    code, text = called(*given, "--format", "philly")
    assert code == 2
    assert says in text
    assert "Traceback" not in text


def test_an_instant_is_a_number_of_seconds_or_a_date_in_utc() -> None:
    assert instant("12.5") == 12.5
    assert instant("2017-10-01") == 1506816000.0
    assert Path(PHILLY).is_file()
