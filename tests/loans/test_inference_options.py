"""`laxity simulate --inference`: nodes of a fleet that are lent, and loads that cannot be read."""

import json
from pathlib import Path

import pytest

from laxity_lab.traces.trace_lookup import SAMPLES
from tests.support.command_line import run_simulate

ITP = str(SAMPLES / "itp" / "195job.csv")


def test_inference_nodes_are_lent_and_the_report_says_how_many() -> None:
    words = ("--policy", "aryl", "--trace", ITP, "--nodes", "2", "--until", "3730000", "--json")
    code, text = run_simulate(*words, "--inference", "servegen/rates.csv", "--inference-nodes", "4")
    assert code == 0
    figures = json.loads(text)
    assert figures["inference_gpus"] == 32
    assert figures["lent_gpus_mean"] > 0
    assert figures["inference_short_max_s"] <= 300.0
    assert "lent_gpus_mean" not in json.loads(run_simulate(*words)[1])


def test_a_broken_load_is_one_line_that_says_where(tmp_path: Path) -> None:
    load = tmp_path / "load.csv"
    load.write_text("model,start_s,requests_per_s\na,0,1\na,600,often\n")
    code, text = run_simulate("--policy", "aryl", "--trace", ITP, "--inference", str(load))
    assert code == 2
    assert "load.csv, line 3: requests_per_s is 'often', not a finite number" in text
    assert len(text.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        pytest.param(("--inference", "nowhere.csv"), "no trace nowhere.csv", id="no such load"),
        pytest.param(
            ("--inference", "itp/195job.csv"),
            "195job.csv: columns model, start_s, requests_per_s are missing",
            id="not a load",
        ),
        pytest.param(("--inference-nodes", "3"), "needs --inference", id="nodes without a load"),
        pytest.param(
            ("--inference", "servegen/rates.csv", "--inference-nodes", "0"), "0", id="no nodes"
        ),
        pytest.param(("--inference", "servegen/rates.csv", "--pooled"), "--pooled", id="pooled"),
    ],
)
def test_inference_that_cannot_be_simulated_is_one_line(
    words: tuple[str, ...], problem: str
) -> None:
    code, text = run_simulate("--policy", "aryl", "--trace", ITP, *words)
    assert code == 2
    assert problem in text
    assert len(text.strip().splitlines()) == 1
