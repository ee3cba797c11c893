"""Which of several replicas acts, and why one that was paused can do no harm when it wakes.

A lease alone does not fence: its holder may be stopped between its last look at the clock and the
packet that it sends, wake up an hour later, and send it. Three things keep it from acting then:

1. Before every patch it looks whether its lease is over by a clock that no pause stops.
2. A cycle is in the journal before it is acted on, and the journal takes none of an ended term.
3. So all that can still be under way stands in the last journalled plan. Who takes over touches the
   Jobs of that plan before it decides: a patch from before names an older resourceVersion, and the
   API server turns it away. What landed in time is seen, for the look comes after.
"""

import time
from collections.abc import Sequence
from typing import Final, Protocol

import orjson

from laxity_scheduler.store.store import Store

WAIT_KIND: Final = "Wait"  # why a job waits moves nothing, and is said again by the next cycle


class Election(Protocol):
    """A lease that one replica holds at a time, for a time."""

    @property
    def me(self) -> str: ...

    @property
    def holder(self) -> str:
        """Who has it, as far as is known; "" for nobody."""
        ...

    @property
    def reign(self) -> int:
        """0 if it is not ours now, else how often we have won it."""
        ...

    def fence(self, jobs: Sequence[str], term: int) -> None:
        """Make sure that nothing decided on these Jobs before can land any more."""
        ...

    def close(self) -> None:
        """Give it back."""
        ...


class Leadership:
    """An election's winner who has also ended all earlier terms. Called once per cycle."""

    def __init__(self, store: Store, election: Election) -> None:
        self._store, self._election = store, election
        self._reign = 0  # that the fence stands for

    def ensure_leading(self) -> bool:
        """Whether this replica acts. Takes over first, if the lease has just been won."""
        reign = self._election.reign
        if reign and reign != self._reign:
            term = self._store.claim_term(self._election.me, time.time())
            self._election.fence(jobs_changed_by(self._store.last_plan()), term)
        self._reign = self._election.reign
        return reign != 0 and reign == self._reign

    def holder(self) -> str:
        return self._election.holder


def jobs_changed_by(plan: bytes) -> list[str]:
    """The jobs that a journalled plan does more to than say why they wait."""
    decisions = orjson.loads(plan).get("decisions", ()) if plan else ()
    jobs = (decision.get("job") for decision in decisions if decision["kind"] != WAIT_KIND)
    return list(dict.fromkeys(job for job in jobs if job))
