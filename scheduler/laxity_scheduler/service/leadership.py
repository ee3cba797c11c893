"""Which of several services acts, and why a paused one can do no harm when it goes on.

A lease alone does not fence: its holder may be stopped between its last look at the clock and the
packet that it sends, wake up an hour later, and send it. Three things keep it from acting then:

1. Before every patch it checks its lease against a clock that no pause stops.
2. A cycle is in the journal before it is acted on, and the journal takes none of an ended term.
3. So whatever can still be under way is in the last journalled plan. The new leader writes to the
   Jobs of that plan before it decides: an earlier patch names an older resourceVersion, and the API
   server rejects it. What landed before that is observed, because observing comes after.
"""

import time
from collections.abc import Sequence
from typing import Final, Protocol

import orjson

from laxity_scheduler.store.store import Store

WAIT_KIND: Final = "Wait"  # why a job waits moves nothing, and is said again by the next cycle


class OtherStoreError(RuntimeError):
    """A service with another store acts on this cluster: this one may not, and ends."""


class Election(Protocol):
    """A lease that one service holds at a time, for a time."""

    @property
    def me(self) -> str: ...

    @property
    def holder(self) -> str:
        """The replica that has the lease, as far as is known; "" for none."""

    @property
    def silence(self) -> str:
        """Why nobody can tell since a while who has it; "" if that is known."""

    @property
    def reign(self) -> int:
        """0 if this replica does not have the lease, else the number of times that it has won it.

        OtherStoreError if a service with another store has it.
        """

    def fence(self, jobs: Sequence[str], term: int) -> None:
        """Make sure that no earlier decision about these Jobs can still land."""

    def close(self) -> None:
        """Give it back."""


class Leadership:
    """Leads when the election is won and all earlier terms are ended. Called once per cycle."""

    def __init__(self, store: Store, election: Election) -> None:
        self._store, self._election = store, election
        self._reign = 0  # that the fence stands for

    def ensure_leading(self) -> bool:
        """Whether this replica acts. Takes over first if it has just won the lease."""
        reign = self._election.reign
        if reign and reign != self._reign:
            term = self._store.claim_term(self._election.me, time.time())
            self._election.fence(jobs_changed_by(self._store.last_plan()), term)
        self._reign = self._election.reign
        return reign != 0 and reign == self._reign

    def holder(self) -> str:
        return self._election.holder

    def silence(self) -> str:
        return self._election.silence


def jobs_changed_by(plan: bytes) -> list[str]:
    """The jobs for which a journalled plan decides more than a wait."""
    decisions = orjson.loads(plan).get("decisions", ()) if plan else ()
    jobs = (decision.get("job") for decision in decisions if decision["kind"] != WAIT_KIND)
    return list(dict.fromkeys(job for job in jobs if job))
