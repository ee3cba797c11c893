"""A group told to a person: the verdict of the whole, each step with its share, and its jobs."""

import time

from rich.text import Text

from laxity.api.group_text import group_facts
from laxity.api.job_view import Json, job_view, printable_value
from laxity.cli.exit_codes import BROKEN, FAILED, OK, REFUSED
from laxity.cli.render.job_panel import print_json, verdict_line
from laxity.cli.render.job_table import console, fact_table, job_table, short_id
from laxity.human_time import as_of


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
    facts = [(name, as_of(now, text)) for name, text in group_facts(group) if text]
    out.print(fact_table(facts))
    if group["state"] == "refused" and group["offers"]:
        asks = f"laxity amend {name}" if group.get("jobs") else "submit it again"
        out.print(Text(f"Instead this would do ({asks}):"))
        for number, offer in enumerate(group["offers"], start=1):
            out.print(Text(f"  {number}. {as_of(now, offer['text'])}"))
    if group.get("jobs"):
        out.print(job_table([job_view(job) for job in group["jobs"]], now=now))
