"""The cluster of slots as other libraries see it: observations, masked actions, rewards."""

from typing import TYPE_CHECKING

import numpy as np
import pytest

from laxity_lab.policy_training.slot_environment import SLOT_S, SlotCluster
from laxity_lab.policy_training.training_worlds import World
from laxity_lab.traces.throughput_tables import ThroughputTable
from laxity_lab.traces.traces import TraceJob
from laxity_scheduler.learned.job_features import FEATURES, STOP

pytest.importorskip("gymnasium")

if TYPE_CHECKING:
    from laxity_lab.policy_training.gym_environment import AllocationEnv

TABLE = ThroughputTable((1, 2, 4), (1.0, 2.0, 4.0))
TABLES = {("m", 1): TABLE}


def two_jobs(gpus: int = 5) -> World:
    jobs = [TraceJob(name, 0.0, 6_000.0, 1, iterations=6_000.0, table=TABLE) for name in "ab"]
    return jobs, gpus


def make_env(jobs: int = 3, world: World | None = None) -> "AllocationEnv":
    from laxity_lab.policy_training.gym_environment import AllocationEnv

    env = AllocationEnv(lambda _: world or two_jobs(), jobs=jobs)
    env.reset(seed=1)
    return env


def test_gymnasiums_checker_passes() -> None:
    from gymnasium.utils.env_checker import check_env

    from laxity_lab.policy_training.gym_environment import AllocationEnv

    check_env(AllocationEnv.from_tables(TABLES, jobs=4), skip_render_check=True)


def test_jobs_whose_next_width_fits_can_be_chosen_and_stopping_always() -> None:
    env = make_env()
    assert env.action_masks().tolist() == [True, True, False, True]
    seen, reward, *_ = env.step(0)
    assert reward == 0.0
    assert env.action_masks().tolist() == [True, True, False, True]
    seen, *_ = env.step(0)
    assert env.action_masks().tolist() == [False, False, False, True]
    assert not seen[:3].any()
    assert seen[3, STOP] == 1.0


def test_the_slot_is_trained_on_stopping_with_the_widths_that_were_chosen() -> None:
    env, cluster = make_env(), SlotCluster(*two_jobs())
    for action in (0, 1):
        env.step(action)
    _, reward, ended, cut, _ = env.step(3)
    assert reward == pytest.approx(cluster.train([2, 2]))
    assert not ended
    assert not cut


def test_a_masked_action_ends_the_slot() -> None:
    env, cluster = make_env(), SlotCluster(*two_jobs())
    _, reward, *_ = env.step(2)
    assert reward == pytest.approx(cluster.train([1, 1]))


def test_an_episode_ends_with_its_jobs_and_pays_one_for_each() -> None:
    env = make_env()
    total, ended, info = 0.0, False, dict[str, list[float]]()
    while not ended:
        action = int(env.action_masks().argmax())
        _, reward, ended, _, info = env.step(action)
        total += reward
    assert total == pytest.approx(2.0)
    assert len(info["jct_s"]) == 2
    assert min(info["jct_s"]) > 2 * SLOT_S


def test_jobs_beyond_the_fixed_number_train_at_their_least_width() -> None:
    env, cluster = make_env(jobs=1), SlotCluster(*two_jobs())
    assert env.action_masks().tolist() == [True, True]
    env.step(0)
    _, reward, *_ = env.step(1)
    assert reward == pytest.approx(cluster.train([2, 1]))


def test_the_same_seed_draws_the_same_world() -> None:
    from laxity_lab.policy_training.gym_environment import AllocationEnv

    env = AllocationEnv.from_tables(TABLES)
    first, _ = env.reset(seed=3)
    again, _ = env.reset(seed=3)
    other, _ = env.reset(seed=4)
    assert first.shape == (21, len(FEATURES))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.slow
def test_maskable_ppo_trains_on_it_and_takes_what_is_not_masked() -> None:
    sb3_contrib = pytest.importorskip("sb3_contrib")
    from laxity_lab.policy_training.gym_environment import AllocationEnv

    env = AllocationEnv.from_tables(TABLES, jobs=4)
    model = sb3_contrib.MaskablePPO("MlpPolicy", env, seed=1, n_steps=64, device="cpu")
    before = [weight.clone() for weight in model.policy.parameters()]
    model.learn(64)
    assert any((a != b).any() for a, b in zip(before, model.policy.parameters(), strict=True))
    seen, _ = env.reset(seed=2)
    masks = env.action_masks()
    action, _ = model.predict(seen, action_masks=masks)
    assert masks[int(action)]
