"""Why waiting jobs wait, for whom, and until when; thousands of them say one of a few things."""

from collections.abc import Mapping
from functools import cache
from typing import Final

from laxity_scheduler.bargain import Bargain
from laxity_scheduler.bulk import built
from laxity_scheduler.decision import Wait
from laxity_scheduler.queueing import Waiting
from laxity_scheduler.reasons import Reason, reason
from laxity_scheduler.state import FOREVER

MOST_HOLDERS: Final = 5
Why = tuple[Reason, tuple[str, ...]]  # and who holds what is waited for


def waits_said(
    bargain: Bargain, holders: tuple[str, ...], free_gpus: int, starts_s: Mapping[str, float]
) -> list[Wait]:
    """Of all that are blocked. `holders` are those that end soonest."""
    claims = bargain.reservations.claims[:MOST_HOLDERS]
    promised = tuple([claim.job.id for claim in claims])
    held = reason("held_for_promises", holders=", ".join(promised)), promised

    @cache
    def missing(needed_gpus: int, gpus_per_worker: int) -> Why:
        why = reason(
            "no_free_gpus",
            needed_gpus=needed_gpus,
            gpus_per_worker=gpus_per_worker,
            free_gpus=free_gpus,
        )
        return why, holders

    def why_of(one: Waiting) -> Why:
        victims = bargain.waits_for.get(one.job.id, ())
        if victims:
            return reason("waits_for_preempted", holders=", ".join(victims)), victims
        size = one.job.gpus_per_worker
        needed = one.workers * size
        if needed <= state_free and one.rank != "promised":
            return held
        return missing(needed, size)

    state_free, now = bargain.state.free_gpus, bargain.now
    names = [one.job.id for one in bargain.blocked]
    told = list(map(why_of, bargain.blocked))
    return built(
        Wait,
        names,
        [why for why, _ in told],
        [whom for _, whom in told],
        [now + starts_s.get(name, FOREVER) for name in names],
    )
