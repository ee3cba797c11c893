"""A group in words: its deadline, and each step with its share. Instants are RFC 3339."""

from collections.abc import Mapping
from typing import Any

from laxity.api.status_text import instant_text
from laxity.human_time import count_noun


def group_facts(group: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Names and values of what is known of a group: the whole, then its steps in order."""
    ended = group.get("finished_at")
    return [
        ("deadline", instant_text(group["deadline_at"])),
        ("P90 finish", "" if ended else instant_text(group.get("p90_at"))),
        ("ended", instant_text(ended)),
        *((step["name"], _step_text(step)) for step in group["steps"]),
    ]


def _step_text(step: Mapping[str, Any]) -> str:
    after = f", after {', '.join(step['after'])}" if step["after"] else ""
    text = f"{count_noun(step['count'], 'job')}{after}"
    if step.get("finished"):
        text += f"; {step['finished']} finished"
    if step.get("due_at") is not None:
        text += f"; must end by {instant_text(step['due_at'])}"
    return f"{text}: {step['share_reason']}" if step.get("share_reason") else text
