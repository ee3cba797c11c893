"""The second phase: policy gradients in slots, from a net that imitates its teacher, or from nothing.

As in DL2's release, a slot is judged by itself (algorithms.md 6.6). Our own: the slot's reward is
compared with that of the best-scored steps in the same slot, so both sides have the same jobs, which
otherwise drown what a decision was worth. The net that is kept is the best of those tried on
validation worlds. DL2's critic, replay and exploration gained less: a study has them.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from laxity_lab.policy_training.slot_environment import MOST_SLOTS, Reward, SlotCluster
from laxity_lab.policy_training.step_sampler import DrawnStep, StepSampler
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
ENTROPY: Final = 0.01


@dataclass(frozen=True, slots=True, eq=False)
class SlotRecord:
    """The steps drawn in one slot, its reward, and that of the best-scored steps there."""

    drawn: Sequence[DrawnStep]
    reward: float
    best_reward: float


RecordedStep = tuple[SlotRecord, DrawnStep]


def run_episode(
    cluster: SlotCluster, net: ScoringNet, draw: np.random.Generator
) -> list[SlotRecord]:
    """Slots until all jobs have ended."""
    records = []
    for _ in range(MOST_SLOTS):
        if cluster.done:
            break
        sampler = StepSampler(draw)
        widths = cluster.decide(net, sampler.widen)
        other = cluster.copy()
        best_reward = other.train(other.decide(net))
        reward = cluster.train(widths)
        if sampler.drawn:
            records.append(SlotRecord(sampler.drawn, reward, best_reward))
    return records


class GradientLearner:
    """A net that learns from episodes."""

    def __init__(self, start: ScoringNet, *, batch: int = BATCH, entropy: float = ENTROPY) -> None:
        from laxity_lab.policy_training.torch_net import PolicyGradient

        self._batch, self._policy = batch, PolicyGradient(start, entropy=entropy)

    def policy(self) -> ScoringNet:
        """The net as it is now."""
        return self._policy.policy()

    def run_episode(self, cluster: SlotCluster, draw: np.random.Generator) -> Sequence[SlotRecord]:
        return run_episode(cluster, self.policy(), draw)

    def update(self, records: Iterable[SlotRecord], draw: np.random.Generator) -> int:
        """As many batches as the episode's steps fill; how many steps these were."""
        latest = [(record, step) for record in records for step in record.drawn]
        pool = self._remember(latest)
        for rows in self._draw_batches(len(latest), len(pool), draw):
            self._improve([pool[row] for row in rows])
        return len(latest)

    def _remember(self, latest: list[RecordedStep]) -> Sequence[RecordedStep]:
        """What is learned from."""
        return latest

    def _draw_batches(self, _latest: int, pool: int, draw: np.random.Generator) -> list[Ints]:
        order = draw.permutation(pool)
        return [order[begin : begin + self._batch] for begin in range(0, pool, self._batch)]

    def _improve(self, batch: Sequence[RecordedStep]) -> None:
        credit = self._credit(batch)
        self._policy.improve([step for _, step in batch], credit / (credit.std() + 1e-6))

    def _credit(self, batch: Sequence[RecordedStep]) -> Floats:
        return np.array([record.reward - record.best_reward for record, _ in batch])


def reinforce(
    tables: Tables,
    start: ScoringNet,
    *,
    seed: int,
    rounds: int,
    reward: Reward = "jct",
    kinds: WorldKinds = USUAL,
    learner: GradientLearner | None = None,
    tell: Callable[[int], None] = lambda _: None,
) -> Improvement:
    """The best net of those tried, and what each scored on the validation worlds (`start` first)."""
    draw, pupil = np.random.default_rng(seed), learner or GradientLearner(start)

    def learn_episodes() -> Iterator[tuple[ScoringNet, int]]:
        while True:
            jobs, gpus = draw_world(tables, draw, reward, kinds)
            steps = pupil.update(pupil.run_episode(SlotCluster(jobs, gpus, reward), draw), draw)
            yield pupil.policy(), steps

    return keep_best(
        start, learn_episodes(), rounds, lambda net: validate(tables, net, reward, kinds), tell
    )
