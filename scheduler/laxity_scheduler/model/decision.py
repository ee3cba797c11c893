"""What may be decided about a job or a node: a closed union of values, each with its reason."""

from dataclasses import dataclass
from typing import Literal

from laxity_scheduler.model.job import FOREVER, Forecast, Job, Promise, Refusal, Verdict
from laxity_scheduler.model.reasons import Reason

When = Literal["now", "epoch"]


@dataclass(frozen=True, slots=True)
class Promised:
    """A promise is given, or an old one moved (the runs re-planned, the deadline the same)."""

    job: str
    promise: Promise
    reason: Reason


@dataclass(frozen=True, slots=True)
class Forecasted:
    job: str
    forecast: Forecast
    reason: Reason


@dataclass(frozen=True, slots=True)
class Refuse:
    """Nothing is promised. A promise whose deadline is still ahead stands: see `verdict_after`."""

    job: str
    refusal: Refusal
    reason: Reason


@dataclass(frozen=True, slots=True)
class Wait:
    """Why the job does not run, which jobs hold what it waits for, and until when. Given on changes."""

    job: str
    reason: Reason
    held_by: tuple[str, ...] = ()
    expected_start_at: float = FOREVER


@dataclass(frozen=True, slots=True)
class Admit:
    """Start or resume on free GPUs; `nodes` names one node per worker."""

    job: str
    workers: int
    nodes: tuple[str, ...]
    reason: Reason


@dataclass(frozen=True, slots=True)
class Resize:
    """Change a running job's width; `nodes` names one node per worker of the new width.

    Growth is at "now": new pods start while the others train, and join at an epoch's end. Shrinking
    is asked at "epoch" (the workers re-form first) and carried out by a later Resize at "now".
    """

    job: str
    workers: int
    nodes: tuple[str, ...]
    at: When
    reason: Reason


@dataclass(frozen=True, slots=True)
class Preempt:
    """Stop a running job: asked for the end of its epoch, or at once. Its GPUs go to `beneficiary`."""

    job: str
    at: When
    beneficiary: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class Continue:
    """Withdraw a stop that was requested for the end of an epoch: no job needs it any more."""

    job: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class Loan:
    """Take inference nodes for training (Aryl)."""

    nodes: tuple[str, ...]
    reason: Reason


@dataclass(frozen=True, slots=True)
class Reclaim:
    """Hand loaned nodes back (Aryl)."""

    nodes: tuple[str, ...]
    reason: Reason


Decision = (
    Promised | Forecasted | Refuse | Wait | Admit | Resize | Preempt | Continue | Loan | Reclaim
)


def verdict_after(job: Job, decision: Promised | Forecasted | Refuse, now: float) -> Verdict:
    """The verdict on the job after the decision; every World writes this.

    A refusal does not revoke a promise whose deadline is still ahead: a job that asks for another
    deadline and is refused keeps the old one (`promise.deadline_at`, not `job.deadline_at`).
    """
    if isinstance(decision, Promised):
        return decision.promise
    if isinstance(decision, Forecasted):
        return decision.forecast
    old = job.verdict
    if isinstance(old, Promise) and now <= old.deadline_at:
        return old
    return decision.refusal
