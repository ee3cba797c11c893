"""A fast cluster for reinforcement: jobs of throughput tables on a pool of GPUs, slot by slot.

Within a slot widths stay; slots are shorter where most jobs are shorter than one. A job that changed its width trains less by what a stop and a start cost
(model `live`). There are no nodes, no epochs and no predictor: what a policy is told is the truth.
"""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from laxity_lab.policy_training.step_walk import StepWalk
from laxity_lab.traces.traces import TraceJob
from laxity_scheduler.learned.allocation_loop import (
    Take,
    Widen,
    allocate,
    count_gpus,
    give_least_widths,
    widen_best,
)
from laxity_scheduler.learned.job_features import JobNumbers, describe_steps
from laxity_scheduler.learned.scoring_net import ScoringNet
from laxity_scheduler.simulated.change_costs import costs

Reward = Literal["jct", "deadlines"]
SLOT_S: Final = 600.0
LEAST_SLOT_S: Final = 60.0
SLOTS_A_JOB: Final = 9  # as slots of ten minutes have where the median job takes 90
MOST_SLOTS: Final = 5_000


class SlotCluster:
    """Jobs that arrive, train and end. All of them have a table; each worker is one GPU.

    `missed` are the deadlines that have passed before their jobs ended; `trained` are the shares of
    their iterations that jobs trained in the last slot, in the order of its decision; `actions` are
    the steps and stops of `decide`.
    """

    def __init__(self, jobs: Sequence[TraceJob], gpus: int, reward: Reward = "jct") -> None:
        self.gpus = gpus
        self.reward: Reward = reward
        self.missed: set[str] = set()
        self.trained: list[float] = []
        self.actions = 0
        self.slot_s = choose_slot_s(jobs)
        self.now = 0.0
        self.jct_s: list[float] = []
        self._waiting = list(jobs)
        self._live: list[TraceJob] = []
        self._left: list[float] = []  # of each live job's iterations, a share
        self._workers: list[int] = []
        self._costs = costs("live", cluster_gpus=gpus)
        self._admit()

    def copy(self) -> "SlotCluster":
        """The same cluster, to see what another decision leads to."""
        return deepcopy(self, {id(job): job for job in (*self._live, *self._waiting)})

    @property
    def done(self) -> bool:
        return not self._live and not self._waiting

    def observe(self) -> list[JobNumbers]:
        """Unfinished jobs in order of submission."""
        numbers = []
        for job, left, workers in zip(self._live, self._left, self._workers, strict=True):
            widths, rest_s = _curve(job)
            numbers.append(
                JobNumbers(
                    widths,
                    tuple([left * seconds for seconds in rest_s]),
                    left=left,
                    workers=workers,
                    reform_s=self._costs.stop_s(widths[0]),
                    spare_s=job.deadline_at - self.now,
                )
            )
        return numbers

    def decide(self, net: ScoringNet, widen: Widen = widen_best) -> list[int]:
        """Workers of each job, by the allocation loop of the policy."""
        jobs = self.observe()
        widths = allocate(
            net,
            jobs,
            _make_take(self.gpus),
            free_gpus=self.gpus,
            cluster_gpus=self.gpus,
            widen=widen,
        )
        taken = [job.widths.index(width) for job, width in zip(jobs, widths, strict=True) if width]
        self.actions += sum(taken) + 1
        return widths

    def begin_walk(self) -> StepWalk:
        """All steps that jobs can take in this slot, once each job has its least width."""
        jobs = self.observe()
        widths = give_least_widths(jobs, _make_take(self.gpus))
        free_gpus = self.gpus - count_gpus(jobs, widths)
        steps = describe_steps(jobs, cluster_gpus=self.gpus, free_gpus=free_gpus)
        return StepWalk(steps, widths, free_gpus)

    def train(self, widths: Sequence[int]) -> float:
        """One slot. The reward (6.6): the sum of the shares of their iterations that jobs trained.

        Of `deadlines`: less 1 for each deadline missed in the slot, so that a job which is late has
        earned nothing by its end.
        """
        self.trained, ends, late = [0.0] * len(self._live), [], len(self.missed)
        for number, (job, width) in enumerate(zip(self._live, widths, strict=True)):
            lost_s = 0.0
            if width and width != self._workers[number]:
                lost_s = self._costs.start_s(width)
                if self._workers[number]:
                    lost_s += self._costs.stop_s(self._workers[number])
            self._workers[number] = width
            if width:
                levels, rest_s = _curve(job)
                alone_s = rest_s[levels.index(width)]
                share = min(self._left[number], max(0.0, self.slot_s - lost_s) / alone_s)
                self._left[number] -= share
                self.trained[number] = share
                if self._left[number] <= 0.0:
                    ended_at = self.now + lost_s + share * alone_s
                    self.jct_s.append(ended_at - job.submitted_at)
                    ends.append(number)
                    if ended_at > job.deadline_at:
                        self.missed.add(job.id)
        for number in reversed(ends):
            del self._live[number], self._left[number], self._workers[number]
        self.now += self.slot_s
        self.missed.update(job.id for job in self._live if job.deadline_at < self.now)
        self._admit()
        return sum(self.trained) - (len(self.missed) - late if self.reward == "deadlines" else 0)

    def _admit(self) -> None:
        """Jobs submitted by now; an empty cluster waits for the next one."""
        if not self._live and self._waiting:
            self.now = max(self.now, self._waiting[0].submitted_at)
        while self._waiting and self._waiting[0].submitted_at <= self.now:
            self._live.append(self._waiting.pop(0))
            self._left.append(1.0)
            self._workers.append(0)


def choose_slot_s(jobs: Sequence[TraceJob]) -> float:
    """Ten minutes; where the median job takes less, a part of what it takes."""
    median_s = float(np.median([job.duration_s for job in jobs])) if jobs else SLOT_S
    return SLOT_S if median_s >= SLOT_S else max(LEAST_SLOT_S, median_s / SLOTS_A_JOB)


@dataclass(frozen=True, slots=True)
class WorldOutcome:
    """Seconds from submission to end, mean over all jobs, and the share of jobs that were late.

    `actions`: steps and stops of all slots.
    """

    mean_jct_s: float
    missed: float
    actions: int = 0


def run_in_slots(jobs: Sequence[TraceJob], gpus: int, net: ScoringNet) -> WorldOutcome:
    """What comes of a world in which the net decides alone."""
    cluster = SlotCluster(jobs, gpus)
    for _ in range(MOST_SLOTS):
        if cluster.done:
            break
        cluster.train(cluster.decide(net))
    mean_jct_s = sum(cluster.jct_s) / max(1, len(cluster.jct_s))
    return WorldOutcome(mean_jct_s, len(cluster.missed) / max(1, len(jobs)), cluster.actions)


def _curve(job: TraceJob) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Widths worth having, and seconds of the whole training at each."""
    table = job.table
    if table is None:
        raise ValueError(f"job {job.id} has no throughput table")
    return table.levels, tuple([job.iterations / table.speed(level) for level in table.levels])


def _make_take(gpus: int) -> Take:
    left = [gpus]

    def take(_: int, before: int, after: int) -> bool:
        if after - before > left[0]:
            return False
        left[0] -= after - before
        return True

    return take
