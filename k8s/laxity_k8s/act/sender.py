"""Patches on their way: sent in order, once more where a race was lost about nothing, and seen.

Every answer goes into the cache at once, so the next look sees what was just done.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from laxity import json_tree
from laxity_k8s.act.adoption import Tending
from laxity_k8s.act.event_writer import EventWriter
from laxity_k8s.act.patches import JobPatch
from laxity_k8s.act.put_back import accept_width, describe_put_back
from laxity_k8s.act.resend import at_revision, is_alike, is_of_revision, onto_revision, reset_patch
from laxity_k8s.act.rights import TRY_AGAIN_S, Rights, refusal_text
from laxity_k8s.cluster_api import (
    CONFLICT,
    NOT_FOUND,
    REFUSED,
    ApiError,
    ClusterApi,
    Json,
    Patch,
    PatchResult,
)
from laxity_k8s.error_isolation import Guard
from laxity_k8s.objects.conditions import is_finished
from laxity_k8s.objects.seal import Seal
from laxity_k8s.observe.cluster_cache import ClusterCache
from laxity_scheduler.job_faults import JobFaults
from laxity_scheduler.model.job import FOREVER
from laxity_scheduler.service_clock import CLOCK


class Sender:
    """Sends what was decided on the Jobs that are `shown`, by id, and tells their Events.

    A Job whose patch the API server refuses (as invalid, too large, or by an admission webhook) is
    handed to `put_off`, with its words.

    `sent` counts patches by what became of them. `unsure` says whether one may have landed of which
    nothing is known: whoever decides has to look at all Jobs first. At `again_at` what the API server
    has refused without a reason to believe is decided on again. `undone` says of which Jobs patches were
    refused since it was emptied last, and why; "" where that is not to be believed yet.
    """

    def __init__(
        self,
        api: ClusterApi,
        cache: ClusterCache,
        events: EventWriter,
        shown: Callable[[str], Json | None],
        *,
        put_off: Callable[[str, str, float], None],
        seal: Seal | None = None,
        faults: JobFaults | None = None,
    ) -> None:
        self.sent: Counter[str] = Counter()
        self.unsure = False
        self.again_at = FOREVER
        self.undone: dict[str, str] = {}
        self._api, self._cache, self._events = api, cache, events
        self._shown, self._put_off, self._seal = shown, put_off, seal
        self._rights = Rights(events)
        self._guard = Guard("sending", faults)

    def send_turn(self, wished: Sequence[JobPatch]) -> None:
        """One turn's patches; a start time that is in the way is cleared before."""
        resets = [reset_patch(patch) for patch in wished if patch.reset_first]
        cleared = {done.patch.id: done for done in self.send_all(resets)}
        ready = [patch for patch in wished if not patch.reset_first]
        for patch in wished:
            after = cleared.get(patch.patch.id) if patch.reset_first else None
            if after is not None and after.object is not None:
                ready.append(onto_revision(patch, after.object))
        sent = {patch.patch.id: patch for patch in ready}
        for done in self.send_all([patch.patch for patch in ready]):
            self._guard(done.patch.id, self._write_events, done.object or {}, sent[done.patch.id])

    def write_corrections(self, found: Sequence[Tending]) -> None:
        """What Jobs need before they are decided on, and the news about it."""
        news = {correction.patch.id: correction for correction in found}
        refused: list[PatchResult] = []
        patches = [correction.patch for correction in found]
        with self._cache.lock:
            seen = {
                patch.id: self._cache.jobs[patch.id]
                for patch in patches
                if is_of_revision(patch, self._cache.jobs.get(patch.id))
            }
        for done in [*self.send_all(patches, refused, decided_on=seen.get), *refused]:
            correction = news[done.patch.id]
            with self._cache.lock:
                job = done.object or self._cache.jobs.get(done.patch.id)
            if job is not None:  # an Event can be written where the Job cannot
                self._events.add_event(
                    job, correction.code, correction.words, warning=correction.warns
                )

    def _write_events(self, job: Json, one: JobPatch) -> None:
        for code, text in one.events:
            self._events.add_event(job, code, text)

    def send_all(
        self,
        patches: Iterable[Patch],
        refused: list[PatchResult] | None = None,
        *,
        decided_on: Callable[[str], Json | None] | None = None,
    ) -> list[PatchResult]:
        """Outcomes that went well; most others lost a race, and the next cycle sees who won.

        Those of Jobs that the API server refuses are put into `refused`. `decided_on` gives each Job as
        it was decided on; without it that is what is shown.
        """
        done = []
        try:
            answers = self._api.patch_many(self._seal_all(patches)) if patches else ()
        except BaseException:  # cut off after some of them were sent
            self.unsure = True
            raise
        for first in answers:
            outcome = self._guard(
                first.patch.id, self._send_again, first, decided_on or self._shown
            )
            if outcome is not None and outcome.ok and outcome.object is not None:
                done.append(outcome)
            elif outcome is not None and _is_refused(outcome):
                if refused is not None:
                    refused.append(outcome)
            else:
                self._cache.put_back(first.patch.id)
        return done

    def _seal_all(self, patches: Iterable[Patch]) -> Iterator[Patch]:
        """The patches, those of verdict and status sealed; what cannot be sealed is not sent."""
        for patch in patches:
            sealed = self._guard(patch.id, self._seal_one, patch)
            if sealed is not None:
                yield sealed
            else:
                self._cache.put_back(patch.id)

    def _seal_one(self, patch: Patch) -> Patch:
        if self._seal is None or patch.kind != "jobs":
            return patch
        with self._cache.lock:
            return self._seal.seal_patch(patch, self._cache.jobs.get(patch.id))

    def _send_again(
        self, first: PatchResult, decided_on: Callable[[str], Json | None]
    ) -> PatchResult | None:
        """What became of a patch in the end; the cache knows it. None if it has to be seen again."""
        before = decided_on(first.patch.id)
        outcome = self._once_more(first, before) if first.status == CONFLICT else first
        self.sent["done" if outcome.ok else str(outcome.status)] += 1
        if _is_refused(outcome):
            now = CLOCK.now()
            if self._rights.is_settling(outcome, now):
                self.again_at = now + TRY_AGAIN_S
                self.undone[outcome.patch.id] = ""
                return None
            # Of the very object that was decided on: it would be refused in each cycle.
            why = self.undone[outcome.patch.id] = refusal_text(outcome)
            self._put_off(outcome.patch.id, why, now)
        if outcome.patch.kind == "jobs" and (outcome.ok or outcome.status in REFUSED):
            self._rights.note_outcome(outcome)
        if outcome.ok and outcome.object is not None:
            self._cache.put_object(outcome.patch.kind, outcome.object)
            if why := describe_put_back(outcome):
                self._leave_out(outcome.object, why)
        else:
            self.unsure |= outcome.may_have_landed
        return outcome

    def _leave_out(self, job: Json, why: str) -> None:
        """A policy of the cluster keeps this Job from being as it was decided: tell it, try later."""
        job_id = json_tree.object_id(job)
        self.undone[job_id] = why
        for answer in self._api.patch_many([self._seal_one(accept_width(job))]):
            if answer.ok and answer.object is not None:
                self._cache.put_object("jobs", answer.object)
        self._put_off(job_id, why, CLOCK.now())

    def _once_more(self, lost: PatchResult, before: Json | None) -> PatchResult:
        """Send a patch again if only the Job's status moved: what was decided on still holds."""
        latest = self._read_latest(lost.patch)
        if latest is None or not is_alike(latest, before) or is_finished(latest):
            return lost
        again = next(iter(self._api.patch_many([at_revision(lost.patch, latest)])))
        if again.status == CONFLICT:
            self._read_latest(lost.patch)
        return again

    def _read_latest(self, lost: Patch) -> Json | None:
        """What won, seen at once: it may be this very patch, sent twice as its answer was lost."""
        try:
            latest = self._api.get(lost.kind, lost.id)
        except ApiError as error:
            self.unsure |= error.status != NOT_FOUND
            return None
        self._cache.put_object(lost.kind, latest)
        return latest


def _is_refused(outcome: PatchResult) -> bool:
    """Refused for what the Job is, or by who is asked about its changes."""
    return outcome.patch.kind == "jobs" and outcome.status in REFUSED
