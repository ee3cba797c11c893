"""The traces that `laxity simulate` takes: where they are found, what they are, what is wrong."""

import json
from pathlib import Path

import pytest

from tests.support.command_line import run_simulate
from tests.support.simulated import SAMPLES

ITP = str(SAMPLES / "itp" / "195job.csv")
HEADING = "timestamp,duration,num_gpus,gpu_time,cluster\n"


def test_tables_that_lie_beside_a_trace_are_found() -> None:
    code, text = run_simulate(
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


def test_a_trace_is_also_found_among_the_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LAXITY_TRACES", raising=False)
    code, text = run_simulate(
        "--policy", "sjf", "--trace", "philly/philly.csv", "--pooled", "--json"
    )
    assert (code, json.loads(text)["jobs"]) == (0, 271)


def test_a_missing_trace_is_told_with_where_it_was_looked_for_and_what_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "spring.csv").touch()
    monkeypatch.setenv("LAXITY_TRACES", str(tmp_path))
    code, text = run_simulate("--policy", "sjf", "--trace", "mine/sprong.csv")
    assert code == 2
    assert f"looked in {Path.cwd()}, under $LAXITY_TRACES ({tmp_path}) and among the" in text
    assert "there is itp/195job.csv, mine/spring.csv, philly/philly.csv" in text
    assert "did you mean mine/spring.csv?" in text
    assert (
        "did you mean itp/195job.csv?"
        in run_simulate("--policy", "sjf", "--trace", "195job.csv")[1]
    )


def test_a_folder_is_no_trace() -> None:
    code, text = run_simulate("--policy", "sjf", "--trace", str(SAMPLES / "itp"))
    assert (code, "is a folder, not a trace; there is 195job.csv" in text) == (2, True)


def test_a_format_is_told_by_the_columns_where_the_name_says_nothing(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(HEADING + "2017-10-01 00:00:10,60,1,60,vc\n")
    assert run_simulate("--policy", "sjf", "--trace", str(path))[0] == 0
    path.write_text("a,b\n1,2\n")
    code, text = run_simulate("--policy", "sjf", "--trace", str(path))
    assert (code, "cannot be told from its name or its columns" in text) == (2, True)


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        pytest.param("", "jobs.csv has no jobs: nothing stands below its heading", id="no line"),
        pytest.param(
            "2017-10-01 00:00:10,-60,1,60,vc\n",
            "jobs.csv has no job that can be used: 1 line set aside; the first, "
            "line 2: duration is '-60', not positive",
            id="bad lines alone",
        ),
    ],
)
def test_a_trace_of_no_jobs_is_no_success(tmp_path: Path, lines: str, says: str) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(HEADING + lines)
    code, text = run_simulate("--policy", "sjf", "--trace", str(path))
    assert (code, text) == (2, f"laxity simulate: {says}\n")


def test_bad_lines_are_told_with_file_line_field_and_value(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    good = "2017-10-01 00:00:10,60,1,60,vc\n"
    path.write_text(HEADING + good + good.replace(",60,1", ",six,1"))
    code, text = run_simulate("--policy", "sjf", "--trace", str(path))
    assert code == 0
    assert "jobs.csv: 1 line set aside; the first, line 3: duration is 'six'" in text
