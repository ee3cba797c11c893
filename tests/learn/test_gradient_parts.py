"""The parts of policy gradients: exploration, credit, critic and replay, each by what it changes."""

from typing import Any

import numpy as np
import pytest

from laxity_lab.policy_training.reinforcement import SlotRecord
from laxity_lab.policy_training.slot_environment import SlotCluster
from laxity_lab.policy_training.step_sampler import DrawnStep
from laxity_lab.traces.throughput_tables import ThroughputTable
from laxity_lab.traces.traces import TraceJob
from laxity_profiler.estimate import Floats
from laxity_scheduler.learned.job_features import FEATURES
from studies.dl2_gradients import (
    DL2,
    ExploringSampler,
    GradientParts,
    JobRecord,
    PartsLearner,
    credit_steps,
    expect_best,
    expect_nothing,
    run_episode,
)
from tests.learn.test_reinforcement import scored, small, training

WIDE = ThroughputTable((8, 9, 10), (1.0, 1.1, 1.2))
ROW = np.zeros((3, len(FEATURES)))


def wide(name: str) -> TraceJob:
    return TraceJob(name, 0.0, 6_000.0, 8, iterations=6_000.0, table=WIDE)


def draw_first(jobs: list[TraceJob], exploration: float) -> set[int | None]:
    """Whose step a net that prefers wide jobs takes first, over a hundred draws."""
    draw, jobs_drawn = np.random.default_rng(0), set()
    for _ in range(100):
        sampler = ExploringSampler(draw, exploration=exploration)
        SlotCluster(jobs, 20).decide(scored(share=99.0, stop=-99.0), sampler.widen)
        jobs_drawn.add(sampler.drawn[0].job)
    return jobs_drawn


def test_exploration_widens_the_job_that_has_least_where_widths_are_unequal() -> None:
    unequal = [wide("wide"), training("narrow")]
    assert draw_first(unequal, 0.0) == {0}
    assert draw_first(unequal, 1.0) == {1}
    assert draw_first(unequal, 0.5) == {0, 1}


def test_equal_jobs_are_left_to_the_net() -> None:
    sampler = ExploringSampler(np.random.default_rng(0), exploration=1.0)
    SlotCluster([wide("a"), wide("b")], 17).decide(scored(stop=99.0), sampler.widen)
    assert [step.job for step in sampler.drawn] == [None]


def record(*trained: float, reward: float = 5.0, best: float = np.nan) -> JobRecord:
    steps = [DrawnStep(ROW, 0, 7), DrawnStep(ROW, 1, 3), DrawnStep(ROW, 2, None)]
    return JobRecord(steps, reward, best, (3, 7), np.zeros((2, len(FEATURES))), np.array(trained))


def credit(slot: JobRecord, expect: Any = expect_nothing, *, per_job: bool = False) -> list[float]:
    steps = [(slot, step) for step in slot.drawn]
    credits_of_steps: list[float] = credit_steps(steps, expect, per_job=per_job).tolist()
    return credits_of_steps


def test_all_steps_of_a_slot_share_its_reward_less_what_was_expected() -> None:
    assert credit(record(0.5, 0.25)) == [5.0, 5.0, 5.0]
    assert credit(record(0.5, 0.25), lambda _: np.array([1.0, 2.0])) == [2.0, 2.0, 2.0]
    assert credit(record(0.5, 0.25, best=4.5), expect_best) == [0.5, 0.5, 0.5]


def test_a_reward_per_job_is_what_the_jobs_own_step_led_to_and_stopping_has_the_mean() -> None:
    assert credit(record(0.5, 0.25), per_job=True) == [0.25, 0.5, 0.375]
    expected = credit(record(0.5, 0.25), lambda _: np.array([0.5, 0.0]), per_job=True)
    assert expected == [0.25, 0.0, 0.125]


def test_the_best_steps_have_no_reward_per_job() -> None:
    with pytest.raises(ValueError, match="take a critic or none"):
        GradientParts(per_job=True)


def test_a_record_holds_what_each_job_that_could_step_has_trained() -> None:
    jobs = [training("a", alone_s=900.0), training("b"), training("c", at=300.0)]
    cluster, draw = SlotCluster(jobs, 5), np.random.default_rng(0)
    records = run_episode(cluster, scored(stop=-99.0), draw, DL2)
    assert records[0].jobs == (0, 1)
    assert records[0].trained.sum() == pytest.approx(records[0].reward)
    assert records[0].heads.shape == (2, len(FEATURES))
    assert np.isnan(records[0].best_reward)
    assert cluster.actions == sum(len(slot.drawn) for slot in records) + count_silent(records)


def count_silent(records: list[JobRecord]) -> int:
    """Stops that nobody drew, since nothing fitted any more: a slot ends in one of the two ways."""
    return sum(slot.drawn[-1].job is not None for slot in records)


def test_a_critic_learns_what_jobs_train() -> None:
    critic = pytest.importorskip("studies.dl2_critic").Critic(seed=1)
    rows: Floats = np.random.default_rng(0).uniform(size=(64, len(FEATURES)))
    for _ in range(300):
        critic.improve(rows, rows[:, 0] / 2.0)
    assert critic.expect(rows) == pytest.approx(rows[:, 0] / 2.0, abs=0.05)


def watch_updates(parts: GradientParts, episodes: int = 2) -> tuple[list[list[int]], int]:
    """Of which episode each step was that was learned from, by batch; and the steps of the first one."""
    torch_net = pytest.importorskip("laxity_lab.policy_training.torch_net")
    net = torch_net.read_net(torch_net.make_net(1))
    learner, draw = PartsLearner(net, parts, seed=1), np.random.default_rng(1)
    episode_of: dict[SlotRecord, int] = {}
    batches: list[list[int]] = []
    learner._improve = lambda batch: batches.append(  # type: ignore[method-assign]
        [episode_of[slot] for slot, _ in batch]
    )
    counts = []
    for number in range(episodes):
        records = run_episode(SlotCluster(small(), 8), net, draw, parts)
        episode_of |= dict.fromkeys(records, number)
        counts.append(learner.update(records, draw))
    return batches, counts[0]


def test_replay_learns_from_earlier_episodes_too_and_forgets_the_oldest_steps() -> None:
    batches, _ = watch_updates(GradientParts("none", replay=10_000))
    assert set(batches[0]) == {0}
    assert set(batches[-1]) == {0, 1}
    batches, _ = watch_updates(GradientParts("none", replay=5))
    assert set(batches[-1]) == {1}


def test_without_replay_each_step_of_the_last_episode_is_learned_from_once() -> None:
    batches, steps = watch_updates(GradientParts(batch=16), episodes=1)
    assert sum(map(len, batches)) == steps
    assert max(map(len, batches)) == 16
