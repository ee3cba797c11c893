"""Promises of waiting jobs that moved, still in time, and do not stand on their Jobs yet.

While others end sooner or later than planned, the P90 finish of each job that waits moves again and
again. Plans go by the newest promise at once: an older one is stale. Its Job is written with the next
thing that is said of it, at the latest `WITHIN_S` after the first move. They are known in memory only:
a service that starts anew finds the promise as it is written, and that it has moved.
"""

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, replace
from typing import Final

from laxity import json_tree, names
from laxity_k8s.cluster_api import Json
from laxity_k8s.objects.status_annotation import read_verdict
from laxity_scheduler.model.decision import Decision, Promised, Wait
from laxity_scheduler.model.job import FOREVER, Job, Promise
from laxity_scheduler.model.reasons import reason

WITHIN_S: Final = 60.0
CODE: Final = "promise_moved"


@dataclass(frozen=True, slots=True)
class Moved:
    """What stands on the Job, what became of it, and when it moved first."""

    written: str
    decision: Promised
    since: float


class MovedPromises:
    """By the Job's id. `look_again` is asked for the row of a Job whose promise moved."""

    def __init__(self, look_again: Callable[[str], None]) -> None:
        self._look_again = look_again
        self._held: dict[str, Moved] = {}

    def hold_back(self, job: Json, row: Job, decisions: Sequence[Decision], now: float) -> bool:
        """Whether these say no more than that its promise moved, which can wait; it is kept then."""
        moves = [decision for decision in decisions if not isinstance(decision, Wait)]
        if row.workers or len(moves) != 1:
            return False
        (move,) = moves
        if not isinstance(move, Promised) or move.reason.code != CODE:
            return False
        held = self._held.get(row.id)
        since = now if held is None else held.since
        if now >= since + WITHIN_S:
            return False
        self._held[row.id] = Moved(_read_verdict(job), move, since)
        self._look_again(row.id)
        return True

    def apply_to(self, row: Job, job: Json) -> Job:
        """The row with the promise as it is now."""
        held = self._held.get(row.id)
        if held is None:
            return row
        promise, old = held.decision.promise, row.verdict
        stands = isinstance(old, Promise) and old.deadline_at == promise.deadline_at
        if not stands or _read_verdict(job) != held.written:
            del self._held[row.id]
            return row
        return replace(row, verdict=promise)

    def forget(self, job_id: str) -> None:
        self._held.pop(job_id, None)

    def due_at(self, job_id: str, now: float) -> float:
        """When its Job is to be written at the latest; FOREVER once that is over: with the next word."""
        held = self._held.get(job_id)
        due_at = FOREVER if held is None else held.since + WITHIN_S
        return due_at if due_at > now else FOREVER

    def is_due(self, job_id: str, now: float) -> bool:
        held = self._held.get(job_id)
        return held is not None and now >= held.since + WITHIN_S

    def take_held(
        self, job: Json, decisions: Sequence[Decision]
    ) -> tuple[Promised | None, list[Decision]]:
        """What is held back of this Job, for it is written now; and its decisions.

        Both say how far its promise moved from what stands on the Job.
        """
        held, written = self._held.pop(json_tree.object_id(job), None), read_verdict(job)
        if held is None or not isinstance(written, Promise):
            return None, [*decisions]
        rebased = [
            _find_move(written, decision)
            if isinstance(decision, Promised) and decision.reason.code == CODE
            else decision
            for decision in decisions
        ]
        return _find_move(written, held.decision), rebased

    def keep_only(self, job_ids: Container[str]) -> None:
        """Forget all other Jobs."""
        self._held = {key: held for key, held in self._held.items() if key in job_ids}


def _find_move(written: Promise, decision: Promised) -> Promised:
    promise = decision.promise
    move_reason = reason(CODE, moved_s=promise.p90_at - written.p90_at, p90_at=promise.p90_at)
    return replace(decision, promise=replace(promise, reason=move_reason), reason=move_reason)


def _read_verdict(job: Json) -> str:
    return str(json_tree.annotations_of(job).get(names.VERDICT, ""))
