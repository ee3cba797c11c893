"""Whether to submit the successor now. The methods are those of `laxity bench chains`."""

from datetime import timedelta

from laxity.durations import format_duration
from laxity_scheduler.following.queue_watch import QueueFacts


def should_submit_successor(
    method: str, ends_by: float | None, facts: QueueFacts
) -> tuple[bool, str]:
    """The decision and its reason. `ends_by` is when the predecessor's time limit ends it."""
    if method == "reactive":
        return False, "the successor is submitted when this link ends"
    if ends_by is None:
        return False, "this link has no time limit: the successor is submitted when it ends"
    left = f"{_text(ends_by - facts.at)} are left of this link's time limit"
    if method == "average_now":
        if facts.mean_wait_s is None:
            return False, "no job was seen to start yet: the successor is submitted at the end"
        reason = f"the last jobs waited {_text(facts.mean_wait_s)} on average ({facts.waits_from})"
        return facts.at + facts.mean_wait_s >= ends_by, f"{reason}, and {left}"
    if facts.planned_at is None:
        return False, "Slurm plans no start: the successor is submitted at the end"
    reason = f"Slurm would start the successor in {_text(facts.planned_at - facts.at)}"
    return facts.planned_at >= ends_by, f"{reason}, and {left}"


def _text(seconds: float) -> str:
    return format_duration(timedelta(seconds=max(0, round(seconds))))
