"""How far simulations have come: jobs ended in all runs, on counts that several processes share."""

from collections.abc import Callable
from typing import Any, Final

STEPS: Final = 1_000  # of a run: counting each of many jobs would take longer than to simulate it

Ended = Callable[[int], None]  # told how many jobs of one run have ended so far


def nobody(_ended: int) -> None:
    """Nobody asks."""


def count_into(counts: Any, jobs: int, look: Callable[[], None] = lambda: None) -> Ended:
    """Adds what a run of so many jobs is told to `counts`, an Array: jobs ended, and jobs of one run.

    `look` is called whenever that has changed.
    """
    counted, step = 0, max(1, jobs // STEPS)

    def count_ended(ended: int) -> None:
        nonlocal counted
        if ended - counted >= step or ended == jobs:
            with counts.get_lock():
                counts[0] += ended - counted
                counts[1] = jobs
            counted = ended
            look()

    return count_ended
