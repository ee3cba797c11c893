"""Attempts at one training: Jobs with one idempotency key, each begun after the one before failed.

They share the folder of the first, named in annotation `laxity.dev/training`, so that each goes on
from the last finished epoch; a Job that begins anew is the first of another training. Epochs are
reported by each Job for itself, and no epoch twice (laxity.worker.reports).
"""

import copy
import json
import re
from collections.abc import Container
from dataclasses import asdict, dataclass
from itertools import chain, count
from typing import Final

from laxity import json_tree, names
from laxity.instants import format_rfc3339, instant_at
from laxity.job.pod_template import escape_literal
from laxity.job.spec import LONGEST_NAME
from laxity.job.submission import counts_from
from laxity.parsing import whole_number
from laxity_k8s.cluster_api import Json
from laxity_k8s.objects.status_annotation import parse_mapping
from laxity_scheduler.live import Report

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?")
_UID: Final = re.compile(r"[0-9A-Za-z-]{1,64}")


@dataclass(frozen=True, slots=True)
class Origin:
    """The Job that a training began with, and how many epochs it had done when this one began."""

    name: str
    uid: str
    epochs: int = 0


def origin_of(job: Json) -> Origin:
    """Where this Job's training began: with itself, unless it goes on from an earlier attempt."""
    own = Origin(str(job["metadata"]["name"]), str(job["metadata"].get("uid", "")))
    text = json_tree.annotations_of(job).get(names.TRAINING)
    if text is None:
        return own
    document = parse_mapping(text)  # {} if somebody wrote it by hand and it makes no sense
    name, uid = document.get("name"), document.get("uid")
    epochs = whole_number(document.get("epochs"))
    if not (isinstance(name, str) and _NAME.fullmatch(name)) or epochs is None:
        return own
    is_uid = isinstance(uid, str) and _UID.fullmatch(uid)
    return Origin(name, str(uid), epochs) if is_uid else own


def epochs_done(job: Json, report: Report) -> int:
    """Epochs that this Job has, those of earlier attempts too, before its workers say so."""
    done = report.progress.epochs_done
    return done if done or report.formed else origin_of(job).epochs


def attempt_number(job: Json) -> int:
    return whole_number(json_tree.annotations_of(job).get(names.ATTEMPT), least=1) or 1


def begins_anew(job: Json) -> bool:
    return json_tree.annotations_of(job).get(names.FRESH) == "true"


def repeat_job(job: Json, before: Json, *, number: int, name: str) -> Json:
    """The Job as attempt `number` at what `before` is an attempt at, under this name.

    It has the time of the first submission, and so the first deadline, and begins at epoch 0.
    """
    again: Json = copy.deepcopy(job)
    annotations = again["metadata"].setdefault("annotations", {})
    annotations[names.SUBMITTED_AT] = first_submission(before)
    if number > 1:
        annotations[names.ATTEMPT] = str(number)
    rename_job(again, name)
    return again


def first_submission(job: Json) -> str:
    """When the first attempt was submitted, RFC 3339."""
    said = json_tree.annotations_of(job).get(names.SUBMITTED_AT)
    created_at = instant_at(json_tree.get_in(job, "metadata", "creationTimestamp")) or 0.0
    claimed_at = instant_at(said)
    since = counts_from(claimed_at, created_at)
    return str(said) if claimed_at == since else format_rfc3339(since, "milliseconds")


def attempt_name(before: Json, number: int, taken: Container[str]) -> str:
    """The name of attempt `number`, made of the name before: none of `taken` in that namespace."""
    name, last = str(before["metadata"]["name"]), attempt_number(before)
    base = name.removesuffix(f"-a{last}") if last > 1 else name
    ends = (f"-a{number}{more}" for more in chain([""], (f"-{spare}" for spare in count(2))))
    fitting = (f"{base[: LONGEST_NAME - len(end)].rstrip('-')}{end}" for end in ends)
    return next(name for name in fitting if name not in taken)


def rename_job(job: Json, name: str) -> None:
    """Another name for a Job that is to be created; its workers report under it."""
    job["metadata"]["name"] = name
    for row in json_tree.list_at(job, "spec", "template", "spec", "containers", 0, "env"):
        if row.get("name") == names.ENV_JOB:
            row["value"] = f"{job['metadata']['namespace']}/{name}"


def go_on(job: Json, trained: Json, report: Report) -> None:
    """Let the Job go on with the training of an earlier attempt, whose report this is, in its folder."""
    first = origin_of(trained)
    done = 0 if report.holds_state is False else epochs_done(trained, report)
    began = Origin(first.name, first.uid, done)
    job["metadata"]["annotations"][names.TRAINING] = json.dumps(asdict(began))
    for container in json_tree.list_at(job, "spec", "template", "spec", "containers")[:1]:
        rows = json_tree.list_at(container, "env")
        for row in rows:
            if row.get("name") == names.ENV_CHECKPOINTS and isinstance(row.get("value"), str):
                own_uid, first_uid = f"$({names.ENV_JOB_UID})", f"$({names.ENV_TRAINING})"
                row["value"] = row["value"].replace(own_uid, first_uid)
        env = {"name": names.ENV_TRAINING, "value": escape_literal(began.uid)}
        container["env"] = [env, *rows]  # in front: later ones refer to it
