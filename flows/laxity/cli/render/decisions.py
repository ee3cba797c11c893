"""Decisions as people read them: when, in which cycle, what, and why."""

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from laxity.api.job_view import ENDED, JobView, job_view
from laxity.api.status_text import silence_text, stalled_text
from laxity.cli.render.job_panel import (
    describe_lost_state,
    format_borrowing,
    headline_text,
    offer_lines,
)
from laxity.cli.render.job_table import short_id
from laxity.human_time import as_of, format_seconds, instant_text, wall_time


def chain_lines(answer: Mapping[str, Any], *, now: float) -> Group:
    """The answer of `explain`: the job in a line, its decisions, and what it waits for."""
    job = job_view(answer["job"])
    parts: list[RenderableType] = [Text(job.id, style="bold"), _standing_text(job, now)]
    parts.append(decision_table(answer.get("chain") or (), now=now, of_one_job=True))
    parts += offer_lines(job, now)
    facts = [
        ("error", "" if job.ended else job.error),
        ("history", "" if job.ended else job.prediction_note),
        ("progress", silence_text(job, now)),
        ("stalled", stalled_text(job, now)),
        ("checkpoint", describe_lost_state(job)),
        ("borrowed", format_borrowing(job)),
    ]
    parts += [Text(f"{name}: {value}") for name, value in facts if value]
    if answer.get("held_by"):
        parts.append(Text("waits for what is held by " + ", ".join(answer["held_by"])))
    if answer.get("expected_start_at"):
        parts.append(Text(f"expected to start {instant_text(answer['expected_start_at'], now)}"))
    return Group(*parts)


def _standing_text(job: JobView, now: float) -> Text:
    """The headline of `show`, and what an ended job failed of."""
    error = f": {job.error}" if job.error and job.state in ENDED else ""
    return headline_text(job, now).append(error)


def decision_table(
    rows: Iterable[Mapping[str, Any]], *, now: float, of_one_job: bool = False
) -> Table:
    """A row per decision. Its reason is in the words of its instant: "in 2m" is from then on."""
    table = Table(box=None, pad_edge=False)
    for name in ("AT", "CYCLE"):
        table.add_column(name, no_wrap=True, justify="right")
    if not of_one_job:
        table.add_column("JOB", no_wrap=True)
    for name in ("DECISION", "CODE"):
        table.add_column(name, no_wrap=True)
    table.add_column("REASON", overflow="fold")
    for row in rows:
        cells = [wall_time(row.get("first_at", row.get("at")), now), str(row.get("cycle", ""))]
        if not of_one_job:
            cells.append(short_id(str(row.get("job", ""))))
        cells += [_decision_text(row.get("decision")), str(row.get("reason_code", ""))]
        reason = as_of(row.get("at", now), str(row.get("reason", "")))
        table.add_row(*map(Text, [*cells, reason + _repeat_text(row)]))
    return table


def _repeat_text(row: Mapping[str, Any]) -> str:
    """That the same was decided again and again: " (38 times in 40s)"."""
    times = row.get("times", 1)
    if times < 2:
        return ""
    return f" ({times} times in {format_seconds(row['at'] - row['first_at'])})"


def _decision_text(decision: Any) -> str:
    """A decision is a word, or a mapping with its kind and figures."""
    if not isinstance(decision, Mapping):
        return str(decision or "")
    kind = str(decision.get("kind") or decision.get("type") or "")
    workers = decision.get("workers")
    return f"{kind} {workers}" if workers is not None else kind
