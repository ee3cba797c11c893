"""One job in the words of the command line, with what a page has to draw: its epochs, its commands."""

import shlex
from collections.abc import Mapping
from typing import Any

from laxity import names
from laxity.api.group_text import group_facts
from laxity.api.job_view import ENDED, JobView, job_view
from laxity.api.status_text import fact_rows, offer_text, part_text, stalled_text, standing_text
from laxity_profiler.estimate import Predictor
from laxity_scheduler.groups.group import ENDED as ENDED_GROUP
from laxity_scheduler.http.charts.timeline_groups import lane_id
from laxity_scheduler.model.job import Job
from laxity_scheduler.notifications.run_origin import flow_run_url
from laxity_scheduler.notifications.run_picture import draw_run
from laxity_scheduler.service.views.view_fields import Json


def story_of(answer: Mapping[str, Any], row: Job | None, predictor: Predictor, now: float) -> Json:
    """The answer of `explain` as texts. `row` is the job in the snapshot; None after its end."""
    job = job_view(answer["job"])
    is_refused = job.state == "refused" and not job.ended
    doing = filter(None, (part_text(job, now), stalled_text(job, now)))
    return {
        "id": job.id,
        "standing": "; ".join((standing_text(job), *doing)),
        "reason": "" if job.state in ENDED else job.reason,
        "facts": [[name, value] for name, value in fact_rows(job) if value],
        "links": [[text, url] for text, url in _links_of(job) if url],
        "offers": [offer_text(offer) for offer in job.offers] if is_refused else [],
        "chain": [_chain_row(entry) for entry in answer["chain"]],
        "commands": commands_for(job),
        "actions": actions_for(job),
        "picture": _draw_epochs(row, predictor),
    }


def story_of_group(group: Mapping[str, Any]) -> Json:
    """The view of a group in the form of a job's story."""
    name = shlex.quote(group["id"].removeprefix("default/"))
    commands, actions = [f"laxity show {name}"], []
    goes_on = group["state"] not in ENDED_GROUP
    if goes_on and (group["jobs"] or group["state"] != "refused"):  # else nobody would submit any
        commands.append(f"laxity amend {name} --deadline ...")
        question = "Ask for another deadline of the whole, such as 8h or 18:00:"
        actions.append(_action("Amend", question, "POST", "/amend", deadline=""))
    if goes_on:
        commands.append(f"laxity cancel {name}")
        question = f"Cancel {group['id']} with all of its jobs? Their workers stop."
        actions.append(_action("Cancel", question, "POST", "/end", state="cancelled"))
    return {
        "id": lane_id(group["id"]),
        "standing": ", ".join(dict.fromkeys((group["state"], group["verdict"]))),
        "reason": group["reason"],
        "facts": [[name, value] for name, value in group_facts(group) if value],
        "links": [],
        "offers": [row["text"] for row in group["offers"] if group["state"] == "refused"],
        "chain": [],
        "commands": commands,
        "actions": actions,
        "picture": "",
    }


def _links_of(job: JobView) -> tuple[tuple[str, str], ...]:
    return ("Its run in MLflow", job.run_url), ("Its flow run in Prefect", flow_run_url(job.raw))


def commands_for(job: JobView) -> list[str]:
    """What one may type about this job now."""
    name = shlex.quote(job.id.removeprefix("default/"))
    if job.state in ENDED:
        return [f"laxity show {name}", f"laxity logs {name}"]
    if job.state == "refused":
        first = [f"laxity accept {name} {number}" for number in range(1, len(job.offers) + 1)]
    else:
        first = [f"laxity logs {name} --follow"] if job.workers else []
    return [*first, f"laxity amend {name} --deadline ...", f"laxity cancel {name}"]


def actions_for(job: JobView) -> list[Json]:
    """What the page offers as buttons: label, question, and the call that does it."""
    if job.state in ENDED:
        return []
    actions = [
        _action(
            f"Accept offer {number}", f"Take {offer_text(offer)}?", "POST", "/accept", offer=number
        )
        for number, offer in enumerate(job.offers if job.state == "refused" else (), start=1)
    ]
    amend = _action(
        "Amend", "Ask for another deadline, such as 2h or 18:00:", "POST", "/amend", deadline=""
    )
    lost = "Its workers stop. What it trained since its last checkpoint is lost."
    return [*actions, amend, _action("Cancel", f"Cancel {job.id}? {lost}", "DELETE", "")]


def _action(label: str, question: str, method: str, path: str, **body: Any) -> Json:
    return {"label": label, "question": question, "method": method, "path": path, "body": body}


def _chain_row(entry: Mapping[str, Any]) -> Json:
    decision = entry["decision"]
    words = filter(None, (decision["kind"], str(decision.get("workers") or "")))
    return {
        "at": entry["at"],
        "first_at": entry["first_at"],
        "times": entry["times"],
        "decision": " ".join(words),
        "reason": entry["reason"],
    }


def _draw_epochs(row: Job | None, predictor: Predictor) -> str:
    """The latest epochs of a job that has not ended, over what one is predicted to take now: an SVG."""
    if row is None or not row.progress.epoch_s:
        return ""
    epoch = predictor.epoch_time(row.workload, row.formed or row.workers or min(row.widths))
    numbers = row.progress.epoch_numbers
    series = {
        names.EPOCH_ACTUAL: list(zip(numbers, row.progress.epoch_s, strict=True)),
        names.EPOCH_P50: [(number, epoch.p50_s) for number in numbers],
        names.EPOCH_P90: [(number, epoch.p90_s) for number in numbers],
    }
    return draw_run(series, f"Epochs of {row.id}", numbers[-1])
