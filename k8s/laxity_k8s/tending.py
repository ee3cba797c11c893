"""What is written on a Job before any policy sees it, because of what somebody else did to it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from laxity import names
from laxity_k8s import merge, objects
from laxity_k8s.api import Json, Patch
from laxity_k8s.kept import kept, verdict_text
from laxity_scheduler.reasons import Reason, reason
from laxity_scheduler.verdict import Refusal

NOT_OURS = "pinned"


@dataclass(frozen=True, slots=True)
class Tending:
    """One patch, and the news about it."""

    patch: Patch
    code: str
    words: str


def tending(job: Json, *, now: float) -> Tending | None:
    """Suspend a new Job that runs; pin one that was changed by hand; None if nothing is to do.

    The pin takes the Job's present width as what was wanted, so that it ends with its annotation.
    """
    if not objects.live(job):
        return None
    state = kept(job)
    if objects.unadopted(job):
        state = replace(state, wanted=0, queued_at=now)
        words = "it has no verdict yet: suspended until it has one"
        body = {
            "metadata": {"annotations": {names.STATUS: state.to_text()}},
            "spec": {"suspend": True},
        }
        return Tending(patch_of(job, body), "suspended", words)
    how = objects.by_hand(job)
    if not how:
        return None
    why = reason("pinned")
    state = replace(state, wanted=objects.width(job))
    pinned = {
        names.PIN: merge.annotations(job).get(names.PIN, how),
        names.STATUS: state.to_text(),
        names.REASON: why.text,
    }
    return Tending(
        patch_of(job, {"metadata": {"annotations": pinned}}), why.code, f"{how}: {why.text}"
    )


def refusal(job: Json, bad: Mapping[str, objects.BadJob]) -> Tending | None:
    """Tell a Job what is wrong with it; None if it was told.

    What it was judged by is forgotten, so that it asks again as soon as it makes sense.
    """
    problems = bad[merge.identity(job)].problems
    why: Reason = reason("invalid", problem="; ".join(problems)[:1000])
    said = {names.VERDICT: verdict_text(Refusal(why)), names.REASON: why.text}
    state = kept(job)
    if state.terms:
        said[names.STATUS] = replace(state, terms="").to_text()
    if all(merge.annotations(job).get(key) == value for key, value in said.items()):
        return None
    labels = {names.VERDICT_LABEL: "refused"}
    return Tending(
        patch_of(job, {"metadata": {"annotations": said, "labels": labels}}), why.code, why.text
    )


def patch_of(job: Json, body: Json) -> Patch:
    """The patch of this Job as it was seen."""
    meta = {**body["metadata"], "resourceVersion": job["metadata"]["resourceVersion"]}
    return Patch("jobs", merge.identity(job), {**body, "metadata": meta})
