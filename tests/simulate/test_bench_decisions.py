"""Benchmarks of decisions: their figures, what a warm decision is, and the plot of growth."""

import math
from pathlib import Path

import numpy as np
import pytest

from benchmarks import bench_scaling
from benchmarks.bench_decisions import decision_figures, decisions, later
from benchmarks.results import figure
from laxity_lab.world.crowd import EPOCHS_S, crowd, underway
from laxity_lab.world.noisy_predictor import NoisyPredictor
from laxity_scheduler.plan_check import apply_plan
from laxity_scheduler.policies.registry import find
from laxity_scheduler.simulated.change_costs import costs


def test_both_policies_have_their_own_figures_and_the_slower_one_gives_the_common_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def counted(
        name: str, *, jobs: int, nodes: int, warm: int = 40, tied: float = 0.0
    ) -> tuple[float, list[float]]:
        return (2.0, [5.0]) if name == "qos" else (3.0, [4.0])

    monkeypatch.setattr("benchmarks.bench_decisions.decisions", counted)
    figures = decision_figures(quick=True)
    kinds = ("cold_ms", "warm_p50_ms", "warm_p99_ms")
    names = [
        f"decision_{who}{kind}"
        for who in ("", "elasticflow_", "qos_", "qos_tied_")
        for kind in kinds
    ]
    assert set(names) <= set(figures)
    assert figures["decision_cold_ms"]["value"] == 3.0
    assert figures["decision_warm_p99_ms"]["value"] == 5.0
    assert all(one["baseline"] and one["ratio"] for one in figures.values())


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["elasticflow", "qos"])
def test_a_decision_is_timed_cold_and_warm(policy: str) -> None:
    cold_ms, warm_ms = decisions(policy, jobs=60, nodes=30, warm=3)
    assert cold_ms > 0.0
    assert len(warm_ms) == 3


def test_one_job_in_ten_of_a_tied_crowd_may_use_a_fifth_of_the_nodes() -> None:
    _, free = crowd(jobs=2_000, nodes=100, seed=0)
    _, state = crowd(jobs=2_000, nodes=100, seed=0, tied=0.1)
    tied = [job for job in state.jobs if job.eligible]
    assert 150 < len(tied) < 250
    assert {len(state.eligible_nodes(job) or ()) for job in tied} == {20}
    assert [job.deadline_at for job in state.jobs] == [job.deadline_at for job in free.jobs]


def test_a_warm_decision_finds_about_two_per_cent_of_the_jobs_in_another_epoch() -> None:
    truths, state = crowd(jobs=400, nodes=200, seed=0)
    beliefs = NoisyPredictor(truths, costs("live", cluster_gpus=state.total_gpus))
    state = apply_plan(find("qos").policy()(state, beliefs), state)
    state = underway(state, np.random.default_rng(0))
    assert all(job.formed == job.workers for job in state.jobs)
    shares = []
    for _ in range(20):
        after = later(state)
        pairs = zip(state.jobs, after.jobs, strict=True)
        shares.append(sum(one is not other for one, other in pairs) / len(state.jobs))
        state = after
    assert 0.01 < np.mean(shares) < 0.04
    assert all(
        state.now - (job.epoch_started_at or 0.0) < EPOCHS_S[job.workers] for job in state.jobs
    )


def test_growth_is_told_beside_n_log_n(monkeypatch: pytest.MonkeyPatch) -> None:
    def squares(policy: str, jobs: int) -> float:
        return jobs**2 / 1e4

    monkeypatch.setattr(bench_scaling, "cold_ms", squares)
    figures = bench_scaling.growth_figures((10, 100))
    assert figures["growth_rigid_10_jobs_ms"]["ratio"] == pytest.approx(1.0)
    grown = 100.0 * math.log(10) * 10 / (math.log(100) * 100)
    assert figures["growth_qos_100_jobs_ms"]["ratio"] == pytest.approx(grown)
    assert len(bench_scaling.table(figures)) == 6


def test_the_plot_of_growth_is_a_png(tmp_path: Path) -> None:
    figures = {
        f"growth_qos_{jobs}_jobs_ms": figure(jobs * 0.1, "ms", jobs * 0.2) for jobs in (10, 100)
    }
    bench_scaling.draw(figures, tmp_path / "growth.png")
    assert (tmp_path / "growth.png").read_bytes().startswith(b"\x89PNG")
