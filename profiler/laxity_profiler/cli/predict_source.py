"""What `laxity predict` is asked about: a model by its key, or a job as it would be submitted."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Any, Final

from laxity_profiler.estimate import Workload

WIDTHS: Final = (1, 2, 4, 8)
MOST_NAMED: Final = 8


def workload_and_widths(
    source: str,
    options: Mapping[str, int | str | None],
    *,
    workers: str,
    estimate: str | None,
    params: Sequence[str] = (),
) -> tuple[Workload, tuple[int, ...]]:
    """The workload and its widths; what is given (fields of Workload) wins over what is declared."""
    from laxity.cli.exit_codes import USAGE, CommandError
    from laxity.durations import parse_duration
    from laxity.job.widths import check_widths, parse_widths

    try:
        widths = parse_widths(workers) if workers else ()
        check_widths(widths or (1,))
        user_s = parse_duration(estimate).total_seconds() if estimate else None
    except ValueError as error:
        raise CommandError(str(error), code=USAGE) from error
    declared, own = _workload_of_source(source, params)
    fields = {**options, "user_epoch_s": user_s}
    changes: dict[str, Any] = {name: value for name, value in fields.items() if value is not None}
    return replace(declared, **changes), widths or own or WIDTHS


def _workload_of_source(source: str, params: Sequence[str]) -> tuple[Workload, tuple[int, ...]]:
    """One epoch of a model, or what a file or a function declares."""
    from laxity.cli.exit_codes import USAGE, CommandError
    from laxity.cli.job_source import job_manifests, names_jobs
    from laxity.job.qos import QoSError
    from laxity.job.spec import TrainingSpec

    if not source.strip():
        raise CommandError("no model is named", code=USAGE)
    if not names_jobs(source):
        if params:
            raise CommandError(f"-p is for functions; {source} is a model's key", code=USAGE)
        return Workload(source, 1), ()
    jobs = job_manifests(source, {}, name=None, namespace=None, params=params)
    if len(jobs) != 1:
        raise CommandError(f"{source} holds {len(jobs)} Jobs: predict asks for one", code=USAGE)
    try:
        spec = TrainingSpec.from_manifest(jobs[0])
    except QoSError as error:
        raise CommandError(f"{source}: {error}", code=USAGE) from error
    return Workload.of(spec), tuple(spec.qos.widths or ())


def unknown_model_text(model: str, known: Sequence[str]) -> str:
    """That a model has no history, and which have: those named alike first."""
    if not known:
        return f"{model} was never trained here, nor was any other model"
    alike = get_close_matches(model, known, n=MOST_NAMED)
    others = [name for name in sorted(known) if name not in alike]
    named = [*alike, *others][:MOST_NAMED]
    more = len(known) - len(named)
    rest = f" and {more} more" if more else ""
    return f"{model} was never trained here; known: {', '.join(named)}{rest}"
