"""Which Jobs no decision can be made about: they are left out, and everybody else is decided on.

A decision that raises says nothing of the Job that it raised about. So the Jobs are halved: a half
that can be decided on beside those that are known to be sound is sound as well, one that cannot is
halved again. Older Jobs are looked at first; of two that only raise together the newer is to blame.
For k Jobs of n that takes O(k log n) decisions, and none as long as nothing raises.

What a Job that is left out holds stays counted: nodes are as they were seen.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from laxity_scheduler.service.faults import words_of
from laxity_scheduler.state import ClusterState, Job

Made = TypeVar("Made")
Jobs = tuple[Job, ...]


@dataclass(frozen=True, slots=True)
class Blamed:
    """A Job that is left out, and what was raised about it."""

    job: str
    error: Exception

    @property
    def problem(self) -> str:
        return f"laxity cannot decide about this Job: {words_of(self.error)}"


@dataclass(frozen=True, slots=True)
class Around(Generic[Made]):
    """What was made of the state without those to blame."""

    state: ClusterState
    made: Made
    blamed: tuple[Blamed, ...]


def decide_around(state: ClusterState, decide: Callable[[ClusterState], Made]) -> Around[Made]:
    """What `decide` makes of all Jobs about which it does not raise.

    What it raises about no Job at all is raised.
    """
    search = _Search(state, decide)
    kept = search.sound((), state.jobs)
    return Around(only(state, kept), search.made, tuple(search.blamed))


def only(state: ClusterState, jobs: Jobs) -> ClusterState:
    """The state with these of its jobs; nodes are as they were, holds of the others end."""
    if len(jobs) == len(state.jobs):
        return state
    names = {job.id for job in jobs}
    holds = tuple(hold for hold in state.holds if hold.job in names)
    return replace(state, jobs=jobs, holds=holds)


class _Search(Generic[Made]):
    """`made` is what was made of the sound jobs so far."""

    def __init__(self, state: ClusterState, decide: Callable[[ClusterState], Made]) -> None:
        self._state, self._decide = state, decide
        self.blamed: list[Blamed] = []
        self.made = decide(only(state, ()))

    def sound(self, kept: Jobs, suspects: Jobs) -> Jobs:
        """The jobs that are kept and those of the suspects that can be decided on beside them."""
        if not suspects:
            return kept
        try:
            self.made = self._decide(only(self._state, kept + suspects))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this Job's
            if len(suspects) == 1:
                self.blamed.append(Blamed(suspects[0].id, error))
                return kept
        else:
            return kept + suspects
        half = len(suspects) // 2
        return self.sound(self.sound(kept, suspects[:half]), suspects[half:])
