"""What a submission gets under an idempotency key: an earlier Job, or a new attempt. Pure.

A key names one training. What becomes of it depends on the latest attempt that is there:

| latest attempt                  | the same again | `fresh`      | other terms     | another training |
|---------------------------------|----------------|--------------|-----------------|------------------|
| none                            | attempt 1      | attempt 1    | attempt 1       | attempt 1        |
| LIVE: waits, runs, stops, asks  | attaches       | attaches     | error           | error            |
| FINISHED                        | its result     | its result   | its result      | error            |
| FAILED (attempt n)              | n+1, goes on   | n+1, anew    | n+1, goes on    | error if not fresh |
| REFUSED (attempt n)             | n, goes on     | n, anew      | n, goes on      | error if not fresh and trained |

"Goes on" is: in the folder of the attempt that trained last, after the epochs that it reported. All
attempts count their deadline from the first submission. The new attempt n takes the place of the
refused one. A Job that was cancelled or deleted is no attempt any more: the one before it is the
latest. Terms are deadline, class, widths and the like; what its user amended or accepted stays in
force for whoever declares the terms of the first submission again.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from laxity import json_tree, names
from laxity_k8s.act.submission_differences import first_terms, of_terms, of_training
from laxity_k8s.cluster_api import Json
from laxity_k8s.objects import jobs
from laxity_k8s.objects.attempts import (
    attempt_name,
    attempt_number,
    begins_anew,
    go_on,
    repeat_job,
)
from laxity_k8s.objects.conditions import read_condition
from laxity_k8s.objects.status_annotation import asks_again, read_status, read_verdict
from laxity_scheduler.live import DuplicateJobError, Reports
from laxity_scheduler.model.verdict import Refusal

OTHER_TRAINING: Final = "Use another key"
OTHER_AFTER_FAILURE: Final = "Use another key, or begin anew (--fresh, or fresh=True)"
OTHER_TERMS: Final = (
    "Change a running job with: laxity amend {job} --deadline ..., or use another key"
)
AMENDED: Final = (names.DEADLINE, names.CLASS, names.WIDTHS, names.FIRST_TERMS)


class KeyState(Enum):
    """What has become of an attempt."""

    LIVE = auto()
    REFUSED = auto()
    FAILED = auto()
    FINISHED = auto()


@dataclass(frozen=True, slots=True)
class KeyAnswer:
    """The Job to answer with; if it `is_new`, to create once `replaced` has been deleted."""

    job: Json
    is_new: bool = True
    replaced: Json | None = None


def answer_key(
    job: Json, attempts: Iterable[Json], reports: Reports, *, taken: Collection[str] = ()
) -> KeyAnswer:
    """What `job` gets whose key these Jobs have; no new attempt has a `taken` name.

    DuplicateJobError if the key is that of another declaration: in what they differ.
    """
    ordered = sorted(attempts, key=_attempt_order, reverse=True)
    if not ordered:
        return KeyAnswer(job)
    latest = ordered[0]
    state = state_of(latest)
    if state is KeyState.LIVE:
        _check_same(latest, of_training(latest, job), OTHER_TRAINING)
        _check_same(latest, of_terms(latest, job), OTHER_TERMS)
        return KeyAnswer(latest, is_new=False)
    if state is KeyState.FINISHED:
        _check_same(latest, of_training(latest, job), OTHER_TRAINING)
        return KeyAnswer(latest, is_new=False)
    number, name = attempt_number(latest), str(latest["metadata"]["name"])
    if state is KeyState.FAILED:
        number += 1
        name = attempt_name(latest, number, taken)
    again = repeat_job(job, latest, number=number, name=name)
    _keep_amended_terms(again, latest)
    trained = None if begins_anew(job) else _find_trained(ordered, reports)
    if trained is not None:
        _check_same(trained, of_training(trained, job), OTHER_AFTER_FAILURE)
        go_on(again, trained, reports(json_tree.uid_of(trained)))
    return KeyAnswer(again, replaced=latest if state is KeyState.REFUSED else None)


def state_of(job: Json) -> KeyState:
    """A refused Job that asks again, for it was amended, or that somebody runs by hand, is live."""
    if read_condition(job, "Failed") == "True":
        return KeyState.FAILED
    if read_condition(job, "Complete") == "True":
        return KeyState.FINISHED
    refused = isinstance(read_verdict(job), Refusal) and not asks_again(job)
    return KeyState.REFUSED if refused and not jobs.current_width(job) else KeyState.LIVE


def _attempt_order(job: Json) -> tuple[int, float]:
    return attempt_number(job), jobs.creation_instant(job)


def _find_trained(ordered: Iterable[Json], reports: Reports) -> Json | None:
    """The latest attempt that has, or goes on with, something trained: refused ones may have none."""
    return next((job for job in ordered if _may_have_trained(job, reports)), None)


def _may_have_trained(job: Json, reports: Reports) -> bool:
    if state_of(job) is not KeyState.REFUSED or names.TRAINING in json_tree.annotations_of(job):
        return True
    report = reports(json_tree.uid_of(job))
    return read_status(job).resumed_at is not None or bool(
        report.formed or report.progress.epochs_done
    )


def _keep_amended_terms(job: Json, before: Json) -> None:
    """Terms that were amended since stay in force, if those of the first submission are declared."""
    amended = json_tree.annotations_of(before)
    if names.FIRST_TERMS not in amended or of_terms(first_terms(before), job):
        return
    own = job["metadata"]["annotations"]
    for name in AMENDED:
        own.pop(name, None)
        if name in amended:
            own[name] = amended[name]


def _check_same(before: Json, differences: Sequence[str], remedy: str) -> None:
    if differences:
        job_id = json_tree.object_id(before)
        key = json_tree.annotations_of(before).get(names.IDEMPOTENCY_KEY)
        raise DuplicateJobError(
            f"idempotency key {key!r} is that of {job_id}, which is another declaration: "
            f"{'; '.join(differences)}. {remedy.format(job=job_id)}"
        )
