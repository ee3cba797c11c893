"""Measures what a learned policy reaches, and what its teacher would have reached meanwhile.

    reward of a slot = sum over jobs of the share of their epochs trained in it   (algorithms.md 6.6)

What the policy in force reached is measured: epochs that ended, and of the running epoch the share
that is predicted to be done, so that long epochs do not count late. Its teacher decides about the same
snapshots, and what it would have reached is predicted from its widths; a change of width costs it the
predicted time to re-form or start. Where trainings on unchanged widths run slower or faster than
predicted, the teacher is taken to be as much slower or faster. It keeps promises as the policy must, so
nobody is blamed for GPUs that promises need. The policy falls short when the rewards
of the last 20 slots are together less than 0.9 of the teacher's (6.10).

A slot is as long as the median epoch of the running jobs, so that it holds something to measure, and
between 5 s and the paper's 20 minutes (our own: the paper's slots are fixed).
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Final, Self

from laxity_profiler.estimate import Predictor
from laxity_scheduler.frame.remaining import Forecasts
from laxity_scheduler.learned.promise_floors import deal_as_teacher
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.job import Job
from laxity_scheduler.shares.floors_on_own_nodes import plan_floors
from laxity_scheduler.width_comparison import training_rate

SLOTS: Final = 20
LEAST_SHARE: Final = 0.9  # of the teacher's reward
SHORTEST_SLOT_S, LONGEST_SLOT_S = 5.0, 1_200.0
MOST_CALIBRATION: Final = 2.0  # slower or faster than predicted


@dataclass(slots=True)
class SlotReward:
    """Shares of whole trainings, summed over jobs; `steady_*` are of unchanged widths only."""

    measured: float = 0.0
    teacher: float = 0.0
    steady_measured: float = 0.0
    steady_predicted: float = 0.0

    def __iadd__(self, other: "SlotReward") -> Self:
        self.measured += other.measured
        self.teacher += other.teacher
        self.steady_measured += other.steady_measured
        self.steady_predicted += other.steady_predicted
        return self


@dataclass(frozen=True, slots=True)
class RewardComparison:
    """Rewards of `slots` slots; `teacher` is calibrated by how fast trainings really ran."""

    slots: int
    measured: float
    teacher: float

    @property
    def falls_short(self) -> bool:
        return self.slots >= SLOTS and self.measured < LEAST_SHARE * self.teacher


@dataclass(frozen=True, slots=True)
class JobPace:
    """One job in a snapshot. Rates are shares of its training per second.

    `rate` is that of the width at which it trains now, 0 where it does not; `trains_at` is that
    width. The teacher's width begins to train at `teacher_at`.
    """

    done: float
    epoch_share: float
    rate: float
    trains_at: int
    teacher_width: int
    teacher_rate: float
    teacher_at: float


@dataclass(slots=True)
class RewardGuard:
    """Compares a policy with its teacher, snapshot by snapshot."""

    teacher: str
    _slots: deque[SlotReward] = field(default_factory=lambda: deque(maxlen=SLOTS))
    _open: SlotReward = field(default_factory=SlotReward)
    _opened_at: float = 0.0
    _slot_s: float = SHORTEST_SLOT_S
    _now: float = 0.0
    _paces: Mapping[str, JobPace] = field(default_factory=dict)

    def observe(self, state: ClusterState, predictor: Predictor) -> None:
        """Count what happened since the last snapshot, and ask the teacher about this one."""
        forecasts = Forecasts(state, predictor)
        plans = plan_floors(state, predictor)
        jobs, widths = deal_as_teacher(self.teacher, state, forecasts, plans)
        teacher_widths = {job.id: widths.get(job.id, 0) for job in jobs}
        paces = read_paces(state, forecasts, teacher_widths, self._paces)
        if not self._paces:  # nothing trained or waited: no slot passes
            self._open, self._opened_at = SlotReward(), state.now
            self._slot_s = slot_length_s(state, forecasts)
        else:
            self._open += reward_between(self._paces, paces, self._now, state.now)
            if state.now - self._opened_at >= self._slot_s:
                self._slots.append(self._open)
                self._open, self._opened_at = SlotReward(), state.now
                self._slot_s = slot_length_s(state, forecasts)
        self._now, self._paces = state.now, paces

    @property
    def comparison(self) -> RewardComparison:
        """Over the slots that are kept."""
        total = SlotReward()
        for slot in self._slots:
            total += slot
        calibration = 1.0
        if total.steady_predicted > 0.0:
            calibration = total.steady_measured / total.steady_predicted
            calibration = min(MOST_CALIBRATION, max(1.0 / MOST_CALIBRATION, calibration))
        return RewardComparison(len(self._slots), total.measured, calibration * total.teacher)


def read_paces(
    state: ClusterState,
    forecasts: Forecasts,
    teacher_widths: Mapping[str, int],
    before: Mapping[str, JobPace],
) -> dict[str, JobPace]:
    """Each job's progress and rates; jobs whose width nobody may change keep the teacher's last."""
    paces = {}
    for job in state.jobs:
        last = before.get(job.id)
        held = job.workers if last is None else last.teacher_width
        width = teacher_widths.get(job.id, held)
        paces[job.id] = _read_pace(job, state.now, forecasts, width, last)
    return paces


def reward_between(
    before: Mapping[str, JobPace], after: Mapping[str, JobPace], since: float, now: float
) -> SlotReward:
    """What was trained from one snapshot to the next; a job that is gone has ended its last epoch."""
    reward = SlotReward()
    for job, pace in before.items():
        later = after.get(job)
        predicted = pace.rate * (now - since)
        if later is not None:
            measured = later.done - pace.done
        else:
            left = 1.0 - pace.done
            measured = left if left <= pace.epoch_share else min(left, predicted)
        reward.measured += measured
        useful_s = max(0.0, now - max(since, pace.teacher_at))
        reward.teacher += min(1.0 - pace.done, pace.teacher_rate * useful_s)
        if later is not None and pace.rate and later.trains_at == pace.trains_at:
            reward.steady_measured += measured
            reward.steady_predicted += predicted
    return reward


def slot_length_s(state: ClusterState, forecasts: Forecasts) -> float:
    """The median epoch of the running jobs, within bounds."""
    epochs_s = [forecasts.curve(job).epoch_s(job.workers, "mean") for job in state.running]
    return min(LONGEST_SLOT_S, max(SHORTEST_SLOT_S, median(epochs_s))) if epochs_s else 0.0


def _read_pace(
    job: Job, now: float, forecasts: Forecasts, teacher_width: int, last: JobPace | None
) -> JobPace:
    epochs, curve = max(1, job.workload.epochs), forecasts.curve(job)
    phi = max(0.0, forecasts.phi(job, "mean"))
    trains_at = job.formed or job.workers if job.epoch_started_at is not None else 0

    held = job.workers if last is None else last.teacher_width
    teacher_at = 0.0 if last is None else last.teacher_at
    if teacher_width and teacher_width != held:
        change_s = curve.reform_s if held else curve.start_s
        teacher_at = now + change_s(teacher_width, "mean")
    return JobPace(
        done=min(1.0, (job.progress.epochs_done + phi) / epochs),
        epoch_share=1.0 / epochs,
        rate=training_rate(job, curve, trains_at),
        trains_at=trains_at,
        teacher_width=teacher_width,
        teacher_rate=training_rate(job, curve, teacher_width),
        teacher_at=teacher_at,
    )
