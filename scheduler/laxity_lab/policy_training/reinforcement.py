"""The second phase: policy gradients in slots, from a net that imitates its teacher, or from nothing.

As in DL2's release, a slot is judged by itself (algorithms.md 6.6): a critic of later slots was tried
and made nets worse, since jobs that end earn no reward any more. `DL2` has the paper's parts: a critic
of the slot, replay, job-aware exploration. What `laxity train policy` takes is our own: the slot's
reward is compared with that of the best-scored steps in the same slot, so both sides have the same
jobs, which otherwise drown what a decision was worth. The net that is kept is the best of those tried
on validation worlds.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from laxity_lab.policy_training.slot_credit import (
    Baseline,
    RecordedStep,
    SlotRecord,
    credit_steps,
    expect_best,
    expect_nothing,
)
from laxity_lab.policy_training.slot_environment import MOST_SLOTS, Reward, SlotCluster
from laxity_lab.policy_training.step_sampler import StepSampler
from laxity_lab.policy_training.training_worlds import (
    USUAL,
    Improvement,
    WorldKinds,
    draw_world,
    keep_best,
    validate,
)
from laxity_lab.traces.throughput_tables import Tables
from laxity_profiler.estimate import Floats
from laxity_scheduler.frame.arrays import Ints
from laxity_scheduler.learned.scoring_net import ScoringNet

BATCH: Final = 256


@dataclass(frozen=True, slots=True)
class GradientParts:
    """What policy gradients are made of. ValueError if they do not go together.

    `exploration`: how often an unequal state is answered for the job that has least (`StepSampler`).
    `replay`: so many of the latest steps are learned from; 0: those of the last episode, each once.
    """

    baseline: Baseline = "best"
    entropy: float = 0.01
    exploration: float = 0.0
    replay: int = 0
    batch: int = BATCH
    per_job: bool = False

    def __post_init__(self) -> None:
        if self.per_job and self.baseline == "best":
            raise ValueError("the best-scored steps have no reward per job: take a critic or none")


OURS: Final = GradientParts()
DL2: Final = GradientParts("critic", exploration=0.4, replay=8_192)


def run_episode(
    cluster: SlotCluster, net: ScoringNet, draw: np.random.Generator, parts: GradientParts = OURS
) -> list[SlotRecord]:
    """Slots until all jobs have ended."""
    records = []
    for _ in range(MOST_SLOTS):
        if cluster.done:
            break
        sampler = StepSampler(draw, parts.exploration)
        widths = cluster.decide(net, sampler.widen)
        best_reward = np.nan
        if parts.baseline == "best":
            other = cluster.copy()
            best_reward = other.train(other.decide(net))
        reward = cluster.train(widths)
        if sampler.drawn:
            records.append(_make_record(sampler, cluster, reward, best_reward))
    return records


def _make_record(
    sampler: StepSampler, cluster: SlotCluster, reward: float, best_reward: float
) -> SlotRecord:
    jobs, heads = tuple(sampler.heads), np.array(list(sampler.heads.values()))
    trained = np.array([cluster.trained[job] for job in jobs])
    return SlotRecord(sampler.drawn, reward, best_reward, jobs, heads, trained)


class GradientLearner:
    """A net that learns from episodes, with its critic and its memory of steps."""

    def __init__(self, start: ScoringNet, parts: GradientParts, *, seed: int) -> None:
        from laxity_lab.policy_training import torch_net

        self._parts, self._policy = parts, torch_net.PolicyGradient(start, entropy=parts.entropy)
        self._critic: Any = torch_net.Critic(seed) if parts.baseline == "critic" else None
        self._memory: deque[RecordedStep] = deque(maxlen=parts.replay)
        self._expect = {
            "best": expect_best,
            "critic": self._expect_by_critic,
            "none": expect_nothing,
        }[parts.baseline]

    def policy(self) -> ScoringNet:
        """The net as it is now."""
        return self._policy.policy()

    def update(self, records: Iterable[SlotRecord], draw: np.random.Generator) -> int:
        """As many batches as the episode's steps fill; how many steps these were."""
        latest = [(record, step) for record in records for step in record.drawn]
        self._memory.extend(latest)
        pool = list(self._memory) if self._parts.replay else latest
        for rows in self._draw_batches(len(latest), len(pool), draw):
            self._improve([pool[row] for row in rows])
        return len(latest)

    def _expect_by_critic(self, record: SlotRecord) -> Floats:
        expected: Floats = self._critic.expect(record.heads)
        return expected

    def _improve(self, batch: Sequence[RecordedStep]) -> None:
        credit = credit_steps(batch, self._expect, per_job=self._parts.per_job)
        self._policy.improve([step for _, step in batch], credit / (credit.std() + 1e-6))
        if self._critic is not None:
            records = list(dict.fromkeys(record for record, _ in batch))
            self._critic.improve(
                np.concatenate([record.heads for record in records]),
                np.concatenate([record.trained for record in records]),
            )

    def _draw_batches(self, latest: int, pool: int, draw: np.random.Generator) -> list[Ints]:
        size = self._parts.batch
        if self._parts.replay:
            return list(draw.integers(pool, size=(-(-latest // size), size)))
        order = draw.permutation(pool)
        return [order[begin : begin + size] for begin in range(0, pool, size)]


def reinforce(
    tables: Tables,
    start: ScoringNet,
    *,
    seed: int,
    rounds: int,
    reward: Reward = "jct",
    parts: GradientParts = OURS,
    kinds: WorldKinds = USUAL,
    tell: Callable[[int], None] = lambda _: None,
) -> Improvement:
    """The best net of those tried, and what each scored on the validation worlds (`start` first)."""
    draw, learner = np.random.default_rng(seed), GradientLearner(start, parts, seed=seed)

    def learn_episodes() -> Iterator[tuple[ScoringNet, int]]:
        while True:
            jobs, gpus = draw_world(tables, draw, reward, kinds)
            records = run_episode(SlotCluster(jobs, gpus, reward), learner.policy(), draw, parts)
            steps = learner.update(records, draw)
            yield learner.policy(), steps

    return keep_best(
        start, learn_episodes(), rounds, lambda net: validate(tables, net, reward, kinds), tell
    )
