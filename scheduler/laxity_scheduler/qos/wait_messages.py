"""Who starts, and why the others wait, for whom, and until when.

Thousands of those that wait are told one of a few things.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import islice
from typing import Final

from laxity_scheduler.capacity.eligibility import (
    misfit_reason,
    never_starts,
    no_free_gpus,
    requests_full,
)
from laxity_scheduler.frame.arrays import construct_many
from laxity_scheduler.frame.fields import WAITING
from laxity_scheduler.model.decision import Admit, Refuse, Wait
from laxity_scheduler.model.job import FOREVER, WorkerShape
from laxity_scheduler.model.reasons import Reason, reason
from laxity_scheduler.promising.queueing import Waiting, predict_starts
from laxity_scheduler.qos.context import DecisionContext
from laxity_scheduler.qos.start_widths import start_reasons

MOST_EXPECTED: Final = 1_000  # so many waiting jobs are told when they may expect to start
MOST_HOLDERS: Final = 5
Why = tuple[Reason, tuple[str, ...]]  # and who holds what is waited for


def say_starts(context: DecisionContext) -> None:
    """All that start, on the widths and nodes that they have in the end."""
    starts = list(context.starts.values())
    if starts:
        columns = zip(*[(start.workers, start.nodes) for start in starts], strict=True)
        reasons = start_reasons(context, starts)
        context.decisions += construct_many(Admit, context.starts, *columns, reasons)


def expect_starts(context: DecisionContext, queue: Sequence[Waiting]) -> dict[str, float]:
    """In how many seconds those that are blocked may expect to start."""
    if not context.blocked:
        return {}
    return predict_starts(queue[:MOST_EXPECTED], context.reservations, context.state)


def say_waits(context: DecisionContext, starts_s: Mapping[str, float]) -> None:
    """Of those that no node will ever do for, then of all that are blocked."""
    if context.state.sets:
        context.decisions += _never(context)
    if context.blocked:
        context.decisions += _waits(context, starts_s)


def _never(context: DecisionContext) -> list[Wait]:
    frame = context.forecasts.frame
    refused = {d.job for d in context.decisions if isinstance(d, Refuse)}
    waiting = [job for job in frame.where(frame.column(WAITING) > 0.0) if not job.refused]
    misfits = [
        (job.id, misfit_reason(context.state, job)) for job in waiting if job.id not in refused
    ]
    return [Wait(name, misfit) for name, misfit in misfits if misfit is not None]


def _waits(context: DecisionContext, starts_s: Mapping[str, float]) -> list[Wait]:
    state = context.state
    held = _explain_promise_holds(context)

    @cache
    def there(eligible: str) -> tuple[int, int, tuple[str, ...]]:
        """GPUs free in the snapshot and now on the nodes of a set, and who ends soonest on them."""
        may = state.nodes_of_set(eligible)
        free = state.capacity(eligible).free_gpus
        holders = context.reservations.room.rows.first_to_end(MOST_HOLDERS, may)
        return free, context.ledger.free_among(may), holders

    @cache
    def missing(needed_gpus: int, gpus_per_worker: int, eligible: str) -> Why:
        _, free, holders = there(eligible)
        free = 0 if free >= needed_gpus and gpus_per_worker == 1 else free  # kept for others
        needs = {"needed_gpus": needed_gpus, "gpus_per_worker": gpus_per_worker}
        return no_free_gpus(state, eligible, **needs, free_gpus=free), holders

    quota_left = _quota_left(context) if state.quotas else {}

    @cache
    def within(quota: str) -> Why:
        holders = (job.id for job in state.running if job.quota == quota)
        return reason("quota_used_up", quota=quota), tuple(islice(holders, MOST_HOLDERS))

    never: dict[tuple[str, int, WorkerShape], Reason | None] = {}  # thousands are of a few kinds

    def why_of(one: Waiting) -> Why:
        kind = one.job.eligible, one.job.widths[0], one.job.shape
        if kind not in never:
            never[kind] = never_starts(state, one.job)
        why_never = never[kind]
        if why_never is not None:
            return why_never, ()
        victims = context.waits_for.get(one.job.id, ())
        if victims:
            return reason("waits_for_preempted", holders=", ".join(victims)), victims
        size, eligible = one.job.gpus_per_worker, one.job.eligible
        needed = one.workers * size
        if one.job.quota in quota_left and needed > quota_left[one.job.quota]:
            return within(one.job.quota)
        if held[1] and needed <= there(eligible)[0] and one.rank != "promised":
            return held
        return _requests_full(context, one) or missing(needed, size, eligible)

    names = [waiter.job.id for waiter in context.blocked]
    reasons = list(map(why_of, context.blocked))
    return construct_many(
        Wait,
        names,
        [cause for cause, _ in reasons],
        [whom for _, whom in reasons],
        [context.now + starts_s.get(name, FOREVER) for name in names],
    )


def _requests_full(context: DecisionContext, one: Waiting) -> Why | None:
    """Why it waits, and for whom, where enough GPUs are free for it and anything else is not."""
    why = requests_full(context.ledger, one.job, one.workers, context.state)
    if why is None:
        return None
    may = context.state.eligible_nodes(one.job)
    return why, context.reservations.room.rows.first_to_end(MOST_HOLDERS, may)


def _explain_promise_holds(context: DecisionContext) -> Why:
    """What a job is told that would fit, but on GPUs that promises are counted on."""
    jobs = context.reservations.claims.jobs
    to_start = islice((job for job in jobs if not job.workers), MOST_HOLDERS)
    promised = tuple([job.id for job in tuple(to_start) or jobs[:MOST_HOLDERS]])
    return reason("held_for_promises", holders=", ".join(promised)), promised


def _quota_left(context: DecisionContext) -> Mapping[str, int]:
    """GPUs that quotas leave when all that start now have started."""
    left = Counter(context.state.quota_left)
    for start in context.starts.values():
        if start.waiting.job.quota in left:
            left[start.waiting.job.quota] -= start.workers * start.waiting.job.gpus_per_worker
    return left
