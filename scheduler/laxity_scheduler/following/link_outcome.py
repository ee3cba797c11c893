"""What the end of a link means for its chain."""

from laxity_scheduler.following.link_queue import LinkOutcome, QueueRow
from laxity_scheduler.following.link_wrapper import GOES_ON, SIGNALLED


def outcome_of_row(row: QueueRow, exit_code: int | None) -> LinkOutcome:
    """Of a job that has ended, as Slurm tells it."""
    match row.state:
        case "COMPLETED":
            return LinkOutcome("goes on", "ended with exit code 0")
        case "TIMEOUT":
            return LinkOutcome("goes on", "reached its time limit")
        case "CANCELLED" if not row.has_started:
            return LinkOutcome("cancelled", "was cancelled before it started")
        case "FAILED" if exit_code in GOES_ON:
            return LinkOutcome("goes on", f"ended with exit code {exit_code}")
        case "FAILED" if exit_code is not None:
            return LinkOutcome("failed", f"failed with exit code {exit_code}")
    return LinkOutcome("failed", f"ended as {row.state}")


def outcome_of_lost(exit_code: int | None, *, has_started: bool) -> LinkOutcome:
    """Of a job that Slurm no longer knows, by the exit code that it wrote down itself."""
    if exit_code in GOES_ON:
        return LinkOutcome("goes on", f"ended with exit code {exit_code}")
    if exit_code is not None and exit_code <= SIGNALLED:
        return LinkOutcome("failed", f"failed with exit code {exit_code}")
    if not has_started:
        return LinkOutcome("cancelled", "is no longer in the queue and never started")
    return LinkOutcome("failed", "is no longer known to Slurm, and wrote down no exit code")
