"""One job in the words of the command line, with what a page has to draw: its epochs, its commands."""

import shlex
from collections.abc import Mapping
from typing import Any

from laxity.api.job_view import ENDED, JobView, job_view
from laxity.api.status_text import fact_rows, offer_text, part_text, stalled_text, standing_text
from laxity_profiler.estimate import Predictor
from laxity_scheduler.model.job import Job
from laxity_scheduler.service.view_fields import Json


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
        "links": [["Its run in MLflow", job.run_url]] if job.run_url else [],
        "offers": [offer_text(offer) for offer in job.offers] if is_refused else [],
        "chain": [_chain_row(entry) for entry in answer["chain"]],
        "commands": commands_for(job),
        "epochs": _epochs(row, predictor),
    }


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


def _epochs(row: Job | None, predictor: Predictor) -> Json:
    """The latest epochs of a job that has not ended, and what one is predicted to take now."""
    if row is None or not row.progress.epoch_s:
        return {"actual_s": [], "numbers": [], "p50_s": None, "p90_s": None}
    epoch = predictor.epoch_time(row.workload, row.formed or row.workers or min(row.widths))
    return {
        "actual_s": list(row.progress.epoch_s),
        "numbers": list(row.progress.epoch_numbers),
        "p50_s": epoch.p50_s,
        "p90_s": epoch.p90_s,
    }
