"""Jobs as people write them: YAML or JSON files, `-` for standard input, or a function's name.

What can be wrong with a file is said here, with its name and place, before anything is sent.
"""

import json
import math
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from laxity import names
from laxity.api.job_view import Json
from laxity.cli.exit_codes import USAGE, CommandError
from laxity.job.spec import job_name
from laxity.stderr import say

FILE_LIMIT_BYTES: Final = 16 * 1024 * 1024
DEEPEST: Final = 100  # levels; a Job has about ten


def read_jobs(source: str) -> list[Json]:
    """The Jobs of a file (YAML documents, a List, or JSON); CommandError says what is wrong."""
    text = _read_text(source)
    jobs = [
        job for document in _parse_documents(text, source) for job in _list_items(document, source)
    ]
    if not jobs:
        raise CommandError(f"{source}: no Job in it", code=USAGE)
    for number, job in enumerate(jobs, start=1):
        _check_job(job, f"{source}, document {number}")
    named = [job["metadata"]["name"] for job in jobs if job["metadata"].get("name")]
    for twin in [name for name, count in Counter(named).items() if count > 1][:1]:
        message = f"{source}: two Jobs are called {twin}: give each its own name"
        raise CommandError(message, code=USAGE)
    return jobs


def with_annotations(
    manifest: Mapping[str, Any],
    annotations: Mapping[str, str | None],
    *,
    name: str | None = None,
    namespace: str | None = None,
) -> Json:
    """The manifest with other annotations (None changes nothing), name and namespace.

    Jobs of one generateName are trainings of one model, unless a model is named.
    """
    metadata = dict(manifest.get("metadata") or {})
    merged = dict(metadata.get("annotations") or {})
    merged |= {key: value for key, value in annotations.items() if value is not None}
    if annotations.get(names.CLASS) == "best_effort" and annotations.get(names.DEADLINE) is None:
        dropped = merged.pop(names.DEADLINE, None)
        if dropped is not None:
            say(f"best_effort has no deadline: {dropped} is left out")
    naming = {"name": name, "namespace": namespace}
    metadata |= {key: value for key, value in naming.items() if value is not None}
    if not metadata.get("name"):  # the same name for the same key, which attaches then
        key, base = merged.get(names.IDEMPOTENCY_KEY), str(metadata.pop("generateName"))
        metadata["name"] = job_name(base, key)
        merged.setdefault(names.MODEL, base.rstrip("-."))
    labels = {**(metadata.get("labels") or {}), names.MANAGED: "true"}
    return {**manifest, "metadata": {**metadata, "annotations": merged, "labels": labels}}


def _read_text(source: str) -> str:
    try:
        if source == "-":
            text = sys.stdin.read(FILE_LIMIT_BYTES + 1)
        else:
            with Path(source).open(encoding="utf-8") as file:
                text = file.read(FILE_LIMIT_BYTES + 1)
    except (OSError, UnicodeDecodeError) as error:
        problem = getattr(error, "strerror", None) or "not UTF-8 text"
        raise CommandError(f"{source}: {problem}", code=USAGE) from error
    if len(text) > FILE_LIMIT_BYTES:
        raise CommandError(f"{source}: more than {FILE_LIMIT_BYTES} bytes", code=USAGE)
    return text


def _parse_documents(text: str, source: str) -> Iterable[Any]:
    """JSON where it is JSON (quicker, and stricter), YAML documents otherwise."""
    if text.lstrip().startswith("{"):
        try:
            return [json.loads(text)]
        except (ValueError, RecursionError):
            pass  # `{` also starts YAML in flow style
    import yaml

    from laxity.job.manifest_yaml import load_documents

    try:
        return load_documents(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "cannot be read"
        raise CommandError(f"{source}{place}: not YAML: {problem}", code=USAGE) from error


def _list_items(document: Any, source: str) -> list[Any]:
    if not isinstance(document, dict) or document.get("kind") != "List":
        return [document]
    items = document.get("items") or []
    if not isinstance(items, list):
        raise CommandError(f"{source}: items of a List: write a list of Jobs", code=USAGE)
    return items


def _check_job(job: Any, where: str) -> None:
    """It must be a batch/v1 Job with a name; all else is judged by the service."""
    if not isinstance(job, dict):
        raise CommandError(
            f"{where}: a Job is a mapping, this is a {type(job).__name__}", code=USAGE
        )
    kind = f"{job.get('apiVersion')} {job.get('kind')}"
    if kind != "batch/v1 Job":
        raise CommandError(f"{where}: a batch/v1 Job is wanted, this is a {kind}", code=USAGE)
    metadata = job.get("metadata")
    if not isinstance(metadata, dict) or not (metadata.get("name") or metadata.get("generateName")):
        message = f"{where}: the Job has no metadata.name and no metadata.generateName"
        raise CommandError(message, code=USAGE)
    for key in ("annotations", "labels"):
        if not isinstance(metadata.get(key) or {}, dict):
            raise CommandError(f"{where}: metadata.{key}: write KEY: VALUE pairs", code=USAGE)
    _check_values(job, where)


def _check_values(value: Any, where: str, depth: int = 0) -> None:
    """All of it can be sent as JSON: no other types, no infinity, not too deep."""
    if depth > DEEPEST:
        raise CommandError(f"{where}: nested more than {DEEPEST} levels deep", code=USAGE)
    if isinstance(value, dict):
        for key, inside in value.items():
            if not isinstance(key, str | int | float):
                raise CommandError(f"{where}: {key!r:.60} is not a key of JSON", code=USAGE)
            _check_values(inside, where, depth + 1)
    elif isinstance(value, list):
        for inside in value:
            _check_values(inside, where, depth + 1)
    elif isinstance(value, float) and not math.isfinite(value):
        raise CommandError(f"{where}: {value} is not a number of JSON", code=USAGE)
    elif value is not None and not isinstance(value, str | int | float):
        raise CommandError(f"{where}: {value!r:.60} is not a value of JSON", code=USAGE)
