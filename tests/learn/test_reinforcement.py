"""Slots of a fast cluster, the steps that are drawn in them, and what a net learns from the reward."""

import numpy as np
import pytest

from laxity_lab.policy_training import reinforcement, training_worlds
from laxity_lab.policy_training.made_jobs import ArrivalMix, make_trace
from laxity_lab.policy_training.reinforcement import run_episode
from laxity_lab.policy_training.slot_environment import (
    SLOT_S,
    SlotCluster,
    run_in_slots,
)
from laxity_lab.policy_training.step_sampler import StepSampler
from laxity_lab.policy_training.training_worlds import WorldKinds, validate
from laxity_lab.traces.throughput_tables import ThroughputTable
from laxity_lab.traces.traces import TraceJob
from laxity_scheduler.learned.job_features import FEATURES
from laxity_scheduler.learned.scoring_net import ScoringNet

TABLE = ThroughputTable((1, 2, 4), (1.0, 2.0, 4.0))
START_S = 24.0  # on one GPU; 24 s more each time the width doubles


def training(name: str, at: float = 0.0, alone_s: float = 6_000.0) -> TraceJob:
    return TraceJob(name, at, alone_s, 1, iterations=alone_s, table=TABLE)


def scored(**weights: float) -> ScoringNet:
    column = np.array([[weights.get(name, 0.0)] for name in FEATURES])
    return ScoringNet((column,), (np.zeros(1),))


def small(seed: int = 1) -> tuple[TraceJob, ...]:
    return make_trace({("m", 1): TABLE}, ArrivalMix(12, 8, 1.0), seed=seed).jobs


def test_a_slot_trains_what_is_left_of_it_after_a_start() -> None:
    cluster = SlotCluster([training("a")], 4)
    assert cluster.train([1]) == pytest.approx((SLOT_S - START_S) / 6_000.0)
    assert cluster.train([1]) == pytest.approx(SLOT_S / 6_000.0)
    assert cluster.train([2]) == pytest.approx((SLOT_S - 2 * START_S - 6.0) / 3_000.0)
    assert cluster.observe()[0].workers == 2


def test_a_job_ends_within_its_slot_and_the_rewards_of_a_job_sum_to_one() -> None:
    cluster = SlotCluster([training("a", alone_s=900.0)], 4)
    rewards = [cluster.train([1]), cluster.train([1])]
    assert sum(rewards) == pytest.approx(1.0)
    assert cluster.jct_s == [pytest.approx(900.0 + START_S)]
    assert cluster.done


def test_jobs_are_seen_from_their_arrival_on_and_an_empty_cluster_waits_for_the_next() -> None:
    cluster = SlotCluster(
        [training("a", alone_s=500.0), training("b", 700.0), training("c", 9e4)], 4
    )
    assert len(cluster.observe()) == 1
    cluster.train([1])
    assert cluster.now == 700.0
    while cluster.observe() and cluster.now < 9e4:
        cluster.train([4])
    assert cluster.now == 9e4


def test_a_copy_goes_its_own_way() -> None:
    cluster = SlotCluster([training("a"), training("b", 500.0)], 4)
    before, other = cluster.observe(), cluster.copy()
    other.train([4])
    other.train([4, 0])
    assert cluster.observe() == before
    assert cluster.now == 0.0


def test_the_loop_of_the_policy_decides_in_slots() -> None:
    cluster = SlotCluster([training("a", alone_s=900.0), training("b")], 5)
    assert cluster.decide(scored(rest_least=1.0, stop=-9.0)) == [1, 4]
    assert cluster.decide(scored(rest_least=-1.0, stop=-9.0)) == [4, 1]


def test_drawn_steps_fit_are_recorded_and_follow_the_scores() -> None:
    cluster = SlotCluster([training("a", alone_s=900.0), training("b")], 5)
    sampler = StepSampler(np.random.default_rng(0))
    assert cluster.decide(scored(rest_least=99.0, stop=-99.0), sampler.widen) == [1, 4]
    assert [step.place for step in sampler.drawn] == [1, 1]
    assert [len(step.rows) for step in sampler.drawn] == [3, 3]

    wide = StepSampler(np.random.default_rng(0))
    widths = [tuple(cluster.decide(scored(), wide.widen)) for _ in range(200)]
    assert len(set(widths)) > 3
    assert max(map(sum, widths)) <= 5


def test_an_episode_and_a_mean_completion_time_are_those_of_their_seed() -> None:
    net = scored(rest_least=1.0)
    first, again = (
        run_episode(SlotCluster(small(), 8), net, np.random.default_rng(3)) for _ in range(2)
    )
    assert [record.reward for record in first] == [record.reward for record in again]
    assert run_in_slots(small(), 8, net) == run_in_slots(small(), 8, net)


def test_what_the_best_steps_lead_to_is_recorded_beside_what_was_drawn() -> None:
    eager, lazy = scored(stop=-99.0), scored(stop=99.0)
    for net, same in ((lazy, True), (eager, False)):
        records = run_episode(SlotCluster(small(), 8), net, np.random.default_rng(3))
        equal = [record.reward == record.best_reward for record in records]
        assert all(equal) == same


@pytest.mark.slow
def test_policy_gradients_unlearn_to_stop_while_gpus_are_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From a net that mostly stops at once, on jobs that scale perfectly."""
    torch_net = pytest.importorskip("laxity_lab.policy_training.torch_net")
    tables = {("m", 1): TABLE}
    monkeypatch.setattr(training_worlds, "ROUNDS_BETWEEN_TRIALS", 15)
    kinds = WorldKinds(jobs=15, exponents=(1.0,))
    start = torch_net.read_net(torch_net.make_net(1))
    start.biases[-1][:] = 0.0
    best, tried, _ = reinforcement.reinforce(tables, start, seed=1, rounds=30, kinds=kinds)
    assert min(tried) == pytest.approx(validate(tables, best, kinds=kinds))
    assert min(tried) < 0.95 * tried[0]
