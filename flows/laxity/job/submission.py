"""From when a deadline counts, and when a Job took its place in the queue.

`submitted-at` is written by whoever makes the Job: a flow names the scheduled time of its run, a
retry the first submission. It is believed where it helps nobody: an earlier instant makes a deadline
that is a duration tighter, and that is all it does. The place in the queue is the Job's creation,
which the API server writes. All instants are POSIX seconds.
"""

from typing import Final

CLOCKS_APART_S: Final = 1.0  # creationTimestamp has whole seconds


def counts_from(claimed_at: float | None, created_at: float) -> float:
    """When a deadline that is a duration begins: the claimed instant, at the latest the creation."""
    came_at = queue_instant(claimed_at, created_at)
    return came_at if claimed_at is None else min(claimed_at, came_at)


def queue_instant(claimed_at: float | None, created_at: float) -> float:
    """When the Job was created: to the millisecond if the claim is of the same second."""
    is_same = claimed_at is not None and abs(claimed_at - created_at) < CLOCKS_APART_S
    return claimed_at if claimed_at is not None and is_same else created_at
