"""Jobs that are left out of what is observed, until somebody else changes them.

Those whose patch the API server has refused are tried again after a while, too: a quota or a webhook
may let them through by then. They are known in memory only: a service that starts anew finds out
again.
"""

from dataclasses import dataclass, replace
from typing import Any, Final

from laxity import json_tree, names
from laxity.backoff import Backoff
from laxity_k8s.cluster_api import Json
from laxity_scheduler.model.job import FOREVER
from laxity_scheduler.model.reasons import format_utc

OURS = frozenset({*names.OUTPUTS, names.VERDICT_LABEL, names.CLASS_LABEL})
BACKOFF: Final = Backoff(first_s=60.0, longest_s=3600.0)


@dataclass(frozen=True, slots=True)
class Rejection:
    """What is wrong, what the Job's user said when that was found, and when it is tried again."""

    problem: str
    asked: tuple[Any, ...]
    times: int = 1
    again_at: float = FOREVER


class Rejections:
    """The rejection of each Job, by its id."""

    def __init__(self) -> None:
        self._found: dict[str, Rejection] = {}

    def add(self, job: Json, problem: str, *, now: float = 0.0, tries_again: bool = False) -> bool:
        """Leave this Job out; whether that is news. `tries_again`: for 1, 2, 4, ... minutes."""
        job_id, new = json_tree.object_id(job), Rejection(problem, inputs_of(job))
        old = self._found.get(job_id)
        if old is not None and old.asked == new.asked:
            new = replace(new, times=old.times + (now >= old.again_at), again_at=old.again_at)
            if new == old:
                return False
        if tries_again and (old is None or new.times != old.times or new.asked != old.asked):
            new = replace(new, again_at=now + BACKOFF.delay_s(new.times))
        self._found[job_id] = new
        return True

    def problem(self, job: Json, now: float = 0.0) -> str:
        """Why this Job is left out; "" if it is not, was changed since, or is tried again."""
        if not self._found:  # as nearly always
            return ""
        job_id = json_tree.object_id(job)
        rejection = self._found.get(job_id)
        if rejection is None or now >= rejection.again_at:
            return ""
        if rejection.asked != inputs_of(job):
            del self._found[job_id]
            return ""
        if rejection.again_at == FOREVER:
            return rejection.problem
        return f"{rejection.problem} (tried again at {format_utc(rejection.again_at)})"

    def again_at(self, job_id: str) -> float:
        """When it is tried again; FOREVER if that is never."""
        rejection = self._found.get(job_id)
        return FOREVER if rejection is None else rejection.again_at

    def forget(self, job_id: str) -> None:
        self._found.pop(job_id, None)


def inputs_of(job: Json) -> tuple[Any, ...]:
    """All of a Job that others than laxity write."""
    annotations, labels = json_tree.annotations_of(job), json_tree.labels_of(job)
    return (
        json_tree.get_in(job, "metadata", "uid"),
        json_tree.mapping_at(job, "spec"),
        {key: annotations[key] for key in annotations if key not in OURS},
        {key: labels[key] for key in labels if key not in OURS},
    )
