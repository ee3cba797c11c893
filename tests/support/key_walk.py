"""One idempotency key on a Cluster API, and what becomes of the attempts under it."""

import json
from collections import Counter
from dataclasses import replace
from typing import Final

from laxity import json_tree, names
from laxity.job.qos import QoS
from laxity.job.spec import TrainingSpec
from laxity_k8s.act.adoption import failure_patch, success_patch
from laxity_k8s.act.job_submission import submit_job
from laxity_k8s.cluster_api import ClusterApi, Json, Patch
from laxity_k8s.objects.conditions import is_finished
from laxity_k8s.objects.status_annotation import digest_terms, read_status, verdict_text
from laxity_profiler.estimate import Progress
from laxity_scheduler.live import Report
from laxity_scheduler.model.job import Refusal
from laxity_scheduler.model.reasons import reason
from laxity_scheduler.service.views.manifest_view import declaration_of
from tests.support.manifests import CREATED_AT
from tests.support.waiting import Eyes

KEY: Final = "nightly"
REFUSAL: Final = verdict_text(Refusal(reason("deadline_in_the_past", due_at=CREATED_AT)))
AMENDED: Final = "2026-11-21T11:00:00Z"
TERMS: Final = (names.DEADLINE, names.CLASS, names.WIDTHS)


class KeyWalk:
    """Submissions under one key, a second apart, and the ends that their Jobs come to."""

    def __init__(self, api: ClusterApi, eyes: Eyes, namespace: str = "default") -> None:
        self.api, self.now, self.namespace = api, CREATED_AT, namespace
        self._eyes = eyes
        self._epochs: Counter[str] = Counter()  # that the workers of a Job reported, by its uid
        self.cancelled: list[Json] = []  # that the service knows of

    def submit(
        self, *, deadline: str = "1h", epochs: int = 8, fresh: bool = False, name: str = "train"
    ) -> Json:
        self.now += 1.0
        spec = TrainingSpec(
            name=name,
            namespace=self.namespace,
            qos=QoS.of(deadline=deadline),
            entry="module:function",
            image="registry.example/train:1",
            epochs=epochs,
            idempotency_key=KEY,
            env={names.ENV_CHECKPOINTS: "/ck/$(LAXITY_JOB_UID)"},
            fresh=fresh,
        )
        return submit_job(
            self.api,
            self.api.list("jobs").items,
            spec.to_manifest(),
            reports=self._report_of,
            now=self.now,
            cancelled=self.cancelled,
        )

    def jobs(self) -> list[Json]:
        """The Jobs that are there, the first attempt first."""
        there = self.api.list("jobs").items
        own = [job for job in there if job["metadata"]["namespace"] == self.namespace]
        return sorted(own, key=lambda job: (len(job["metadata"]["name"]), job["metadata"]["name"]))

    def start(self, job: Json) -> None:
        """Its workers have run; none does now."""
        started = replace(read_status(self._latest(job)), resumed_at=self.now)
        self._annotate(job, {names.STATUS: started.to_text()})

    def train(self, job: Json, epochs: int) -> None:
        """Its workers report so many epochs, those of earlier attempts too."""
        self._epochs[json_tree.uid_of(job)] = epochs

    def refuse(self, job: Json) -> None:
        there = self._latest(job)
        judged = replace(read_status(there), terms=digest_terms(there)).to_text()
        self._annotate(job, {names.VERDICT: REFUSAL, names.STATUS: judged})

    def amend(self, job: Json, deadline: str = AMENDED) -> None:
        """What `laxity amend` and `laxity accept` write."""
        notes = json_tree.annotations_of(self._latest(job))
        first = notes.get(names.FIRST_TERMS) or json.dumps({key: notes.get(key) for key in TERMS})
        self._annotate(job, {names.DEADLINE: deadline, names.FIRST_TERMS: first})

    def fail(self, job: Json) -> None:
        self._end(failure_patch(self._latest(job), "WorkersKeepFailing", "boom", now=self.now))

    def finish(self, job: Json) -> None:
        self._end(success_patch(self._latest(job), "all epochs are done", now=self.now))

    def cancel(self, job: Json) -> None:
        self.cancelled.append(declaration_of(self._latest(job)))
        self.delete(job)

    def delete(self, job: Json) -> None:
        """As kubectl does."""
        self.api.delete("jobs", json_tree.object_id(job), uid=json_tree.uid_of(job))

    def patch(self, job_id: str, body: Json) -> None:
        self.api.patch(Patch("jobs", job_id, body))

    def _report_of(self, uid: str) -> Report:
        return Report(Progress(epochs_done=self._epochs[uid]))

    def _latest(self, job: Json) -> Json:
        return self.api.get("jobs", json_tree.object_id(job))

    def _annotate(self, job: Json, annotations: dict[str, str]) -> None:
        self.patch(json_tree.object_id(job), {"metadata": {"annotations": annotations}})

    def _end(self, patch: Patch) -> None:
        notes, status = patch.body["metadata"], patch.body["status"]
        del notes["resourceVersion"]  # the job controller writes, too
        self.api.patch(Patch("jobs", patch.id, {"status": status}, subresource="status"))
        self._eyes.until(lambda: is_finished(self._eyes.job(patch.id)), f"{patch.id} has ended")
