"""What a submission gets under an idempotency key: an earlier Job, or a new attempt. Pure.

A key names one training. What becomes of it depends on the latest attempt that is there:

| latest attempt                  | the same again | `fresh`      | other terms     | another training |
|---------------------------------|----------------|--------------|-----------------|------------------|
| none                            | attempt 1      | attempt 1    | attempt 1       | attempt 1        |
| LIVE: waits, runs, stops, asks  | attaches       | attaches     | error           | error            |
| FINISHED                        | its result     | its result   | its result      | error            |
| FAILED (attempt n)              | n+1, goes on   | n+1, anew    | n+1, goes on    | error if not fresh |
| REFUSED, CANCELLED (attempt n)  | n, goes on     | n, anew      | n, goes on      | error if not fresh and trained |

"Goes on" is: in the folder of the attempt that trained last, after the epochs that it reported. All
attempts count their deadline from the first submission. The new attempt n takes the place of the
refused one. A cancelled Job is gone, and the service knows it for as long as it lists it. A Job that
somebody else deleted is no attempt any more: the one before it is the latest. Terms are deadline,
class, widths and the like; what its user amended or accepted stays in force for whoever declares the
terms of the first submission again.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from operator import attrgetter
from typing import Any, Final

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
from laxity_scheduler.model.job import Refusal

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
    CANCELLED = auto()


ATTACHES: Final = frozenset({KeyState.LIVE, KeyState.FINISHED})


@dataclass(frozen=True, slots=True)
class Attempt:
    """A Job with this key, and what has become of it."""

    job: Json
    state: KeyState

    @property
    def number(self) -> int:
        return attempt_number(self.job)

    @property
    def order(self) -> tuple[int, bool, float]:
        """The latest is the greatest; of one number it is the one that is there."""
        is_there = self.state is not KeyState.CANCELLED
        return self.number, is_there, jobs.creation_instant(self.job)


@dataclass(frozen=True, slots=True)
class KeyAnswer:
    """The Job to answer with; if it `is_new`, to create once `replaced` has been deleted."""

    job: Json
    is_new: bool = True
    replaced: Json | None = None


def answer_key(
    job: Json,
    there: Iterable[Json],
    reports: Reports,
    *,
    taken: Collection[str] = (),
    cancelled: Iterable[Mapping[str, Any]] = (),
) -> KeyAnswer:
    """What `job` gets whose key these Jobs have; no further attempt has a `taken` name.

    `cancelled` ones may be gone. DuplicateJobError if the key is that of another declaration: in what
    they differ.
    """
    attempts = sort_attempts(there, cancelled)
    if not attempts:
        return KeyAnswer(job)
    latest = attempts[0]
    if latest.state in ATTACHES:
        _check_same(latest.job, of_training(latest.job, job), OTHER_TRAINING)
        if latest.state is KeyState.LIVE:
            _check_same(latest.job, of_terms(latest.job, job), OTHER_TERMS)
        return KeyAnswer(latest.job, is_new=False)
    number, name = latest.number, str(latest.job["metadata"]["name"])
    number += latest.state is KeyState.FAILED
    if latest.state is KeyState.FAILED or name in taken:
        name = attempt_name(latest.job, number, taken)
    again = repeat_job(job, latest.job, number=number, name=name)
    _keep_amended_terms(again, latest.job)
    trained = None if begins_anew(job) else _find_trained(attempts, reports)
    if trained is not None:
        _check_same(trained, of_training(trained, job), OTHER_AFTER_FAILURE)
        go_on(again, trained, reports(json_tree.uid_of(trained)))
    return KeyAnswer(again, replaced=latest.job if latest.state is KeyState.REFUSED else None)


def sort_attempts(
    there: Iterable[Json], cancelled: Iterable[Mapping[str, Any]]
) -> Sequence[Attempt]:
    """The latest first; of those of one second, the one that was named last.

    A cancelled Job that is still there is as it is.
    """
    attempts = [Attempt(job, state_of(job)) for job in there]
    uids = {json_tree.uid_of(attempt.job) for attempt in attempts}
    gone = [dict(job) for job in cancelled if json_tree.uid_of(job) not in uids]
    attempts += [Attempt(job, KeyState.CANCELLED) for job in gone]
    return sorted(attempts, key=attrgetter("order"))[::-1]


def state_of(job: Json) -> KeyState:
    """A refused Job that asks again, for it was amended, or that somebody runs by hand, is live."""
    if read_condition(job, "Failed") == "True":
        return KeyState.FAILED
    if read_condition(job, "Complete") == "True":
        return KeyState.FINISHED
    refused = isinstance(read_verdict(job), Refusal) and not asks_again(job)
    return KeyState.REFUSED if refused and not jobs.current_width(job) else KeyState.LIVE


def _find_trained(attempts: Iterable[Attempt], reports: Reports) -> Json | None:
    """The latest attempt that has, or goes on with, something trained: some ran nothing."""
    return next((row.job for row in attempts if _may_have_trained(row, reports)), None)


def _may_have_trained(attempt: Attempt, reports: Reports) -> bool:
    job = attempt.job
    if attempt.state is KeyState.FAILED or names.TRAINING in json_tree.annotations_of(job):
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
