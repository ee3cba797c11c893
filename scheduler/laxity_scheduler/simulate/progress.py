"""How far simulations have come: jobs ended in all runs, counted here or in several processes."""

from collections.abc import Callable, MutableSequence
from contextlib import AbstractContextManager, nullcontext

Ended = Callable[[int], None]  # told how many jobs of one run have ended so far


def nobody(_ended: int) -> None:
    """Nobody asks."""


class ProgressCounter:
    """Jobs ended so far in all runs, and jobs of one run (0 until the trace is read)."""

    def __init__(
        self,
        counts: MutableSequence[int] | None = None,
        lock: AbstractContextManager[object] | None = None,
        told: Callable[[int, int], None] = lambda _ended, _jobs: None,
    ) -> None:
        self._counts: MutableSequence[int] = [0, 0] if counts is None else counts
        self._lock = nullcontext() if lock is None else lock
        self._told = told

    @property
    def counts(self) -> tuple[int, int]:
        return self._counts[0], self._counts[1]

    def run(self, jobs: int) -> Ended:
        """For one run of so many jobs: what is to be told."""
        counted = 0

        def count_ended(so_far: int) -> None:
            nonlocal counted
            if so_far > counted or not so_far:
                with self._lock:
                    self._counts[0] += so_far - counted
                    self._counts[1] = jobs
                counted = so_far
                self._told(*self.counts)

        count_ended(0)
        return count_ended
