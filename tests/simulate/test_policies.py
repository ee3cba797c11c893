"""Preemptive baselines and PickyMan's division: small cases by hand, greedy against exact."""

import itertools

import numpy as np
import pytest

from laxity_scheduler.allocation.victims import Need, Victim, cheapest_victims
from laxity_scheduler.capacity.ledger import Ledger
from laxity_scheduler.model.cluster import ClusterState, Node
from laxity_scheduler.policies.registry import REGISTRY, find
from laxity_scheduler.simulate.change_costs import CostName, costs
from laxity_scheduler.simulate.generate import Mix, generate
from laxity_scheduler.simulate.noisy_predictor import NoisyPredictor
from laxity_scheduler.simulate.run import Setting, simulate
from laxity_scheduler.simulate.throughput_tables import ThroughputTable
from laxity_scheduler.studies.pickyman_study import greedy_cost_s, least_cost_s
from tests.support.simulated import job, trace


def test_the_shortest_remaining_job_takes_the_gpus_of_a_longer_one() -> None:
    jobs = trace(job("long", runs_s=6_000.0), job("short", at=100.0, runs_s=600.0))
    run = simulate(jobs, Setting("srtf", 1, 1, cost_model="free", epoch_s=100.0))
    assert run.column("finished_at").tolist() == pytest.approx([6_600.0, 700.0])


def test_least_attained_service_lets_a_newcomer_in_without_knowing_its_length() -> None:
    jobs = trace(job("old", runs_s=20_000.0), job("new", at=10_000.0, runs_s=1_200.0))
    run = simulate(jobs, Setting("las", 1, 1, cost_model="free", epoch_s=100.0))
    assert run.column("finished_at").tolist() == pytest.approx([21_200.0, 11_200.0])


def test_pickyman_stops_a_long_job_for_a_short_one_but_not_for_a_long_one() -> None:
    short = trace(job("long", runs_s=60_000.0), job("other", at=3_000.0, runs_s=600.0))
    long = trace(job("long", runs_s=60_000.0), job("other", at=3_000.0, runs_s=59_000.0))
    setting = Setting("pickyman", 1, 1, cost_model="live")
    assert simulate(short, setting).column("preemptions").sum() == 1
    assert simulate(long, setting).column("preemptions").sum() == 0


def brute_force(gpus: list[int], costs_s: list[float], need: int) -> float:
    return min(
        sum(costs_s[row] for row in chosen)
        for many in range(len(gpus) + 1)
        for chosen in itertools.combinations(range(len(gpus)), many)
        if sum(gpus[row] for row in chosen) >= need
    )


def test_the_greedy_division_is_within_ten_per_cent_of_the_exact_one_on_average() -> None:
    draw, ratios = np.random.default_rng(0), []
    for _ in range(300):
        gpus, costs_s = [], []
        for _ in range(8):
            gpus.append(int(draw.integers(1, 9)))
            costs_s.append(float(draw.lognormal()))
        need = int(draw.integers(1, 9))
        best_s = least_cost_s(gpus, costs_s, need)
        assert best_s == pytest.approx(brute_force(gpus, costs_s, need))
        ratios.append(greedy_cost_s(gpus, costs_s, need) / best_s)
    assert np.mean(ratios) <= 1.10


def test_no_victims_are_named_when_all_together_are_not_enough() -> None:
    lone = Victim("a", (("n0", 2),), 0.0, 1.0)
    assert cheapest_victims([lone], Need(3, 1, Ledger(["n0"], [0]))) is None
    assert least_cost_s([2], [1.0], 3) == float("inf")


@pytest.mark.parametrize("policy", sorted(set(REGISTRY) - {"qos"}))
@pytest.mark.parametrize("cost_model", ["live", "flat"])
def test_every_plan_of_every_policy_fits_and_no_job_is_forgotten(
    policy: str, cost_model: CostName
) -> None:
    for seed in range(3):
        jobs = generate(Mix(jobs=25, jobs_per_hour=30.0, best_effort=0.3), seed=seed)
        setting = Setting(policy, 2, 8, cost_model=cost_model, error=0.2, literal_cycle=True)
        run = simulate(jobs, setting)  # each plan is checked before it is carried out
        for row, ended_at in enumerate(run.column("finished_at").tolist()):
            assert ended_at < float("inf") or row in run.refused


@pytest.mark.parametrize("policy", sorted(set(REGISTRY) - {"qos"}))
def test_an_empty_cluster_gets_an_empty_plan(policy: str) -> None:
    state = ClusterState(now=0.0, nodes=(Node("node-0", 8, 8),), jobs=())
    plan = find(policy).policy()(state, NoisyPredictor([], costs("free", cluster_gpus=8)))
    assert plan.decisions == ()


def test_drf_gives_equal_shares_and_optimus_the_better_scaling_job_more() -> None:
    flat = ThroughputTable((1, 2, 4), (1.0, 1.1, 1.15))
    jobs = trace(
        job("scales", runs_s=4_000.0, table=ThroughputTable((1, 2, 3, 4), (1.0, 2.0, 3.0, 4.0))),
        job("does not", runs_s=4_000.0, table=flat),
    )
    fair = simulate(jobs, Setting("drf", 1, 4, cost_model="free"))
    greedy = simulate(jobs, Setting("optimus", 1, 4, cost_model="free"))
    assert fair.column("finished_at")[0] == pytest.approx(2_000.0)
    assert greedy.column("finished_at")[0] < 2_000.0


def test_chronus_gives_the_lease_to_the_job_that_is_due() -> None:
    jobs = trace(
        job("free", runs_s=12_000.0),
        job("due", at=600.0, runs_s=1_200.0, due_at=6_000.0),
    )
    run = simulate(jobs, Setting("chronus", 1, 1, cost_model="free"))
    assert run.column("finished_at")[1] <= 6_000.0
