"""A file of several Jobs that wait for one another: one group under one deadline."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from laxity import names
from laxity.api.job_view import Json
from laxity.cli.exit_codes import USAGE, CommandError
from laxity.instants import format_rfc3339
from laxity.job.manifest_reader import parse_steps
from laxity.job.spec import job_name

if TYPE_CHECKING:
    from laxity.api.client import Client, JobView

TERMS = (names.DEADLINE, names.CLASS)


def is_group(manifests: Sequence[Json]) -> bool:
    """Whether these Jobs name a group, or steps that they come after."""
    return any({names.GROUP, names.AFTER} & _annotations_of(job).keys() for job in manifests)


def with_steps(jobs: Sequence[Json]) -> list[Json]:
    """These Jobs; of a group, one without a name is a step called like its generateName."""
    if not is_group(jobs):
        return list(jobs)
    return [
        job
        if job["metadata"].get("name") or _annotations_of(job).get(names.STEP)
        else _with_annotations(job, {names.STEP: job["metadata"]["generateName"].rstrip("-.")})
        for job in jobs
    ]


def submit_group(
    client: "Client", manifests: Sequence[Json], source: str, key: str | None
) -> tuple[Json, list["JobView"]]:
    """The group as the service sees it, and its Jobs; none of them where it is refused."""
    from laxity.api.client import ServiceError

    document = group_document(manifests, source, key)
    answer = client.submit_group(document)
    kind = {"promised": "hard"}.get(answer["verdict"], "soft")
    deadline = format_rfc3339(answer["deadline_at"], "milliseconds")
    terms = {names.GROUP: document["name"], names.DEADLINE: deadline, names.CLASS: kind}
    jobs = [_with_annotations(job, {**terms, names.STEP: _step_of(job)}) for job in manifests]
    if answer["state"] == "refused":
        return answer, []
    try:
        views = [client.submit(job) for job in jobs]
    except ServiceError:
        client.end_group(answer["id"], "cancelled")  # with those that were taken
        raise
    return client.group(answer["id"]), views


def group_document(manifests: Sequence[Json], source: str, key: str | None) -> Json:
    """The group of these Jobs. CommandError where they do not agree on its name or deadline."""
    named = _agreed(manifests, source, names.GROUP)
    deadline = _agreed(manifests, source, names.DEADLINE)
    if not deadline:
        message = f"{source}: the group has no deadline; say one for all of it: --deadline 8h"
        raise CommandError(message, code=USAGE)
    rows: dict[str, Json] = {}
    for job in manifests:
        row = rows.setdefault(
            _step_of(job), {"name": _step_of(job), "count": 0, "after": [], "manifest": job}
        )
        row["count"] += 1
        row["after"] += parse_steps(_annotations_of(job).get(names.AFTER, ""))
    return {
        "name": named or job_name(Path(source).stem, key),
        "namespace": manifests[0]["metadata"].get("namespace") or "default",
        "workflow": Path(source).stem,
        "deadline": deadline,
        "class": _agreed(manifests, source, names.CLASS) or "hard",
        "steps": [
            {**row, "manifest": _without_terms(row["manifest"], row["name"])}
            for row in rows.values()
        ],
    }


def _agreed(manifests: Sequence[Json], source: str, annotation: str) -> str | None:
    """What all that say something say."""
    values = {_annotations_of(job).get(annotation) for job in manifests} - {None}
    if len(values) > 1:
        said = " and ".join(sorted(map(str, values)))
        message = f"{source}: Jobs of one group say {said} for {annotation}; they need one for all"
        raise CommandError(message, code=USAGE)
    return next(iter(values), None)


def _without_terms(job: Json, step: str) -> Json:
    """The Job as its time is predicted from: on its own."""
    annotations = _annotations_of(job)
    own = {name: text for name, text in annotations.items() if name not in {*TERMS, names.AFTER}}
    own.pop(names.GROUP, None)
    own.pop(names.STEP, None)
    named = {**job["metadata"], "name": job["metadata"].get("name") or step}
    return {**job, "metadata": {**named, "annotations": own}}


def _with_annotations(job: Json, more: Json) -> Json:
    return {
        **job,
        "metadata": {**job["metadata"], "annotations": {**_annotations_of(job), **more}},
    }


def _step_of(job: Json) -> str:
    return str(_annotations_of(job).get(names.STEP) or job["metadata"]["name"])


def _annotations_of(job: Json) -> Json:
    return dict(job["metadata"].get("annotations") or {})
