"""The cluster and its jobs on one screen, as it is at this moment."""

import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

from rich.console import Group
from rich.table import Table
from rich.text import Text

from laxity.api.client import Client, ServiceError
from laxity.api.job_view import JobView
from laxity.cli.render.job_table import job_table
from laxity.human_time import count_noun

FATES: Final = {
    "kept": "kept",
    "broken": "broken",
    "open": "open",
    "failed": "ended by an error of the training",
    "cancelled": "cancelled",
}
_RANK: Final = {"running": 0, "stopping": 0, "queued": 1, "suspended": 1, "refused": 2}
_ENDED: Final = 3


def render_overview(client: Client, namespace: str | None) -> Group:
    """What there is to see, or why it cannot be seen."""
    try:
        return render_cluster(client, namespace)
    except ServiceError as error:
        return Group(Text(str(error), style="red"))


def render_cluster(client: Client, namespace: str | None) -> Group:
    """One line of the cluster, then its jobs: running first, ended last. May raise ServiceError."""
    answer, jobs = client.cluster(), client.jobs(namespace)
    now = time.time()
    return Group(cluster_line(answer), job_table(in_order(jobs, now), now=now))


def in_order(jobs: Iterable[JobView], now: float) -> list[JobView]:
    """Running before waiting before refused before ended jobs, of which the latest come first."""
    return sorted(jobs, key=lambda job: _rank(job, now))


def _rank(job: JobView, now: float) -> tuple[int, float, float]:
    """Jobs that have not ended by deadline, then by submission."""
    if job.ended or job.has_lapsed(now):
        return _ENDED, -(job.finished_at or job.deadline_at or 0.0), 0.0
    deadline_at = job.deadline_at if job.deadline_at is not None else float("inf")
    return _RANK.get(job.state, _ENDED), deadline_at, job.submitted_at or 0.0


def cluster_line(answer: Mapping[str, Any]) -> Text:
    total, free = answer.get("total_gpus", 0), answer.get("free_gpus", 0)
    here = answer.get("world") == "local"
    line = Text(f"{total - free} of {total} {'slots' if here else 'GPUs'} busy", style="bold")
    line.append(loan_text(answer))
    line.append(f"   policy {answer.get('policy', '?')}", style="dim")
    learned = answer.get("learned") or {}
    if learned.get("fallback"):
        line.append(f" in place of {learned['learned']}", style="yellow")
    if here:
        line.append("   a worker takes a slot", style="dim")
    return line


def loan_text(answer: Mapping[str, Any]) -> str:
    """What inference has lent, and wants back; empty where there is no fleet that lends."""
    loans = answer.get("loans")
    if not loans:
        return ""
    text = f"   {loans['lent_gpus']} of {loans['fleet_gpus']} inference GPUs lent"
    if loans["wanted_gpus"]:
        text += f", {loans['wanted_gpus']:g} wanted back"
    return text


def policy_lines(answer: Mapping[str, Any]) -> list[Text]:
    """Why a teacher decides in place of a learned policy, or why that one may be out of date."""
    lines = []
    learned = answer.get("learned") or {}
    if learned.get("fallback"):
        lines.append(Text(f"{learned['learned']} does not decide: {learned['fallback']}"))
        if str(answer.get("policy", "")).endswith("_with_promises"):
            text = f"{answer['policy']} decides: promises first, {learned['teacher']}'s rule for the rest"
            lines.append(Text(text))
    elif learned.get("stale"):
        lines.append(Text(f"{learned['learned']} decides: {learned['stale']}"))
    return lines


def promise_line(answer: Mapping[str, Any]) -> Text:
    """What became of the promises given; empty before the first one."""
    counts = answer.get("promises") or {}
    promised = int(counts.get("given") or 0)
    if not promised:
        return Text()
    fates = [f"{counts[name]} {label}" for name, label in FATES.items() if counts.get(name)]
    return Text(f"{count_noun(promised, 'promise')} given: {', '.join(fates)}")


def forecast_line(answer: Mapping[str, Any]) -> Text:
    """How often inference needed no more than was forecast; empty before it could be seen."""
    loans = answer.get("loans") or {}
    if loans.get("forecast_coverage") is None:
        return Text()
    slots = count_noun(loans["forecast_slots"], "slot")
    share, minutes = loans["forecast_coverage"], loans["forecast_slot_s"] / 60
    return Text(
        f"Inference needed no more than its forecast in {share:.0%} of {slots} of {minutes:g} minutes"
    )


def node_table(answer: Mapping[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("NODE", "POOL", "TYPE"):
        table.add_column(name, no_wrap=True)
    for name in ("SLOTS" if answer.get("world") == "local" else "GPUS", "FREE"):
        table.add_column(name, justify="right")
    for node in answer.get("nodes") or ():
        table.add_row(
            str(node.get("id")),
            str(node.get("pool", "")),
            str(node.get("gpu_type", "")),
            str(node.get("gpus", "")),
            str(node.get("free_gpus", "")),
        )
    return table
