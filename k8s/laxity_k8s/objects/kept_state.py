"""What of a training its next start goes on from, as its workers said last."""

from typing import Any

from laxity.job.spec import TrainingSpec
from laxity_k8s.cluster_api import Json
from laxity_k8s.objects.status_annotation import read_status
from laxity_scheduler.live import Report


def read_kept_state(job: Json, spec: TrainingSpec, report: Report) -> dict[str, Any]:
    """What a stop of it keeps, by the row's fields."""
    is_held = holds_state(job, report)
    can_save = report.stops_anywhere or (spec.script and spec.resumes)
    anywhere, part = is_held and can_save, report.saved_part * is_held
    return {"holds_state": is_held, "stops_anywhere": anywhere, "saved_part": part}


def holds_state(job: Json, report: Report) -> bool:
    """Whether its next start goes on from what it has trained; as its workers said last."""
    return read_status(job).holds_state if report.holds_state is None else report.holds_state


def parked_epoch(spec: TrainingSpec, report: Report, *, is_heard: bool) -> int | None:
    """Where it waits, told to stop; a script is told by SIGTERM alone, and need not be waited for."""
    if spec.script:
        return report.progress.epochs_done
    return report.parked_epoch if is_heard else None
