"""`laxity bench chains`: its figures and intervals, and what it says of bad input."""

import json
from pathlib import Path

import numpy as np
import pytest

from laxity_lab.batch_queue.baselines import METHODS
from laxity_lab.batch_queue.batch_cluster import open_cluster
from laxity_lab.batch_queue.commands import number_text, register
from laxity_lab.batch_queue.intervals import bootstrap_interval, draw_blocks
from laxity_lab.batch_queue.log_formats import READERS
from laxity_lab.batch_queue.pair_bench import (
    ChainsResult,
    compare_waits,
    method_figures,
    run_figures,
)
from laxity_lab.batch_queue.queue_log import BatchJob, QueueLog
from laxity_scheduler.chains import model_kinds
from laxity_scheduler.chains.choices import LOG_FORMATS, METHODS_WITHOUT_MODEL, MODELS
from tests.chains.busy_log import DAY_S, HOUR_S, as_swf, busy_log
from tests.support.command_line import invoke


def run_bench(*words: str) -> tuple[int, str, str]:
    result = invoke(["bench", "chains", *words], register)
    text = str(result.exception) if result.exception else ""
    return getattr(result.exception, "code", result.exit_code), result.stdout, text or result.stderr


@pytest.fixture(name="log_file")
def write_log(tmp_path: Path) -> Path:
    path = tmp_path / "busy.swf"
    path.write_text(as_swf(busy_log(days=12), nodes=8))
    return path


def test_json_has_every_figure_of_every_method_with_the_reactive_baseline(log_file: Path) -> None:
    code, out, _ = run_bench("--trace", str(log_file), "--from", "0", "--probes", "3", "--json")
    figures = json.loads(out)
    assert (code, set(figures)) == (0, {*METHODS, "run"})
    for method in METHODS:
        assert set(figures[method]) >= {
            "interruption_h",
            "interruption_vs_reactive",
            "zero_share",
            "overlap_h",
            "overlap_node_h",
        }
        assert set(figures[method]["zero_share"]) == {"value", "unit", "baseline", "low", "high"}
        reactive = figures["reactive"]["interruption_h"]["value"]
        assert figures[method]["interruption_h"]["baseline"] == reactive
    assert figures["reactive"]["interruption_h"]["value"] > 0
    assert figures["average_now"]["interruption_vs_reactive"]["value"] < 0
    starts = figures["run"]["starts"]["value"]
    assert starts == 1 + (287 - 5 * 24) // 16  # the last job of the log is submitted in hour 287
    assert figures["run"]["probes"]["value"] == 3 * starts
    assert figures["run"]["nodes"]["value"] == 8  # as the file states


def test_one_method_is_measured_against_reactive(log_file: Path) -> None:
    words = ("--trace", str(log_file), "--method", "average", "--pair-nodes", "2")
    code, out, _ = run_bench(*words, "--from", "0", "--json")
    figures = json.loads(out)
    assert (code, set(figures)) == (0, {"average", "run"})
    overlap = figures["average"]["overlap_h"]["value"]
    assert figures["average"]["overlap_node_h"]["value"] == pytest.approx(2 * overlap)


def test_lines_for_people_name_the_unit_and_the_baseline(log_file: Path) -> None:
    code, out, progress = run_bench("--trace", str(log_file), "--from", "0")
    assert code == 0
    assert "average_now\n  interruption_h" in out
    assert "baseline" in out
    assert "starts" in progress


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.00"),
        (14.0 / 3_600, "0.0039"),
        (-0.05, "-0.05"),
        (2.125, "2.12"),
        (1234.5, "1,234.50"),
    ],
)
def test_seconds_are_no_zero_hours(value: float, text: str) -> None:
    assert number_text(value) == text


def test_lines_that_were_set_aside_are_named(log_file: Path) -> None:
    log_file.write_text(log_file.read_text() + "7 broken\n" + "1 2 3\n")
    _, out, progress = run_bench("--trace", str(log_file), "--from", "0", "--json")
    assert json.loads(out)["run"]["bad_lines"]["value"] == 2
    lines = 12 * 24 + 2
    assert (
        f"2 lines set aside: line {lines + 1}: 2 fields, 18 expected; line {lines + 2}: 3 fie"
        in (progress)
    )


def test_jobs_that_are_larger_than_the_cluster_are_counted(log_file: Path) -> None:
    large = "999 10 0 60 9 -1 -1 9 600 -1 1 1 1 1 1 1 -1 -1\n"
    log_file.write_text(log_file.read_text() + large)
    _, _, progress = run_bench("--trace", str(log_file), "--from", "0", "--json")
    assert "1 job larger than 8 nodes left out" in progress


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("--method best", "unknown method 'best': one of reactive, average, average_now"),
        ("--format pbs", "unknown log format 'pbs': one of mirage, swf, sacct"),
        ("--pair-nodes 9", "--pair-nodes 9: the cluster has 8 nodes"),
        ("--start full", "--start 'full': one of running, empty"),
        ("--warm-up soon", "--warm-up: 'soon' is no duration; write 90s"),
        ("--limit 48", "--limit: 48 of what? Write the unit: 48s"),
        ("--from 1000000", "no start fits: each needs 5.0 days of the log, and 0.4 are left"),
        ("--from 0 --starts 0.1 --warm-up 3000d", "no start fits: each needs 3003.0 days"),
        ("--from x", "--from is 'x', neither a number of seconds nor an ISO date"),
        ("--format mirage", "holds no job in format mirage; line 1: 3 fields"),
    ],
)
def test_bad_options_are_one_sentence(log_file: Path, words: str, problem: str) -> None:
    code, out, text = run_bench("--trace", str(log_file), *words.split())
    assert (code, out) == (2, "")
    assert problem in text


def test_too_many_starts_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "far.swf"
    path.write_text("".join(f"{n} {n}e9 0 60 1 -1 -1 1 60 1 1 1 1 1 1 1 1 1\n" for n in (0, 9)))
    code, _, text = run_bench("--trace", str(path), "--from", "0")
    assert code == 2
    assert "starts: at most 100,000; choose a larger --starts" in text


def test_missing_log_is_an_error_that_says_where_it_was_looked_for() -> None:
    code, _, text = run_bench("--trace", "nowhere.log")
    assert code == 2
    assert "no trace nowhere.log: looked in" in text


def test_names_of_options_are_those_of_the_code() -> None:
    assert (tuple(METHODS), tuple(READERS)) == (METHODS_WITHOUT_MODEL, LOG_FORMATS)
    assert tuple(model_kinds.READERS) == MODELS


def test_blocks_are_consecutive_and_cover_all_starts() -> None:
    rows = draw_blocks(20, 5, draws=400)
    assert rows.shape == (400, 20)
    steps = np.diff(rows.reshape(400, 4, 5), axis=2) % 20
    assert (steps == 1).all()
    assert set(rows.ravel().tolist()) == set(range(20))


def test_interval_of_correlated_starts_is_wider_with_longer_blocks() -> None:
    values = np.repeat(np.random.default_rng(3).normal(size=20), 10)

    def width(block: int) -> float:
        low, high = bootstrap_interval(
            lambda rows: values[rows].mean(axis=1), draw_blocks(200, block)
        )
        return high - low

    assert width(10) > 2 * width(1)


def test_figures_of_known_differences() -> None:
    hours = {"reactive": np.array([4.0, 0.0]), "late": np.array([1.0, -3.0])}
    figures = method_figures(hours, 8, 1)
    values = {name: figure["value"] for name, figure in figures["late"].items()}
    assert figures["reactive"]["zero_share"]["value"] == 0.5  # starting at the end is no wait
    assert values == {
        "interruption_h": 0.5,
        "interruption_vs_reactive": -0.75,
        "zero_share": 0.5,
        "overlap_h": 1.5,
        "overlap_node_h": 12.0,
        "low_load_interruption_h": 0.0,
        "low_load_overlap_h": 3.0,
        "medium_load_interruption_h": 1.0,
        "medium_load_overlap_h": 0.0,
    }


def test_starts_are_counted_by_the_reactive_wait() -> None:
    hours = {"reactive": np.array([0.0, 2.0, 2.1, 12.0, 12.1])}
    figures = run_figures(busy_log(), ChainsResult(hours))
    counts = [figures[f"starts_{load}_load"]["value"] for load in ("low", "medium", "heavy")]
    assert counts == [2, 2, 1]


def test_ratio_is_zero_where_reactive_never_waits() -> None:
    hours = {"reactive": np.zeros(3), "early": np.full(3, -1.0)}
    assert method_figures(hours, 1, 1)["early"]["interruption_vs_reactive"]["value"] == 0.0


def test_waits_equal_the_log_where_the_log_was_made_by_the_simulator() -> None:
    log = busy_log()
    nodes = 8
    cluster = open_cluster(log, 0.0, nodes, start="empty")
    wait_s = cluster.play_out()
    real = [
        BatchJob(
            job.id,
            job.submitted_at,
            job.submitted_at + float(wait),
            job.submitted_at + float(wait) + 9 * HOUR_S,
            job.time_limit_s,
            job.nodes,
        )
        for job, wait in zip(log.jobs, wait_s, strict=True)
    ]
    waits = compare_waits(QueueLog("made", tuple(real)), 3 * DAY_S, nodes)
    assert len(waits.real_s) == 5 * 24
    assert waits.simulated_s.tolist() == waits.real_s.tolist()
    assert waits.real_s.mean() > HOUR_S
    assert len(waits.like(1, DAY_S).real_s) == len(waits.real_s)
    assert len(waits.like(2, DAY_S).real_s) == 0
