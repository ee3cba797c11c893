"""Starts that hang while their pods' status says no more than that they are being made.

A volume that is not there is named in Events alone. They are read only of Jobs that hang so, a while after
the start and then now and again: a large image that is pulled looks the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from laxity_k8s.objects.containers import BEING_MADE
from laxity_k8s.objects.pods import LONGEST_REASON
from laxity_scheduler.model.job import FOREVER, Job

HANGS_S: Final = 10.0
AGAIN_S: Final = 30.0
MOST_ASKED: Final = 5  # in one look


@dataclass(slots=True)
class Hang:
    """When Events are to be read next, and what they said last."""

    ask_at: float
    words: str = ""


class HangingStarts:
    """Hangs by Job id."""

    def __init__(self) -> None:
        self._hangs: dict[str, Hang] = {}

    def apply_to(self, row: Job, since: float | None) -> Job:
        """The row with the words of Events; `since` when not all workers run, None if they do."""
        if since is None or (row.pending and not row.pending.endswith(BEING_MADE)):
            self.forget(row.id)
            return row
        words = self._hangs.setdefault(row.id, Hang(since + HANGS_S)).words
        return replace(row, pending=words) if words else row

    def find_due(self, now: float) -> Sequence[str]:
        """Jobs whose Events are to be read now."""
        return [name for name, hang in self._hangs.items() if hang.ask_at <= now][:MOST_ASKED]

    def note(self, job_id: str, words: str, now: float) -> None:
        """What Events say of this Job or its pods; "" for nothing."""
        self._hangs[job_id] = Hang(now + AGAIN_S, words[:LONGEST_REASON])

    def words_of(self, job_id: str) -> str:
        """What Events said last."""
        hang = self._hangs.get(job_id)
        return "" if hang is None else hang.words

    def due_at(self, job_id: str, now: float) -> float:
        """When there is something to read; where it is too much at once, soon."""
        hang = self._hangs.get(job_id)
        return FOREVER if hang is None else max(hang.ask_at, now + 1.0)

    def forget(self, job_id: str) -> None:
        self._hangs.pop(job_id, None)
