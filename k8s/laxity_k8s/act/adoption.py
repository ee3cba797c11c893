"""What is written on a Job before any policy sees it, because of what somebody else did to it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from laxity import json_tree, names
from laxity.instants import format_rfc3339
from laxity.job.manifest_reader import controller_of
from laxity_k8s.act.patches import LONGEST_REASON
from laxity_k8s.cluster_api import Json, Patch
from laxity_k8s.objects import jobs
from laxity_k8s.objects.size_owners import is_applied
from laxity_k8s.objects.status_annotation import (
    JobStatusRecord,
    digest_terms,
    read_status,
    read_verdict,
    verdict_text,
)
from laxity_k8s.observe.last_declared import GOES_ON
from laxity_scheduler.model.job import Forecast, Promise, Refusal
from laxity_scheduler.model.reasons import format_utc, reason
from laxity_scheduler.model.start_backoff import backoff_s

TARGET: Final = "FailureTarget"  # condition of a Job that has to fail
SUCCESS: Final = "SuccessCriteriaMet"  # of one that is to be complete
SILENT_S: Final = 300.0  # a Job that ran for so long was left alone by its applier
APPLY_ADVICE: Final = (
    ". Leave spec.suspend, parallelism and completions out of the file; in Argo CD, list "
    "/spec/suspend, /spec/parallelism and /spec/completions under ignoreDifferences"
)


@dataclass(frozen=True, slots=True)
class Tending:
    """One patch, and the news about it."""

    patch: Patch
    code: str
    words: str
    warns: bool = True


def find_correction(job: Json, *, now: float) -> Tending | None:
    """Suspend a new Job that runs; pin one changed by hand; end a refused one of a CronJob.

    None if nothing is to do. The pin takes the Job's present width as what was wanted, so that it ends with its annotation. A
    file that was applied again is no change by hand: laxity decides about the Job as it is now.
    """
    if not jobs.is_live(job) or any(controller_of(json_tree.mapping_at(job, "metadata"))):
        return None
    state = read_status(job)
    if jobs.is_unadopted(job):
        state = replace(state, wanted=0, queued_at=now)
        message = "it has no verdict yet: suspended until it has one"
        body = {
            "metadata": {"annotations": {names.STATUS: state.to_text()}},
            "spec": {"suspend": True},
        }
        return Tending(patch_of(job, body), "suspended", message)
    how = jobs.by_hand(job)
    if not how and _is_pinned_unsaid(job):
        how = "created with a pin"
    if not how:
        return _end_refused(job, now)
    if is_applied(job):
        return _take_back(job, now)
    pin_reason = reason("pinned")
    state = replace(state, wanted=jobs.current_width(job))
    pinned = {
        names.PIN: json_tree.annotations_of(job).get(names.PIN, how),
        names.STATUS: state.to_text(),
        names.REASON: pin_reason.text,
    }
    return Tending(
        patch_of(job, {"metadata": {"annotations": pinned}}),
        pin_reason.code,
        f"{how}: {pin_reason.text}",
    )


def _is_pinned_unsaid(job: Json) -> bool:
    """Whether it was created with a pin, and nothing was said of it yet."""
    annotations = json_tree.annotations_of(job)
    return names.PIN in annotations and names.REASON not in annotations


def _take_back(job: Json, now: float) -> Tending:
    """The Job as it is after the file was applied, for the next decision.

    The first time that is soon. An applier that does it again, before the Job could run for a while,
    would stop the next start as well: that waits for 1, 2, 4, ... minutes.
    """
    width, state = jobs.current_width(job), _count_applied(read_status(job), now)
    body: Json = {}
    again = state.applied > 1
    when = f"not before {format_utc(state.not_before)}" if again else "as soon as it can"
    if state.wanted == 0:
        body, width = {"spec": {"suspend": True}}, 0
        message = "a file was applied and started it before its turn: suspended until it comes"
    elif width:
        message = f"a file was applied again: it runs on {width}; it is resized {when}"
    else:
        state = replace(state, queued_at=now)
        message = f"a file was applied again and stopped it: it starts again {when}"
    message += APPLY_ADVICE if again else ""
    notes: dict[str, str | None] = {names.STATUS: replace(state, wanted=width).to_text()}
    if width == 0:
        here = json_tree.annotations_of(job)
        notes |= {key: None for key in (names.STOP, names.RESIZE_TO, names.NODES) if key in here}
    return Tending(
        patch_of(job, {"metadata": {"annotations": notes}, **body}), "applied_again", message
    )


def _count_applied(state: JobStatusRecord, now: float) -> JobStatusRecord:
    """The state after another time. The applier was silent if the Job could run for a while.

    A Job that waits for its turn is not put off: once it runs, such a file changes nothing.
    """
    since = max(state.applied_at, state.resumed_at or 0.0)
    applied = state.applied + 1 if now < since + SILENT_S else 1
    later_at = max(state.not_before, now + backoff_s(applied))
    not_before = later_at if state.wanted else state.not_before
    return replace(state, applied=applied, applied_at=now, not_before=not_before)


def _end_refused(job: Json, now: float) -> Tending | None:
    """End the refused Job of a CronJob; None if it is none.

    While it waits for another deadline a CronJob that forbids two at once makes no other Job, and one
    that allows them makes more and more.
    """
    refused = read_verdict(job)
    if not isinstance(refused, Refusal) or not _is_of_cron_job(job) or jobs.current_width(job):
        return None
    asks_again = refused.reason.code != "invalid" and read_status(job).terms != digest_terms(job)
    if asks_again or jobs.count_leaving(job, (), 0):
        return None
    message = refused.reason.text[:LONGEST_REASON]
    event_text = f"this run of a CronJob ends refused: {message}"
    return Tending(
        failure_patch(job, names.REFUSED, message, now=now), "refused_run_ended", event_text
    )


def _is_of_cron_job(job: Json) -> bool:
    return any(
        owner.get("kind") == "CronJob" and owner.get("controller")
        for owner in json_tree.list_at(job, "metadata", "ownerReferences")
    )


def write_refusal(job: Json, bad: Mapping[str, jobs.BadJob]) -> Tending | None:
    """Tell a Job what is wrong with it; None if it was told.

    What it was judged by is forgotten, so that it asks again as soon as it makes sense. A promise or
    a forecast stands if the Job is put off.
    """
    wrong = bad[json_tree.object_id(job)]
    refusal = wrong.refusal
    invalid = refusal.reason
    metadata: Json = {"annotations": {names.REASON: invalid.text}}
    if not (wrong.put_off and isinstance(read_verdict(job), Promise | Forecast)):
        metadata["annotations"][names.VERDICT] = verdict_text(refusal)
        metadata["labels"] = {names.VERDICT_LABEL: "refused"}
        state = read_status(job)
        if state.terms:
            metadata["annotations"][names.STATUS] = replace(state, terms="").to_text()
    annotations = metadata["annotations"]
    if all(json_tree.annotations_of(job).get(key) == value for key, value in annotations.items()):
        return None
    return Tending(patch_of(job, {"metadata": metadata}), invalid.code, invalid.text)


def find_mended(job: Json) -> Tending | None:
    """What stands again of a Job that goes on, where it still says what was wrong with it."""
    annotations, verdict = json_tree.annotations_of(job), read_verdict(job)
    shown = str(annotations.get(names.REASON, ""))
    was_pinned = shown == reason("pinned").text and names.PIN not in annotations
    if not (was_pinned or shown.endswith(GOES_ON)) or not isinstance(verdict, Promise | Forecast):
        return None
    standing = verdict.reason
    body: Json = {"metadata": {"annotations": {names.REASON: standing.text}}}
    return Tending(patch_of(job, body), standing.code, standing.text, warns=False)


def failure_patch(job: Json, why: str, words: str, *, now: float) -> Patch:
    """Fail the Job, with these words as its reason.

    The job controller ends what pods it has, and then says Failed in the words of FailureTarget. It
    wants a start time, also of a Job that has never run.
    """
    return _end_patch(job, TARGET, why, words, now)


def success_patch(job: Json, words: str, *, now: float) -> Patch:
    """Complete the Job, whatever its pods have come to. Kubernetes takes it of Indexed Jobs only."""
    return _end_patch(job, SUCCESS, "CompletionsReached", words, now)


def _end_patch(job: Json, kind: str, why: str, words: str, now: float) -> Patch:
    now_text = format_rfc3339(int(now))
    target = {
        "type": kind, "status": "True", "reason": why, "message": words, "lastTransitionTime": now_text,
    }  # fmt: skip
    others = json_tree.list_at(job, "status", "conditions")
    start = json_tree.get_in(job, "status", "startTime") or now_text
    body = {
        "metadata": {"annotations": {names.REASON: words}},
        "status": {"startTime": start, "conditions": [*others, target]},
    }
    return replace(patch_of(job, body), subresource="status")


def patch_of(job: Json, body: Json) -> Patch:
    """The patch of this Job as it was seen."""
    meta = {**body["metadata"], "resourceVersion": job["metadata"]["resourceVersion"]}
    return Patch("jobs", json_tree.object_id(job), {**body, "metadata": meta})
