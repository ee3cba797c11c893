"""Deadlines that were refused while a promise stands are asked for again: there may be room by now."""

from dataclasses import replace
from typing import Final

from laxity_k8s.cluster_api import Json
from laxity_k8s.objects.status_annotation import read_refused_deadline
from laxity_scheduler.model.job import FOREVER, Job

ASK_AGAIN_S: Final = 60.0


class RefusedDeadlines:
    """Each is asked for in one state a minute, and in one when its job has finished an epoch."""

    def __init__(self) -> None:
        self._next: dict[str, tuple[float, int]] = {}  # when, and the epochs that were done before
        self._asking: set[str] = set()

    def ask_again(self, job: Json, row: Job, now: float) -> Job:
        """The row, asking if it is time."""
        if (
            row.asked
            or row.promise is None
            or not read_refused_deadline(job)
            or row.deadline_at <= now
        ):
            self.forget(row.id)
            return row
        epochs = row.progress.epochs_done
        next_at, before = self._next.setdefault(row.id, (now + ASK_AGAIN_S, epochs))
        if now < next_at and epochs == before:
            return row
        self._next[row.id] = (now + ASK_AGAIN_S, epochs)
        self._asking.add(row.id)
        return replace(row, asked=True)

    def last_taken(self) -> set[str]:
        """Jobs that asked in the state that was taken last: in the next they do not."""
        asking, self._asking = self._asking, set()
        return asking

    def due_at(self, job_id: str) -> float:
        return self._next.get(job_id, (FOREVER, 0))[0]

    def forget(self, job_id: str) -> None:
        self._next.pop(job_id, None)
