"""`laxity simulate` for scripts."""

import csv
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from laxity_lab.simulate.report import report
from laxity_lab.simulate.run import Setting, simulate
from laxity_lab.traces.limits import instant
from laxity_profiler.estimate import Predictor
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.decision import Admit
from laxity_scheduler.plan import Plan
from laxity_scheduler.policies import srtf
from tests.support.command_line import run_simulate
from tests.support.simulated import SAMPLES, random_trace

PHILLY = str(SAMPLES / "philly" / "philly.csv")
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


def test_one_run_prints_one_json_object_with_all_its_figures() -> None:
    code, text = run_simulate(
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


def test_policies_stand_side_by_side_in_figures_that_people_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out = tmp_path / "out"
    words = ("--policy", "sjf,fifo", "--trace", PHILLY, "--format", "philly", "--nodes", "8")

    code, text = run_simulate(*words, "--pooled", "--processes", "1", "--out", str(out))

    rows = {line[:24].strip(): line[24:].split() for line in text.splitlines()}
    assert code == 0
    assert ["sjf", "fifo"] in (line.split() for line in text.splitlines())
    assert len(rows["mean wait"]) == 2
    assert all(re.fullmatch(r"(\d+[dhms]|\d\.\ds)+", cell) for cell in rows["makespan"])
    assert rows["GPU utilisation"][1::2] == ["%", "%"]
    assert text.splitlines()[-1] == f"written to {out}: see {out}/page.html"


def test_decisions_that_do_not_fit_are_counted_and_named_and_the_run_has_its_figures(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    decide = srtf.decide

    def overbooks(state: ClusterState, predictor: Predictor) -> Plan:
        plan = decide(state, predictor)
        starts = [decision for decision in plan.decisions if isinstance(decision, Admit)]
        return replace(plan, decisions=(*plan.decisions, *starts))

    monkeypatch.setattr(srtf, "decide", overbooks)
    words = ("--trace", PHILLY, "--format", "philly", "--nodes", "8", "--pooled")
    code, text = run_simulate("--policy", "srtf", *words, "--processes", "1", "--json")

    *told, figures = text.splitlines()
    dropped = json.loads(figures)["decisions_dropped"]
    assert (code, dropped > 0) == (0, True)
    assert told == [
        f"{dropped} decisions did not fit and were dropped; the log names each job once"
    ]
    assert all("all others are served" in one.message for one in caplog.records)
    assert len(caplog.records) > 0


def test_a_sweep_gives_every_run_and_its_summary() -> None:
    code, text = run_simulate(
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
    code, text = run_simulate(*given, "--format", "philly")
    assert code == 2
    assert says in text
    assert "Traceback" not in text


@pytest.mark.parametrize(
    ("words", "says"),
    [
        pytest.param("--nodes 0", "--nodes is 0: a cluster has 1 to 100,000 nodes", id="no node"),
        pytest.param("--nodes 8 --nodes -1", "--nodes is -1: a cluster", id="one size of two"),
        pytest.param("--nodes 99999999", "--nodes is 99999999: a cluster", id="endless nodes"),
        pytest.param("--gpus-per-node 0", "--gpus-per-node is 0: a node has", id="no GPU"),
        pytest.param("--error nan", "--error is nan: it is a share from 0 to 5", id="error nan"),
        pytest.param("--error -0.1", "--error is -0.1: it is a share", id="error below 0"),
        pytest.param("--error 1e308", "--error is 1e+308: it is a share", id="error too large"),
        pytest.param("--restart-cost -1", "--restart-cost is -1: it may be", id="negative cost"),
        pytest.param("--restart-cost inf", "--restart-cost is inf: it may", id="endless cost"),
        pytest.param("--epoch-s 0", "--epoch-s is 0: an epoch has 1 to", id="no epoch"),
        pytest.param("--epoch-s inf", "--epoch-s is inf: an epoch has", id="endless epoch"),
        pytest.param("--fails-s nan", "--fails-s is nan: it may be", id="failures nan"),
        pytest.param("--fails-s 3", "--fails-s is 3: a node is up for at least", id="always down"),
        pytest.param("--batch -1", "--batch is -1: a batch has", id="negative batch"),
        pytest.param("--seed -1", "--seed is -1: a seed is", id="negative seed"),
        pytest.param("--seeds 0", "--seeds is 0: there may be 1 to", id="no seed"),
        pytest.param("--seeds 99999 --nodes 1 --nodes 2", "199,998 runs: at most", id="runs"),
        pytest.param("--processes 0", "--processes is 0: there may be", id="no process"),
        pytest.param("--policy ,", "--policy has an empty name", id="empty policy"),
        pytest.param("--policy sjff", "did you mean sjf?", id="policy of another spelling"),
        pytest.param("--policy laxity", "; qos is the default", id="policy of before"),
        pytest.param("--from nan", "--from is 'nan', no instant", id="from nan"),
        pytest.param("--from 5 --until 3", "--until 3 is before --from 5", id="window backwards"),
        pytest.param("--until 2001-01-01", "none of the 271 jobs of philly.csv", id="window empty"),
        pytest.param("--format itq", "did you mean itp?", id="format of another spelling"),
        pytest.param("--out /dev/null/x", "--out /dev/null/x cannot be made", id="no folder"),
    ],
)
def test_what_makes_no_cluster_or_no_run_is_refused_by_option_and_value(
    words: str, says: str
) -> None:
    code, text = run_simulate("--policy", "sjf", "--trace", PHILLY, *words.split())
    assert (code, says in text) == (2, True), text
    assert len(text.splitlines()) == 1


def test_batches_of_several_seeds_are_one_column_a_policy_with_mean_and_interval() -> None:
    words = ("--policy", "sjf,fifo", "--trace", PHILLY, "--batch", "9", "--pooled")
    sweep = (*words, "--nodes", "1", "--seeds", "3", "--processes", "1")
    code, text = run_simulate(*sweep, "--json")
    _, table = run_simulate(*sweep)
    found = json.loads(text)
    waits = [run["avg_jct_s"] for run in found["runs"] if run["policy"] == "sjf"]
    means = {group["policy"]: group for group in found["summary"]}
    assert code == 0
    assert {name: group["runs"] for name, group in means.items()} == {"sjf": 3, "fifo": 3}
    assert means["sjf"]["avg_jct_s"] == pytest.approx(sum(waits) / 3)
    assert means["sjf"]["avg_jct_s_ci95"] > 0.0
    assert "1 node, 3 runs" in table
    assert " ± " in table


def test_a_batch_is_what_its_folder_shows(tmp_path: Path) -> None:
    words = ("--policy", "sjf", "--trace", PHILLY, "--batch", "9", "--json", "--seed", "3")
    code, _ = run_simulate(*words, "--pooled", "--out", str(tmp_path))
    jobs = list(csv.DictReader((tmp_path / "jobs.csv").read_text().splitlines()))
    (run,) = json.loads((tmp_path / "runs.json").read_text())
    assert (code, len(jobs), run["jobs"]) == (0, 9, 9)
    assert all(float(job["submitted_at"]) < 3_600.0 for job in jobs)


@pytest.mark.parametrize(
    ("policy", "refused"),
    [
        pytest.param("fifo", 0, id="an order"),
        pytest.param("srtf", 0, id="a rule"),
        pytest.param("elasticflow", 9, id="shares, with promises"),
    ],
)
def test_every_way_of_simulating_tells_of_each_job_that_ended_or_was_turned_away(
    policy: str, refused: int
) -> None:
    told: list[int] = []
    figures = report(simulate(random_trace(3, jobs=40), Setting(policy, 4, 8), ended=told.append))
    assert told == sorted(told)
    assert told[-1] == 40
    assert (figures["finished"], figures["refused"]) == (40 - refused, refused)


def test_an_instant_is_a_number_of_seconds_or_a_date_in_utc() -> None:
    assert instant("12.5") == 12.5
    assert instant("2017-10-01") == 1506816000.0
    assert Path(PHILLY).is_file()
