"""The second phase: policy gradients with a critic, in slots, from a net that imitates its teacher.

    advantage = r + gamma V(s') - (r* + gamma V(s*'))       r*, s*': had the best-scored steps been taken

So both sides have the same arrivals, which otherwise drown what a decision was worth (our own; DL2
subtracts V(s)). All steps of a slot share its advantage, as in DL2 (algorithms.md 6.6). Updates are
on the latest episodes; there is no replay. The net that is kept is the best of those tried on
validation seeds.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from laxity_profiler.estimate import Floats
from laxity_scheduler.learned.allocation_loop import Take
from laxity_scheduler.learned.job_features import (
    FEATURES,
    JobSteps,
    describe_steps,
    free_level,
    stop_rows,
)
from laxity_scheduler.learned.scoring_net import ScoringNet, masked_softmax
from laxity_scheduler.policy_training.made_jobs import ArrivalMix, make_trace
from laxity_scheduler.policy_training.slot_environment import (
    MOST_SLOTS,
    SlotCluster,
    mean_jct_in_slots,
)
from laxity_scheduler.simulate.tables import Tables

GAMMA: Final = 0.9
ENTROPY: Final = 0.01
SIZES: Final = (8, 16, 32)
LOADS: Final = (0.5, 0.8, 1.1)
JOBS: Final = 40
VALIDATION_SEEDS: Final = range(20_000, 20_003)
ROUNDS_BETWEEN_TRIALS: Final = 10


@dataclass(slots=True)
class SlotRecord:
    """The steps drawn in one slot, as (rows, which one), and what came of them."""

    drawn: list[tuple[Floats, int]]
    state: Floats  # before, (F,)
    following: Floats  # after
    best_following: Floats  # after the best-scored steps
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
        stops = net.score(ends)
        heads = [
            begin
            for begin, end, width in zip(steps.first, steps.first[1:], widths, strict=False)
            if width and begin < end
        ]
        while heads := [row for row in heads if steps.more_gpus[row] <= free_gpus]:
            level = free_level(free_gpus, steps.cluster_gpus)
            options = np.append(scores[heads], stops[level])
            shares = masked_softmax(options, np.ones(len(options), dtype=np.bool_))
            place = int(self.draw.choice(len(options), p=shares))
            self.drawn.append((np.vstack([steps.features[heads], ends[level]]), place))
            if place == len(heads):
                return
            row = heads.pop(place)
            number = int(steps.job[row])
            take(number, widths[number], int(steps.after[row]))
            widths[number] = int(steps.after[row])
            free_gpus -= int(steps.more_gpus[row])
            if row + 1 < steps.first[number + 1]:
                heads.append(row + 1)


def run_episode(
    cluster: SlotCluster, net: ScoringNet, draw: np.random.Generator
) -> list[SlotRecord]:
    """Slots until all jobs have ended."""
    records = []
    for _ in range(MOST_SLOTS):
        if cluster.done:
            break
        state, sampler, other = describe_state(cluster), StepSampler(draw), cluster.copy()
        widths, best = cluster.decide(net, sampler.widen), other.decide(net)
        reward, best_reward = cluster.train(widths), other.train(best)
        if sampler.drawn:
            records.append(
                SlotRecord(
                    sampler.drawn,
                    state,
                    describe_state(cluster),
                    describe_state(other),
                    reward,
                    best_reward,
                )
            )
    return records


def describe_state(cluster: SlotCluster) -> Floats:
    """What the critic sees, (F,): the mean of the jobs' steps, and the summary."""
    jobs = cluster.observe()
    steps = describe_steps(jobs, cluster_gpus=cluster.gpus, free_gpus=cluster.gpus)
    if len(steps.job):
        return np.asarray(steps.features.mean(0))
    return np.zeros(len(FEATURES))


def validate(tables: Tables, net: ScoringNet, seeds: Sequence[int] = VALIDATION_SEEDS) -> float:
    """Mean JCT over loads and seeds, each relative to its jobs' run time at the width asked for."""
    ratios = []
    for seed in seeds:
        for load in LOADS:
            jobs = make_trace(tables, ArrivalMix(JOBS, 16, load), seed=seed).jobs
            asked_s = float(np.mean([job.duration_s for job in jobs]))
            ratios.append(mean_jct_in_slots(jobs, 16, net) / asked_s)
    return float(np.mean(ratios))


def reinforce(
    tables: Tables,
    start: ScoringNet,
    *,
    seed: int,
    rounds: int,
    tell: Callable[[int], None] = lambda _: None,
) -> tuple[ScoringNet, list[float]]:
    """The best net of those tried, and what each scored on the validation seeds (`start` first)."""
    from laxity_scheduler.policy_training import torch_net

    draw = np.random.default_rng(seed)
    learner = torch_net.ActorCritic(start, seed=seed, gamma=GAMMA, entropy=ENTROPY)
    best, tried = start, [validate(tables, start)]
    for number in range(1, rounds + 1):
        mix = ArrivalMix(JOBS, int(draw.choice(SIZES)), float(draw.choice(LOADS)))
        jobs = make_trace(tables, mix, seed=int(draw.integers(10_000))).jobs
        net = learner.policy()
        records = run_episode(SlotCluster(jobs, mix.gpus), net, draw)
        learner.update(records, draw)
        if number % ROUNDS_BETWEEN_TRIALS == 0:
            policy = learner.policy()
            tried.append(validate(tables, policy))
            best = policy if tried[-1] == min(tried) else best
        tell(1)
    return best, tried
