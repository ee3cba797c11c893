"""`laxity bench loans`: figures by name, and jobs of the paper's kinds."""

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from laxity_lab.bench.bench_loans import (
    TRAINING,
    LoanBench,
    busiest_jobs,
    make_world,
    mean_usage,
    measure_loans,
    run_world,
)
from laxity_lab.bench_commands import register
from laxity_lab.traces.trace_lookup import SAMPLES
from laxity_lab.traces.traces import Trace, load


def sample() -> Trace:
    return load(SAMPLES / "philly" / "philly.csv", "philly")


def called(*words: str) -> tuple[int, str]:
    app = typer.Typer()
    register(app)
    result = CliRunner().invoke(app, ["bench", "loans", *words])
    return result.exit_code, result.stdout


def test_jobs_are_of_the_papers_kinds_at_the_load_asked_for() -> None:
    world = make_world(sample(), LoanBench(0, load=8.0))
    elastic = [job for job in world.jobs if len(job.widths) > 1]
    time = [sum(job.asked_gpus * job.ideal_s for job in some) for some in (elastic, world.jobs)]
    assert len(elastic) == pytest.approx(0.05 * len(world.jobs), abs=1)
    assert time[0] / time[1] == pytest.approx(0.36, abs=0.05)
    assert not {job.eligible for job in elastic} - {""}
    restricted = [job for job in world.jobs if job.eligible == TRAINING]
    assert 0.7 < len(restricted) / len(world.jobs) < 0.88
    assert world.inference_nodes == round(world.training_nodes * 520 / 443)
    half = make_world(sample(), LoanBench(0, load=4.0))
    assert half.training_nodes == pytest.approx(2 * world.training_nodes, abs=1)


def test_a_sample_of_the_jobs_is_drawn_by_its_seed() -> None:
    some = busiest_jobs(sample(), 50, seed=1)
    assert len(some.jobs) == 50
    assert some == busiest_jobs(sample(), 50, seed=1)
    assert some != busiest_jobs(sample(), 50, seed=2)
    assert some.jobs[0].submitted_at == 0.0


def test_usage_counts_training_and_inference_while_jobs_are_submitted() -> None:
    world = make_world(sample(), LoanBench(40, load=8.0))
    run = run_world(world, lends=True, scales=True)
    assert 0.42 * 520 / 963 < mean_usage(run) < 1.0


def test_a_trace_with_fewer_jobs_than_asked_for_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    class SimulatedError(Exception):
        pass

    def stop(*_: object, **__: object) -> None:
        raise SimulatedError

    monkeypatch.setattr("laxity_lab.bench.bench_loans.run_world", stop)
    told: list[str] = []
    for jobs in (10, 5_000):
        with pytest.raises(SimulatedError):
            measure_loans(sample(), LoanBench(jobs, load=8.0), told.append)
    assert len(told) == 1
    assert "jobs in its busiest 30 days: all are taken" in told[0]


@pytest.mark.slow
def test_small_bench_prints_its_figures_with_unit_and_baseline() -> None:
    code, text = called("--small", "--json")
    assert code == 0
    figures = json.loads(text)
    names = ("queueing_ratio", "jct_ratio", "usage_gain", "preempted_vs_optimum", "knapsack_gap")
    for name in names:
        assert {"value", "unit", "baseline"} <= set(figures[name])
        assert figures[name]["baseline"] is not None
    assert figures["preempted_vs_optimum"]["value"] <= 1.02
    assert 0.0 <= figures["knapsack_gap"]["value"] < 0.01
    assert figures["queueing_ratio"]["value"] > 1.0
    assert figures["inference_short_max_s"]["value"] <= 300.0


def test_a_trace_that_is_nowhere_is_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LAXITY_TRACES", str(tmp_path))
    monkeypatch.setattr("laxity_lab.traces.trace_lookup.SAMPLES", tmp_path)
    code, text = called("--json")
    assert code != 0
    assert not text
