"""Jobs that no policy can start for now: their starts have failed, or their last pods cannot end.

Policies do not see them. What that means for their promises is told as soon as it is certain, and not
when they are next tried.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from laxity_profiler.estimate import Predictor
from laxity_scheduler.frame.remaining import Forecasts
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.decision import Promised, Wait
from laxity_scheduler.model.job import FOREVER, Job, Promise
from laxity_scheduler.model.reasons import Reason, reason

CERTAIN = frozenset({"no_try_in_time", "promise_broken"})


def hide_held_up(state: ClusterState) -> tuple[ClusterState, tuple[Job, ...]]:
    """The state without jobs that are held up, and these. It is the same object if there are none.

    Jobs that ask for a verdict stay, since their deadline was changed. So do jobs in backoff whose
    workers still terminate: their GPUs will be free, and no other job must be stopped for them.
    """
    held = tuple(job for job in state.jobs if _is_held_up(job, state.now))
    if not held:
        return state, ()
    away = {job.id for job in held}
    return replace(state, jobs=tuple(job for job in state.jobs if job.id not in away)), held


def _is_held_up(job: Job, now: float) -> bool:
    if job.workers:
        return False
    if job.cannot_end:
        return True
    return job.not_before > now and not (job.terminating_workers or job.asked)


def explain_held_up(
    held: Sequence[Job], state: ClusterState, predictor: Predictor
) -> tuple[tuple[Promised | Wait, ...], float]:
    """What is to be told about these jobs, and when to look again."""
    if not held:
        return (), FOREVER
    forecasts = Forecasts(replace(state, jobs=tuple(held)), predictor)
    told = [decision for job in held for decision in _explain(job, forecasts)]
    instants = [job.not_before for job in held if not job.cannot_end]
    instants += [job.verdict.deadline_at + 1e-3 for job in held if isinstance(job.verdict, Promise)]
    return tuple(told), min((at for at in instants if at > state.now), default=FOREVER)


def _explain(job: Job, forecasts: Forecasts) -> Iterator[Promised | Wait]:
    if isinstance(job.verdict, Promise):
        p90_at, why = _find_trouble(job, job.verdict, forecasts)
        if why is not None:
            yield Promised(job.id, replace(job.verdict, p90_at=p90_at, reason=why), why)
    if job.cannot_end:
        yield Wait(job.id, reason("pods_cannot_end", pods=job.cannot_end))


def _find_trouble(job: Job, promise: Promise, forecasts: Forecasts) -> tuple[float, Reason | None]:
    """The P90 finish, and why the promise cannot be kept; None if it can, or if that was told."""
    due_at, code = promise.deadline_at, promise.reason.code
    widths = forecasts.curve(job).widths
    rest_s, workers = min((forecasts.rest_s(job, width), width) for width in widths)
    p90_at = FOREVER if job.cannot_end else job.not_before + rest_s
    if forecasts.now > due_at and code != "promise_broken":
        return p90_at, reason("promise_broken", due_at=due_at)
    if p90_at <= due_at or code in CERTAIN:
        return p90_at, None
    if due_at <= job.not_before and not job.cannot_end:
        return p90_at, reason("no_try_in_time", try_at=job.not_before, due_at=due_at)
    if code == "promise_in_danger":
        return p90_at, None
    late = {"p90_at": p90_at, "late_s": p90_at - due_at, "workers": workers}
    return p90_at, reason("promise_in_danger", **late)
