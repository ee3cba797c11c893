"""Finds the Jobs on which a decision fails, leaves them out, and decides about all others.

A decision that raises does not say which Job caused it. So the Jobs are halved. A half that can be
decided beside the Jobs already known to be sound is sound as well; a half that cannot is halved again.
Older Jobs are tried first: of two that fail only together, the newer one is left out. For k faulty
Jobs of n that takes O(k log n) decisions, and none as long as nothing raises.

GPUs of a Job that is left out stay counted: nodes are as they were observed.

The policy itself may be wrong. That is assumed if it can decide about none of several Jobs, or neither
about the only Job nor about a plain one; then nothing is decided. It is also assumed if the policy
fails on many Jobs about which it has decided before; those are left out unchanged.
"""

from collections.abc import Callable, Container
from dataclasses import dataclass, replace
from typing import Final, Generic, TypeVar

from laxity_profiler.estimate import Workload
from laxity_scheduler.job_faults import error_text
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.job import Job

Result = TypeVar("Result")
Jobs = tuple[Job, ...]
PLAIN: Final = "laxity/plain"
MAX_NEWLY_FAULTY: Final = 8  # Jobs that were decided about before and, one by one, no longer can be


class PolicyFaultError(RuntimeError):
    """The policy can decide about no Job at all."""


@dataclass(frozen=True, slots=True)
class FaultyJob:
    """A Job that is left out, and the error about it."""

    row: Job
    error: Exception

    @property
    def job(self) -> str:
        return self.row.id

    @property
    def was_judged(self) -> bool:
        """Whether something was decided about it before."""
        return self.row.verdict is not None or self.row.workers > 0

    @property
    def problem(self) -> str:
        return f"laxity cannot decide about this Job: {error_text(self.error)}"


@dataclass(frozen=True, slots=True)
class PartialDecision(Generic[Result]):
    """The result for the state without its faulty jobs."""

    state: ClusterState
    made: Result
    faulty: tuple[FaultyJob, ...]

    @property
    def policy_fault(self) -> str:
        """What is wrong with the policy; "" if each error is the fault of its Job."""
        turned = [faulty_job for faulty_job in self.faulty if faulty_job.was_judged]
        if len(turned) <= MAX_NEWLY_FAULTY:
            return ""
        return (
            f"the policy fails on {len(turned)} jobs that it has decided about before, which are left "
            f"as they are: {error_text(turned[0].error)}"
        )

    @property
    def to_reject(self) -> tuple[FaultyJob, ...]:
        """The faulty jobs that are to be rejected: all, but if the policy is wrong only new ones."""
        spares = bool(self.policy_fault)
        return tuple(
            faulty_job for faulty_job in self.faulty if not (spares and faulty_job.was_judged)
        )


def decide_without_faulty(
    state: ClusterState, decide: Callable[[ClusterState], Result]
) -> PartialDecision[Result]:
    """What `decide` makes of all Jobs about which it does not raise.

    PolicyFaultError if that is none of them, and they are not to blame.
    """
    search = _Search(state, decide)
    sound = search.sound_jobs((), state.jobs)
    if not sound and search.faulty and (len(search.faulty) > 1 or not search.decides_plain_job()):
        first_error = error_text(search.faulty[0].error)
        raise PolicyFaultError(f"the policy fails on every job, so none is refused: {first_error}")
    return PartialDecision(state_with_only(state, sound), search.made, tuple(search.faulty))


def state_with_only(state: ClusterState, jobs: Jobs) -> ClusterState:
    """The state with only these of its jobs; nodes stay as they were, holds of others are dropped."""
    if len(jobs) == len(state.jobs):
        return state
    names = {job.id for job in jobs}
    holds = tuple(hold for hold in state.holds if hold.job in names)
    return replace(state, jobs=jobs, holds=holds)


def state_without(state: ClusterState, jobs: Container[str]) -> ClusterState:
    """The state without these of its jobs."""
    return state_with_only(state, tuple([job for job in state.jobs if job.id not in jobs]))


class _Search(Generic[Result]):
    """`made` is what was made of the sound jobs so far."""

    def __init__(self, state: ClusterState, decide: Callable[[ClusterState], Result]) -> None:
        self._state, self._decide = state, decide
        self.faulty: list[FaultyJob] = []
        try:
            self.made = decide(state_with_only(state, ()))
        except Exception as error:
            message = f"the policy fails even without a job: {error_text(error)}"
            raise PolicyFaultError(message) from error

    def decides_plain_job(self) -> bool:
        """Whether it can be decided about a plain Job."""
        now = self._state.now
        work = Workload(PLAIN, epochs=1, user_epoch_s=60.0)
        plain = Job(PLAIN, work, submitted_at=now, queued_at=now, since=now)
        try:
            self._decide(replace(state_with_only(self._state, ()), jobs=(plain,)))
        except Exception:  # noqa: BLE001 - whatever it is, it is not that Job's
            return False
        return True

    def sound_jobs(self, sound: Jobs, suspects: Jobs) -> Jobs:
        """The jobs that are kept and those of the suspects that can be decided on beside them."""
        if not suspects:
            return sound
        try:
            self.made = self._decide(state_with_only(self._state, sound + suspects))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this Job's
            if len(suspects) == 1:
                self.faulty.append(FaultyJob(suspects[0], error))
                return sound
        else:
            return sound + suspects
        half = len(suspects) // 2
        return self.sound_jobs(self.sound_jobs(sound, suspects[:half]), suspects[half:])
