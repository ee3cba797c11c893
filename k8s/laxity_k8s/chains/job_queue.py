"""A chain's queue where links are Jobs in a namespace, beside other people's.

Nothing but the API server is asked: Jobs and pods of all namespaces where this user may list them,
else of the chain's own. Whoever decides what starts (the scheduler, a quota, Kueue) is not asked.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from laxity import json_tree, names
from laxity.instants import instant_at
from laxity_k8s.chains.job_links import build_link, name_link, read_limit_s, read_manifest
from laxity_k8s.chains.job_rows import failure_words, job_row, read_rows
from laxity_k8s.chains.job_waits import controller_words, pod_words, suspension_words
from laxity_k8s.cluster_api import CONFLICT, NOT_FOUND, ApiError, Json, Kind
from laxity_k8s.http.api_cluster import KubernetesApi, current_namespace
from laxity_k8s.http.paths import collection_path, whole_items
from laxity_k8s.objects.conditions import read_condition
from laxity_k8s.objects.pods import count_gpus
from laxity_scheduler.following.chain_folder import hold_chain, open_chain, read_script
from laxity_scheduler.following.chain_state import ChainState, LinkRecord
from laxity_scheduler.following.link_outcome import outcome_of_row
from laxity_scheduler.following.link_queue import (
    LinkOutcome,
    QueueAwayError,
    QueueFullError,
    QueueRefusalError,
    QueueRow,
)

FORBIDDEN: Final = 403
TOO_MANY: Final = 429
REVIEWS: Final = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
REVIEW: Final = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}


class JobQueue:
    """A LinkQueue; `limit_s` is how long each link may run."""

    def __init__(
        self, api: KubernetesApi, state: ChainState, manifest: Json, limit_s: float
    ) -> None:
        self._api, self._state, self._manifest, self._limit_s = api, state, manifest, limit_s
        self._namespace = str(manifest["metadata"]["namespace"])
        self._gpus_only = bool(count_gpus(json_tree.mapping_at(manifest, "spec", "template")))
        self._seen: list[QueueRow] = []
        self._everywhere = True

    def clock_at(self) -> float:
        """The API server's clock, by the instant of an answer that everybody may have."""
        review = self._call("POST", REVIEWS, body=REVIEW)
        now_at = instant_at(json_tree.get_in(review, "metadata", "creationTimestamp"))
        if now_at is None:
            raise QueueRefusalError("the API server does not say what time it is")
        return now_at

    def rows(self) -> list[QueueRow]:
        self._seen = read_rows(self._list("jobs"), self._list("pods"), gpus_only=self._gpus_only)
        return [row for row in self._seen if not row.has_ended]

    def past_rows(self) -> tuple[list[QueueRow], str]:
        """Those of the last look: what has ended stays until somebody deletes it."""
        return [row for row in self._seen if row.has_started], "Jobs and pods"

    def jobs_of(self, link: LinkRecord) -> list[QueueRow]:
        name = link.job_id or name_link(self._manifest, self._state, link)
        job = self._get(name)
        if job is None:
            return []
        selector = f"batch.kubernetes.io/job-name={name}"
        pods = self._list_in(self._namespace, "pods", labels=selector)
        row = job_row(job, list(pods))
        return [row if row.has_started else replace(row, waits_for=self._why_waits(job, pods))]

    def find_started_job(self, link: LinkRecord) -> str:
        return ""  # its note is on a volume that is mounted elsewhere

    def trains(self, link: LinkRecord) -> bool:
        return False  # a Job that was deleted takes its pods with it

    def outcome(self, link: LinkRecord, row: QueueRow | None) -> LinkOutcome:
        if row is not None:
            outcome = outcome_of_row(row, row.exit_code)
            if outcome.meaning == "failed" and (job := self._get(row.job_id)):
                return LinkOutcome("failed", f"{outcome.words} ({failure_words(job)})")
            return outcome
        if link.started_at is None:
            return LinkOutcome("cancelled", "was deleted before it started")
        return LinkOutcome("failed", "was deleted while it ran")

    def is_complete(self) -> bool:
        """A link has ended with exit code 0."""
        chain = f"{names.CHAIN}={self._state.chain_id}"
        links = self._list_in(self._namespace, "jobs", labels=chain)
        return any(read_condition(job, "Complete") == "True" for job in links)

    def submit(self, link: LinkRecord) -> str:
        job = build_link(self._manifest, self._state, link, self._limit_s)
        name = str(job["metadata"]["name"])
        with AllowedStatus(CONFLICT):
            self._call("POST", collection_path("jobs", self._namespace), body=job)
            return name
        if not self._is_ours(name):
            raise QueueRefusalError(f"there is another Job {name} in {self._namespace}")
        return name

    def estimate_start(self) -> float | None:
        return None  # nobody plans a start here

    def cancel(self, job_ids: Iterable[str]) -> None:
        for name in job_ids:
            with AllowedStatus(NOT_FOUND):
                options = {"propagationPolicy": "Background"}
                self._call("DELETE", self._path_of(name), body=options)

    def _why_waits(self, job: Json, pods: tuple[Json, ...]) -> str:
        """Empty where nobody says so, or this user may not see what is said."""
        if words := suspension_words(job) or pod_words(pods):
            return words
        fields = f"involvedObject.uid={job['metadata'].get('uid')}"
        with AllowedStatus(FORBIDDEN):
            return controller_words(self._list_in(self._namespace, "events", fields=fields))
        return ""

    def _is_ours(self, name: str) -> bool:
        labels = json_tree.labels_of(self._get(name) or {})
        return labels.get(names.CHAIN) == self._state.chain_id

    def _get(self, name: str) -> Json | None:
        with AllowedStatus(NOT_FOUND):
            return self._call("GET", self._path_of(name))
        return None

    def _path_of(self, name: str) -> str:
        return f"{collection_path('jobs', self._namespace)}/{name}"

    def _list(self, kind: Kind) -> tuple[Json, ...]:
        if self._everywhere:
            with AllowedStatus(FORBIDDEN):
                return self._list_in("", kind)
            self._everywhere = False
        return self._list_in(self._namespace, kind)

    def _list_in(
        self, namespace: str, kind: Kind, *, labels: str = "", fields: str = ""
    ) -> tuple[Json, ...]:
        selectors = {"labelSelector": labels, "fieldSelector": fields}
        query = {name: selector for name, selector in selectors.items() if selector}
        answer = self._call("GET", collection_path(kind, namespace), query=query)
        return whole_items(kind, answer)

    def _call(self, method: str, path: str, **options: Any) -> Json:
        """QueueRefusalError in the API server's words, QueueAwayError if it does not answer."""
        try:
            return self._api.run_call(lambda session: session.call_json(method, path, **options))
        except ApiError as error:
            is_away = not error.status or error.status == TOO_MANY or error.status >= 500
            refusal = QueueFullError if "exceeded quota" in str(error) else QueueRefusalError
            raise (QueueAwayError if is_away else refusal)(str(error)) from error


class AllowedStatus:
    """Inside, what is refused with this HTTP status is no error."""

    def __init__(self, status: int) -> None:
        self._status = status

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        cause = error.__cause__ if isinstance(error, QueueRefusalError) else None
        return isinstance(cause, ApiError) and cause.status == self._status


@contextmanager
def open_job_queue(
    script: Path, folder: Path, limit_s: float
) -> Iterator[tuple[ChainState, JobQueue]]:
    """The chain of a manifest, and its queue. ValueError if it cannot be run, or no cluster is known."""
    text, manifest = read_script(script, read_manifest)
    limit_s = read_limit_s(manifest, limit_s)
    try:
        api = KubernetesApi()
    except ApiError as error:
        raise ValueError(str(error)) from error
    try:
        with hold_chain(folder):
            state = open_chain(text, folder)
            manifest["metadata"]["namespace"] = state.namespace = find_namespace(state, manifest)
            yield state, JobQueue(api, state, manifest, limit_s)
    finally:
        api.close()


def find_namespace(state: ChainState, manifest: Json) -> str:
    """The namespace of the chain's Jobs; once it is begun, whichever context is the current one."""
    if named := state.namespace or json_tree.get_in(manifest, "metadata", "namespace"):
        return str(named)
    return "default" if state.links else current_namespace()  # begun by an earlier laxity
