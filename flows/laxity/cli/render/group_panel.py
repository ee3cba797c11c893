"""A group told to a person: the verdict of the whole, each step with its share, and its jobs."""

import time
from collections.abc import Mapping
from typing import Any

from rich.text import Text

from laxity.api.job_view import Json, job_view, printable_value
from laxity.cli.exit_codes import BROKEN, FAILED, OK, REFUSED
from laxity.cli.render.job_panel import print_json, verdict_line
from laxity.cli.render.job_table import console, fact_table, job_table, short_id
from laxity.human_time import NONE, as_of, count_noun, instant_text


def print_group(group: Json, *, as_json: bool) -> int:
    """Print it; the exit code that its state asks for."""
    if as_json:
        print_json(group)
    else:
        _print_words({name: printable_value(value) for name, value in group.items()}, time.time())
    if group["state"] in {"failed", "cancelled"}:
        return FAILED
    if group["verdict"] == "refused":  # also another deadline, while the promise stands
        return REFUSED
    is_late = (group["finished_at"] or 0.0) > (group["deadline_at"] or float("inf"))
    return BROKEN if is_late and group["verdict"] == "promised" else OK


def _print_words(group: Json, now: float) -> None:
    out = console()
    name = short_id(group["id"])
    out.print(Text(f"{group['kind']} {name}: {group['state']}", style="bold"))
    reason = as_of(now, group.get("reason") or "")
    out.print(verdict_line(group["verdict"], group.get("reason_code", ""), reason))
    facts = [
        ("deadline", _instant(group["deadline_at"], now)),
        ("P90", _instant(group.get("p90_at"), now)),
    ]
    facts += [(step["name"], _step_text(step, now)) for step in group["steps"]]
    out.print(fact_table(facts))
    if group["state"] == "refused" and group["offers"]:
        out.print(Text("Instead this would do:"))
        for number, offer in enumerate(group["offers"], start=1):
            out.print(Text(f"  {number}. {as_of(now, offer['text'])}"))
    if group.get("jobs"):
        out.print(job_table([job_view(job) for job in group["jobs"]], now=now))


def _step_text(step: Mapping[str, Any], now: float) -> str:
    after = f", after {', '.join(step['after'])}" if step["after"] else ""
    text = f"{count_noun(step['count'], 'job')}{after}"
    if step.get("finished"):
        text += f"; {step['finished']} finished"
    if step.get("due_at") is not None:
        text += f"; must end by {instant_text(step['due_at'], now)}"
    return f"{text}: {step['share_reason']}" if step.get("share_reason") else text


def _instant(at: float | None, now: float) -> str:
    return NONE if at is None else instant_text(at, now)
