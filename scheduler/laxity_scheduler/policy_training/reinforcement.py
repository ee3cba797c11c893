"""The second phase: policy gradients in slots, from a net that imitates its teacher.

    advantage = r - r*       r*: the slot's reward had the best-scored steps been taken

So both sides have the same jobs, which otherwise drown what a decision was worth (our own; DL2
subtracts what a critic expects). As in DL2's release, a slot is judged by itself, and all its steps
share the advantage (algorithms.md 6.6): a critic of later slots was tried and made nets worse, since
jobs that end earn no reward any more. Updates are on the latest episode; there is no replay. The net
that is kept is the best of those tried on validation seeds.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.learned.allocation_loop import Take
from laxity_scheduler.learned.job_features import (
    JobSteps,
    free_level,
    stop_rows,
)
from laxity_scheduler.learned.scoring_net import ScoringNet, masked_softmax
from laxity_scheduler.policy_training.slot_environment import MOST_SLOTS, Reward, SlotCluster
from laxity_scheduler.policy_training.step_walk import StepWalk
from laxity_scheduler.policy_training.training_worlds import draw_world, validate
from laxity_scheduler.simulate.tables import Tables

ENTROPY: Final = 0.01
ROUNDS_BETWEEN_TRIALS: Final = 10


@dataclass(slots=True)
class SlotRecord:
    """The steps drawn in one slot, as (rows, which one), and what came of them."""

    drawn: list[tuple[Floats, int]]
    reward: float
    best_reward: float


@dataclass(slots=True)
class StepSampler:
    """Draws steps by their probabilities in place of the best ones, and records them."""

    draw: np.random.Generator
    drawn: list[tuple[Floats, int]] = field(default_factory=list)

    def widen(
        self, widths: list[int], steps: JobSteps, net: ScoringNet, take: Take, free_gpus: int
    ) -> None:
        scores, ends = net.score(steps.features), stop_rows(steps)
        stops, walk = net.score(ends), StepWalk(steps, widths, free_gpus)
        while rows := walk.fitting():
            level = free_level(walk.free_gpus, steps.cluster_gpus)
            options = np.append(scores[rows], stops[level])
            shares = masked_softmax(options, np.ones(len(options), dtype=np.bool_))
            place = int(self.draw.choice(len(options), p=shares))
            self.drawn.append((np.vstack([steps.features[rows], ends[level]]), place))
            if place == len(rows):
                return
            job = int(steps.job[rows[place]])
            take(job, widths[job], walk.take(rows[place]))


def run_episode(
    cluster: SlotCluster, net: ScoringNet, draw: np.random.Generator
) -> list[SlotRecord]:
    """Slots until all jobs have ended."""
    records = []
    for _ in range(MOST_SLOTS):
        if cluster.done:
            break
        sampler, other = StepSampler(draw), cluster.copy()
        widths, best = cluster.decide(net, sampler.widen), other.decide(net)
        reward, best_reward = cluster.train(widths), other.train(best)
        if sampler.drawn:
            records.append(SlotRecord(sampler.drawn, reward, best_reward))
    return records


def reinforce(
    tables: Tables,
    start: ScoringNet,
    *,
    seed: int,
    rounds: int,
    reward: Reward = "jct",
    tell: Callable[[int], None] = lambda _: None,
) -> tuple[ScoringNet, list[float]]:
    """The best net of those tried, and what each scored on the validation seeds (`start` first)."""
    from laxity_scheduler.policy_training import torch_net

    draw = np.random.default_rng(seed)
    learner = torch_net.PolicyGradient(start, entropy=ENTROPY)
    best, tried = start, [validate(tables, start, reward)]
    for number in range(1, rounds + 1):
        jobs, gpus = draw_world(tables, draw, reward)
        net = learner.policy()
        records = run_episode(SlotCluster(jobs, gpus, reward), net, draw)
        learner.update(records, draw)
        if number % ROUNDS_BETWEEN_TRIALS == 0:
            policy = learner.policy()
            tried.append(validate(tables, policy, reward))
            best = policy if tried[-1] == min(tried) else best
        tell(1)
    return best, tried
