"""What a drawn step is credited with: a reward, less what was to be expected.

    best      r - r*      r*: the slot's reward had the best-scored steps been taken (our own)
    critic    r - V(s)    V: the sum over jobs of what a critic expects each of them to train (DL2)
    none      r

`r` is the slot's reward, the same for all its steps as in DL2 (algorithms.md 6.6), or the share of its
iterations that the step's own job trained; to stop is then credited with the jobs' mean.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from laxity_lab.policy_training.step_sampler import DrawnStep
from laxity_profiler.estimate import Floats

Baseline = Literal["best", "critic", "none"]


@dataclass(frozen=True, slots=True, eq=False)
class SlotRecord:
    """The steps drawn in one slot, and what came of them.

    `jobs` could step: `heads` has a row of features for each, and `trained` the share of its iterations.
    `best_reward` is nan where nobody asked for it.
    """

    drawn: Sequence[DrawnStep]
    reward: float
    best_reward: float
    jobs: tuple[int, ...]
    heads: Floats
    trained: Floats


Expect = Callable[[SlotRecord], Floats]  # of each job, or of all of them in one number
RecordedStep = tuple[SlotRecord, DrawnStep]


def expect_best(record: SlotRecord) -> Floats:
    """What the best-scored steps would have earned together, (1,)."""
    return np.array([record.best_reward])


def expect_nothing(record: SlotRecord) -> Floats:
    return np.zeros(len(record.jobs))


def credit_steps(steps: Sequence[RecordedStep], expect: Expect, *, per_job: bool) -> Floats:
    """Shape (n,): each step's credit."""
    expected = {record: expect(record) for record in dict.fromkeys(record for record, _ in steps)}
    credit = _credit_own_job if per_job else _credit_slot
    return np.array([credit(record, step, expected[record]) for record, step in steps])


def _credit_slot(record: SlotRecord, _: DrawnStep, expected: Floats) -> float:
    return record.reward - float(expected.sum())


def _credit_own_job(record: SlotRecord, step: DrawnStep, expected: Floats) -> float:
    surplus = record.trained - expected
    return float(surplus.mean() if step.job is None else surplus[record.jobs.index(step.job)])
