"""`laxity simulate` for scripts."""

import csv
import json
import re
from dataclasses import replace
from io import StringIO
from multiprocessing import active_children
from pathlib import Path

import pytest

from laxity_profiler.estimate import Predictor
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.decision import Admit
from laxity_scheduler.plan import Plan
from laxity_scheduler.policies import srtf
from laxity_scheduler.simulate.cases import Source
from laxity_scheduler.simulate.limits import instant
from laxity_scheduler.simulate.progress_bar import CLEAR, ProgressBar
from laxity_scheduler.simulate.report import report
from laxity_scheduler.simulate.run import Setting, simulate
from laxity_scheduler.simulate.sweep import sweep
from laxity_scheduler.studies.command import register as register_study
from tests.support.command_line import invoke, run_simulate
from tests.support.simulated import SAMPLES, random_trace

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
        pytest.param("--admission priced:x", "is a positive number, not 'x'", id="kappa"),
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


HEADING = "timestamp,duration,num_gpus,gpu_time,cluster\n"


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


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def screen(out: StringIO, ticks: list[float], *, many: int = 2) -> ProgressBar:
    return ProgressBar(many, out=out, clock=lambda: ticks.pop(0))


def test_progress_rewrites_one_line_on_a_terminal_and_leaves_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    out = Terminal()
    told = screen(out, [0.0, 0.1, 65.0, 65.1], many=1)
    for ended in (1, 2, 3):
        told.count_ended(ended, 1_000)
    told.clear()
    assert (
        out.getvalue()
        == f"{CLEAR}░░░░░░░░░░░░ 2 of 1,000 jobs ended after 1m5s, about 9h35s left{CLEAR}"
    )


def test_progress_is_a_line_now_and_then_where_there_is_no_terminal() -> None:
    out = StringIO()
    told = screen(out, [0.0, 9.0, 11.0, 12.0, 22.0])
    told.finish_run({"policy": "fifo", "gpus": 64})
    for ended in (1, 2, 3, 4):
        told.count_ended(ended, 10)
    assert out.getvalue().splitlines() == [
        "[1/2] fifo 64 GPUs",
        "1 of 2 runs done, 2 of 20 jobs ended after 11s, about 1m39s left",
        "1 of 2 runs done, 4 of 20 jobs ended after 22s, about 1m28s left",
    ]


def test_a_script_that_reads_json_hears_no_progress() -> None:
    out = StringIO()
    ticks = [0.0, 11.0]
    told = ProgressBar(2, quiet=True, out=out, clock=lambda: ticks.pop(0))
    told.count_ended(1, 10)
    told.finish_run({"policy": "fifo", "gpus": 64})
    assert not out.getvalue()


@pytest.mark.slow
def test_an_interrupted_sweep_leaves_no_process_behind() -> None:
    def interrupted(_figures: object) -> None:
        raise KeyboardInterrupt

    before = set(active_children())
    source = Source(SAMPLES / "philly" / "philly.csv", "philly")
    many = [(source, Setting("fifo", 8, 8, pooled=True, seed=seed)) for seed in range(50)]
    with pytest.raises(KeyboardInterrupt):
        sweep(many, processes=2, done=interrupted)
    assert set(active_children()) == before


@pytest.mark.parametrize(
    "processes", [pytest.param(1, id="this"), pytest.param(2, id="others", marks=pytest.mark.slow)]
)
def test_a_sweep_counts_the_jobs_of_all_runs_in_this_and_in_other_processes(processes: int) -> None:
    told: list[tuple[int, int]] = []
    source = Source(SAMPLES / "philly" / "philly.csv", "philly")
    many = [(source, Setting(policy, 8, 8, pooled=True)) for policy in ("fifo", "sjf")]
    reports = sweep(many, processes=processes, ended=lambda *counts: told.append(counts))
    assert told[-1] == (sum(one["finished"] == 271 for one in reports) * 271, 271)


def studied(*words: str) -> tuple[int, str]:
    result = invoke(["study", *words], register_study)
    return result.exit_code, result.output


@pytest.mark.parametrize(
    ("words", "says"),
    [
        pytest.param("qoss", "no study 'qoss' among these; did you mean qos?", id="no study"),
        pytest.param("qos --seeds 0", "--seeds is 0: there may be", id="no seed"),
        pytest.param("qos --processes 0", "--processes is 0: there may", id="no process"),
        pytest.param("qos --where trace=99", "has all these labels; there is part=", id="no row"),
    ],
)
def test_a_study_that_makes_no_row_is_refused(tmp_path: Path, words: str, says: str) -> None:
    code, text = studied(*words.split(), "--samples", "--out", str(tmp_path))
    assert (code, says in text) == (2, True), text
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("folder", "says"),
    [
        pytest.param("none", "none, which is no folder; --samples takes", id="no folder"),
        pytest.param("", "has no trace that study ladder takes; --samples", id="empty folder"),
    ],
)
def test_a_study_without_traces_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, says: str
) -> None:
    monkeypatch.setenv("LAXITY_TRACES", str(tmp_path / folder))
    code, text = studied("ladder", "--out", str(tmp_path / "out"))
    assert (code, says in text) == (2, True), text


def test_an_instant_is_a_number_of_seconds_or_a_date_in_utc() -> None:
    assert instant("12.5") == 12.5
    assert instant("2017-10-01") == 1506816000.0
    assert Path(PHILLY).is_file()
