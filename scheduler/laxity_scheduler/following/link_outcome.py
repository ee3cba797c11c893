"""What the end of a link means for its chain."""

from laxity_scheduler.following.link_queue import LinkOutcome, QueueRow
from laxity_scheduler.following.link_wrapper import GOES_ON


def outcome_of_row(row: QueueRow, exit_code: int | None) -> LinkOutcome:
    """Of a job that has ended, as the queue tells it."""
    match row.state:
        case "COMPLETED":
            return outcome_of_code(0)
        case "TIMEOUT":
            return LinkOutcome("goes on", "reached its time limit")
        case "NODE_FAIL" | "BOOT_FAIL":
            return LinkOutcome("goes on", "lost its node")
        case "PREEMPTED":
            return LinkOutcome("goes on", "was preempted")
        case "CANCELLED" if not row.has_started:
            return LinkOutcome("cancelled", "was cancelled before it started")
        case "FAILED" if exit_code is not None:
            return outcome_of_code(exit_code)
    return LinkOutcome("failed", f"ended as {row.state}")


def outcome_of_code(exit_code: int) -> LinkOutcome:
    """Of a job that ended with this exit code."""
    if exit_code in GOES_ON:
        return LinkOutcome("goes on", f"ended with exit code {exit_code}")
    return LinkOutcome("failed", f"failed with exit code {exit_code}")
