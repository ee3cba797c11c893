"""Jobs that are left out of what is observed, until somebody else changes them.

They are known in memory only: a service that starts anew finds out again.
"""

from typing import Any

from laxity import names
from laxity_k8s import merge
from laxity_k8s.api import Json

OURS = frozenset({*names.OUTPUTS, names.VERDICT_LABEL, names.CLASS_LABEL})


class Rejections:
    """What is wrong with each, by Job id, and what its user said when that was found."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[str, tuple[Any, ...]]] = {}

    def add(self, job: Json, problem: str) -> bool:
        """Leave this Job out; whether that is news."""
        job_id, new = merge.identity(job), (problem, _asked(job))
        if self._found.get(job_id) == new:
            return False
        self._found[job_id] = new
        return True

    def problem(self, job: Json) -> str:
        """Why this Job is left out; "" if it is not, or was changed since."""
        if not self._found:  # as nearly always
            return ""
        job_id = merge.identity(job)
        if job_id not in self._found:
            return ""
        problem, asked = self._found[job_id]
        if asked != _asked(job):
            del self._found[job_id]
            return ""
        return problem

    def forget(self, job_id: str) -> None:
        self._found.pop(job_id, None)


def _asked(job: Json) -> tuple[Any, ...]:
    """All of a Job that others than laxity write."""
    annotations, labels = merge.annotations(job), merge.labels(job)
    return (
        merge.dig(job, "metadata", "uid"),
        merge.table(job, "spec"),
        {key: annotations[key] for key in annotations if key not in OURS},
        {key: labels[key] for key in labels if key not in OURS},
    )
