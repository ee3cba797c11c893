"""Studies of loans: each variant does what its name says, and nothing else differs."""

from dataclasses import replace
from math import isfinite

import pytest

from laxity_lab.simulate.run import Setting
from laxity_scheduler.allocation.purse import Purse
from laxity_scheduler.capacity.pools import PoolLedger, keep_apart
from laxity_scheduler.frame.remaining import Forecasts
from laxity_scheduler.inflight import with_follow_ups
from laxity_scheduler.loans.server_choice import LentServer, StopCost, count_stops
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.policies.aryl import decide, decide_by, widths_by_knapsack
from studies.datasets import open_datasets
from studies.loan_ladder import HalfDue
from studies.loan_ladder import trials as ladder_trials
from studies.loan_variants import PLACES, RECLAIMS, WIDTHS
from studies.loan_world import LoanSize, make_world, run_world
from tests.support.builders import MINUTE_EPOCHS, Curve, job, node

SAMPLES = open_datasets(samples=True)
# "wide" is on three servers, "a" and "b" on one each; "b" would lose nearly nothing.
SERVERS = [
    LentServer("s0", 8, frozenset({"wide"})),
    LentServer("s1", 8, frozenset({"wide"})),
    LentServer("s2", 8, frozenset({"wide", "a"})),
    LentServer("s3", 8, frozenset({"b"})),
]
COUNTS = {"wide": 3, "a": 1, "b": 1}
COST = StopCost({}, {"wide": 9_000.0, "a": 900.0, "b": 1.0})


def back(name: str, gpus: float = 16.0) -> list[str]:
    picked = RECLAIMS[name](SERVERS, gpus, server_counts=COUNTS, stop_cost=COST)
    return sorted(server.id for server in picked)


def test_each_rule_for_reclaims_gives_back_enough() -> None:
    for name in RECLAIMS:
        assert len(back(name)) == 2, name
        assert len(back(name, 1_000.0)) == len(SERVERS), name


def test_cost_stops_the_one_job_that_is_on_both_servers() -> None:
    assert back("cost") == back("exact") == ["s0", "s1"]


def test_cost_times_overhead_spares_the_job_that_would_lose_most() -> None:
    assert back("cost x overhead", 8.0) == ["s3"]
    assert back("cost", 8.0) != ["s3"]


def test_fewest_jobs_counts_the_jobs_of_each_server_alone() -> None:
    crowded = [
        LentServer("s0", 8, frozenset({"a", "b"})),
        LentServer("s1", 8, frozenset({"a", "b"})),
        LentServer("s2", 8, frozenset({"c"})),
        LentServer("s3", 8, frozenset({"d"})),
        LentServer("s4", 8, frozenset({"e"})),
    ]
    counts = {"a": 2, "b": 2, "c": 1, "d": 1, "e": 1}
    picked = RECLAIMS["fewest jobs"](crowded, 24.0, server_counts=counts)
    assert [server.id for server in picked] == ["s2", "s3", "s4"]
    assert count_stops(picked) == 3


def test_a_random_order_chooses_again_the_servers_that_are_being_left() -> None:
    first = back("random")
    left = [
        replace(server, base_jobs=frozenset()) if server.id in first else server
        for server in SERVERS
    ]
    again = RECLAIMS["random"](left, 16.0, server_counts=COUNTS)
    assert sorted(server.id for server in again) == first


def three_jobs() -> ClusterState:
    """Three elastic jobs of which only the first two gain by a second worker, on five GPUs."""
    jobs = [job(name, epochs=100, workers=(1, 2), model=name) for name in ("a", "b", "flat")]
    return ClusterState(0.0, (node("t0", 5),), tuple(jobs))


@pytest.mark.parametrize(("name", "widths"), [("none", 3), ("equal share", 5), ("greedy", 5)])
def test_rules_for_phase_two_share_out_what_base_demand_leaves(name: str, widths: int) -> None:
    state = three_jobs()
    jobs = state.in_submission_order.jobs
    chosen = WIDTHS[name](jobs, Purse(state, jobs, 5), Forecasts(state, MINUTE_EPOCHS))
    assert sum(chosen.values()) == widths
    assert set(chosen) == {"team/a", "team/b", "team/flat"}


def test_greedy_and_knapsack_choose_the_same_widths_where_all_weigh_the_same() -> None:
    state = three_jobs()
    jobs = state.in_submission_order.jobs
    curve = Curve(speedup={2: 1.5}, models={"a": 100.0, "b": 90.0, "flat": 10.0})
    chosen = [
        WIDTHS[name](jobs, Purse(state, jobs, 5), Forecasts(state, curve))
        for name in ("greedy", "knapsack")
    ]
    assert chosen[0] == chosen[1] == {"team/a": 2, "team/b": 2, "team/flat": 1}


def test_together_a_base_worker_may_join_flexible_ones_where_an_emptier_node_is() -> None:
    wide = job("wide", workers=(1, 4), running=4, nodes=("t0", "l0", "l0", "l0"))
    nodes = (
        node("t0", 1, free_gpus=0),
        node("l0", 4, free_gpus=1, pool="loaned"),
        node("l1", 4, free_gpus=3, pool="loaned"),
    )
    other = job("other", running=1, nodes=("l1",))
    new = job("new")
    state = ClusterState(0.0, nodes, (wide, other, new))
    places = {
        name: PoolLedger(state, order).place_for(state.by_id["team/new"], 1)
        for name, order in PLACES.items()
    }
    assert places == {"apart": ("l1",), "together": ("l0",)}  # best fit


def test_laxitys_own_parts_put_together_by_hand_decide_as_the_policy() -> None:
    state = three_jobs()
    own = decide(state, MINUTE_EPOCHS)
    assert own == decide_by(state, MINUTE_EPOCHS, widths_by_knapsack, PoolLedger)
    assert own != decide_by(state, MINUTE_EPOCHS, WIDTHS["none"], PoolLedger)
    assert PLACES["apart"] is keep_apart


def test_a_run_can_decide_by_other_rules() -> None:
    trace = SAMPLES.source("philly").load()
    world = make_world(trace, LoanSize(40, load=8.0))
    own = run_world(world, lends=True, scales=True)
    others = run_world(
        world,
        lends=True,
        scales=True,
        policy=lambda state, beliefs: decide_by(state, beliefs, WIDTHS["none"], PoolLedger),
        finish=with_follow_ups,
    )
    assert own.column("resizes").sum() > 0 == others.column("resizes").sum()


def test_half_of_the_jobs_have_no_deadline_and_a_seed_says_which() -> None:
    source = SAMPLES.source("195job")
    due = [
        {job.id for job in HalfDue(source, seed).load().jobs if isfinite(job.deadline_at)}
        for seed in (0, 0, 1)
    ]
    assert due[0] == due[1] != due[2]
    assert 0.4 < len(due[0]) / len(source.load().jobs) < 0.6


def test_the_ladder_compares_loans_with_the_same_inference_nodes_that_keep_to_themselves() -> None:
    variants = {str(trial.labels["variant"]) for trial in ladder_trials(SAMPLES, (0, 1))}
    assert variants == {"loans", "no loans"}
    fleet = Setting(
        "elasticflow", 2, 8, inference="servegen/rates.csv", inference_nodes=4, lends=False
    )
    assert fleet.to_json()["lends"] is False
    assert "lends" not in Setting("elasticflow", 2, 8).to_json()
