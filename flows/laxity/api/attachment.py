"""What a submission did not do: its idempotency key was that of an earlier job.

Whoever gives each night's training one key, or takes the key of another project, is answered with the
result of the earlier job, and a script goes on as if it had trained.
"""

from collections.abc import Mapping
from typing import Any

from laxity.api.job_view import JobView
from laxity.human_time import format_seconds


def attachment_text(job: JobView, manifest: Mapping[str, Any], now: float) -> str:
    """That this manifest was attached to an earlier job, in words; empty if it is a new one.

    `job` is the answer to the submission. A folder of another checkout or project is named.
    """
    if not job.attached:
        return ""
    here, there = _working_dir(manifest), str((job.raw.get("project") or {}).get("workdir") or "")
    place = f", which runs in {there}" if here and there and there != here else ""
    if job.state != "finished":
        return (
            f"attached by its key to a job that was submitted {_ago(job.submitted_at, now)}{place}"
        )
    ended = f"its key is that of a job that finished {_ago(job.finished_at, now)}{place}"
    return f"nothing is trained now: {ended}; for a new training take another key"


def _ago(instant_at: float | None, now: float) -> str:
    if instant_at is None:
        return "earlier"
    return f"{format_seconds(max(0.0, now - instant_at))} ago"


def _working_dir(manifest: Mapping[str, Any]) -> str:
    pod = ((manifest.get("spec") or {}).get("template") or {}).get("spec") or {}
    containers = pod.get("containers") or [{}]
    return str(containers[0].get("workingDir") or "")
