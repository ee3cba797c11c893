"""Policy gradients in parts: DL2's critic, replay and exploration, beside what laxity trains with.

What a drawn step is credited with is a reward, less what was to be expected:

    best      r - r*      r*: the slot's reward had the best-scored steps been taken (our own)
    critic    r - V(s)    V: the sum over jobs of what a critic expects each of them to train (DL2)
    none      r

`r` is the slot's reward, the same for all its steps as in DL2 (algorithms.md 6.6), or the share of its
iterations that the step's own job trained; to stop is then credited with the jobs' mean.

Exploration: with all-reduce two of DL2's three cases are gone (algorithms.md 6.6, 6.9: workers without
a parameter server, and the reverse). What is left is the release's: where the widest job has over
U{3..5} times the workers of the narrowest one, that one gets the next step, with a stated probability.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, cast

import numpy as np

from laxity_lab.policy_training.reinforcement import (
    BATCH,
    ENTROPY,
    GradientLearner,
    RecordedStep,
    SlotRecord,
)
from laxity_lab.policy_training.slot_environment import MOST_SLOTS, SlotCluster
from laxity_lab.policy_training.step_sampler import DrawnStep, StepSampler
from laxity_lab.policy_training.step_walk import StepWalk
from laxity_profiler.estimate import Floats
from laxity_scheduler.frame.arrays import Ints
from laxity_scheduler.learned.allocation_loop import Take
from laxity_scheduler.learned.job_features import JobSteps
from laxity_scheduler.learned.scoring_net import ScoringNet

UNEQUAL: Final = (3, 5)  # widest / narrowest, drawn evenly

Baseline = Literal["best", "critic", "none"]


@dataclass(frozen=True, slots=True)
class GradientParts:
    """What policy gradients are made of. ValueError if they do not go together.

    `exploration`: how often an unequal state is answered for the job that has least.
    `replay`: so many of the latest steps are learned from; 0: those of the last episode, each once.
    """

    baseline: Baseline = "best"
    entropy: float = ENTROPY
    exploration: float = 0.0
    replay: int = 0
    batch: int = BATCH
    per_job: bool = False

    def __post_init__(self) -> None:
        if self.per_job and self.baseline == "best":
            raise ValueError("the best-scored steps have no reward per job: take a critic or none")


OURS: Final = GradientParts()
DL2: Final = GradientParts("critic", exploration=0.4, replay=8_192)


@dataclass(frozen=True, slots=True, eq=False)
class JobRecord(SlotRecord):
    """Also what came of each job.

    `jobs` could step: `heads` has a row of features for each, and `trained` the share of its iterations.
    `best_reward` is nan where nobody asked for it.
    """

    jobs: tuple[int, ...]
    heads: Floats
    trained: Floats


Expect = Callable[[JobRecord], Floats]  # of each job, or of all of them in one number


def expect_best(record: JobRecord) -> Floats:
    """What the best-scored steps would have earned together, (1,)."""
    return np.array([record.best_reward])


def expect_nothing(record: JobRecord) -> Floats:
    return np.zeros(len(record.jobs))


def credit_steps(
    steps: Sequence[tuple[JobRecord, DrawnStep]], expect: Expect, *, per_job: bool
) -> Floats:
    """Shape (n,): each step's credit."""
    expected = {record: expect(record) for record in dict.fromkeys(record for record, _ in steps)}
    credit = _credit_own_job if per_job else _credit_slot
    return np.array([credit(record, step, expected[record]) for record, step in steps])


def _credit_slot(record: JobRecord, _: DrawnStep, expected: Floats) -> float:
    return record.reward - float(expected.sum())


def _credit_own_job(record: JobRecord, step: DrawnStep, expected: Floats) -> float:
    surplus = record.trained - expected
    return float(surplus.mean() if step.job is None else surplus[record.jobs.index(step.job)])


@dataclass
class ExploringSampler(StepSampler):
    """Draws now and then for the job that has least; `heads` has each job's first step."""

    exploration: float = 0.0
    heads: dict[int, Floats] = field(default_factory=dict)

    def widen(
        self, widths: list[int], steps: JobSteps, net: ScoringNet, take: Take, free_gpus: int
    ) -> None:
        fitting = StepWalk(steps, widths, free_gpus).fitting()
        self.heads = {int(steps.job[row]): steps.features[row] for row in fitting}
        super().widen(widths, steps, net, take, free_gpus)

    def choose(self, scores: Floats, owners: Sequence[int], widths: Sequence[int]) -> int:
        if self.exploration and self.draw.random() < self.exploration:
            narrowest = min(owners, key=lambda job: widths[job])
            if max(widths) > self.draw.integers(*UNEQUAL, endpoint=True) * widths[narrowest]:
                return owners.index(narrowest)
        return super().choose(scores, owners, widths)


def run_episode(
    cluster: SlotCluster, net: ScoringNet, draw: np.random.Generator, parts: GradientParts
) -> list[JobRecord]:
    """Slots until all jobs have ended."""
    records = []
    for _ in range(MOST_SLOTS):
        if cluster.done:
            break
        sampler = ExploringSampler(draw, exploration=parts.exploration)
        widths = cluster.decide(net, sampler.widen)
        best_reward = np.nan
        if parts.baseline == "best":
            other = cluster.copy()
            best_reward = other.train(other.decide(net))
        reward = cluster.train(widths)
        if sampler.drawn:
            jobs, heads = tuple(sampler.heads), np.array(list(sampler.heads.values()))
            trained = np.array([cluster.trained[job] for job in jobs])
            records.append(JobRecord(sampler.drawn, reward, best_reward, jobs, heads, trained))
    return records


class PartsLearner(GradientLearner):
    """A net that learns from episodes by these parts, with its critic and its memory of steps."""

    def __init__(self, start: ScoringNet, parts: GradientParts, *, seed: int) -> None:
        super().__init__(start, batch=parts.batch, entropy=parts.entropy)
        self._parts, self._critic = parts, cast("Any", None)
        if parts.baseline == "critic":
            from studies.dl2_critic import Critic

            self._critic = Critic(seed)
        self._memory: deque[RecordedStep] = deque(maxlen=parts.replay)
        self._expect: Expect = {
            "best": expect_best,
            "critic": self._expect_by_critic,
            "none": expect_nothing,
        }[parts.baseline]

    def run_episode(self, cluster: SlotCluster, draw: np.random.Generator) -> list[JobRecord]:
        return run_episode(cluster, self.policy(), draw, self._parts)

    def _remember(self, latest: list[RecordedStep]) -> Sequence[RecordedStep]:
        self._memory.extend(latest)
        return list(self._memory) if self._parts.replay else latest

    def _draw_batches(self, latest: int, pool: int, draw: np.random.Generator) -> list[Ints]:
        if self._parts.replay:
            return list(draw.integers(pool, size=(-(-latest // self._batch), self._batch)))
        return super()._draw_batches(latest, pool, draw)

    def _expect_by_critic(self, record: JobRecord) -> Floats:
        expected: Floats = self._critic.expect(record.heads)
        return expected

    def _credit(self, batch: Sequence[RecordedStep]) -> Floats:
        steps = cast("Sequence[tuple[JobRecord, DrawnStep]]", batch)
        return credit_steps(steps, self._expect, per_job=self._parts.per_job)

    def _improve(self, batch: Sequence[RecordedStep]) -> None:
        super()._improve(batch)
        if self._critic is not None:
            records = cast("list[JobRecord]", list(dict.fromkeys(record for record, _ in batch)))
            self._critic.improve(
                np.concatenate([record.heads for record in records]),
                np.concatenate([record.trained for record in records]),
            )
