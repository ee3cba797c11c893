"""Events of Jobs: what was decided and why, where `kubectl describe job` shows it.

Written from a thread of its own, one after the other, after the patches that they tell of: a slow
API server never holds up a decision, and a thousand Events do not hold up a thousand starts. What
cannot be written is dropped: an Event is news, the annotations are the record.

As in client-go, an Event that repeats another one is not written again: the first one's count grows.
And of more than ten of one reason about one object within ten minutes, whose words differ, the
others become one, with the last words.
"""

import os
import queue
import socket
import threading
import time
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import Final

from cachetools import LRUCache, TTLCache

from laxity import json_tree
from laxity.instants import format_rfc3339
from laxity_k8s.cluster_api import ApiError, ClusterApi, Json, Patch
from laxity_k8s.error_isolation import SHARED, Guard
from laxity_k8s.lease import own_namespace
from laxity_scheduler.service_clock import CLOCK

MOST_WAITING = 20_000  # two of each of 10,000 Jobs
MOST_REMEMBERED: Final = 20_000
MOST_WORDS = 1_000  # an API server takes 1,024 characters
MOST_SIMILAR: Final = 10
SIMILAR_S: Final = 600.0
COMBINED: Final = "(combined from similar events): "
CLOSE_S = 10.0
# What somebody may have to act on.
WARNINGS: Final = frozenset(
    {
        "backoff_limit_too_low",
        "capacity_budget_spent",
        "active_deadline_too_short",
        "capacity_promised_to_others",
        "counted_as_one_pool",
        "deadline_before_fastest_finish",
        "deadline_before_last_link",
        "deadline_in_the_past",
        "does_not_fit_any_node",
        "does_not_fit_cluster",
        "does_not_fit_eligible_nodes",
        "forecast_late",
        "gpus_taken_by_others",
        "group_not_running",
        "group_refused",
        "holds_no_state",
        "hopeless",
        "invalid",
        "link_cut",
        "link_lost",
        "missed_and_stopped",
        "namespace_limits",
        "no_eligible_node",
        "no_try_in_time",
        "node_lost",
        "pinned",
        "quota_promised_to_others",
        "requests_do_not_fit",
        "capacity_freed_too_late",
        "pods_cannot_end",
        "pods_do_not_fit",
        "pods_may_not_go_there",
        "preempt_stateless",
        "promise_broken",
        "promise_in_danger",
        "unknown_model_needs_profiling",
        "wall_limit_below_epoch",
        "workers_fail",
    }
)


class EventWriter:
    """Takes news about Jobs and writes them as core/v1 Events, in order."""

    def __init__(self, api: ClusterApi) -> None:
        self._api = api
        self._end_at = float("inf")
        self._queue: queue.Queue[Json | None] = queue.Queue(MOST_WAITING)
        # What was written, by whom it is about, reason and words: the first Event's id, how often.
        self._counts: LRUCache[tuple[str, str, str], tuple[str, int]] = LRUCache(MOST_REMEMBERED)
        self._similar: TTLCache[tuple[str, str], set[str]] = TTLCache(MOST_REMEMBERED, SIMILAR_S)
        self._thread = threading.Thread(
            target=self._write_forever, name="laxity-events", daemon=True
        )
        self._thread.start()

    def add_event(self, job: Json, code: str, words: str, *, warning: bool = False) -> None:
        made = build_event(job, code, words, warning=warning or code in WARNINGS)
        with suppress(queue.Full):
            self._queue.put_nowait(made)

    def close(self) -> None:
        """Write what is waiting, as far as it can be written soon, then end."""
        self._end_at = time.monotonic() + CLOSE_S
        with suppress(queue.Full):
            self._queue.put_nowait(None)
        self._thread.join(timeout=2 * CLOSE_S)

    def _write_forever(self) -> None:
        guard = Guard("writing")
        while (news := self._queue.get()) is not None and time.monotonic() < self._end_at:
            # cancelled: the connection was closed
            with suppress(*SHARED, CancelledError):
                guard(json_tree.object_id(news), self._write_event, news)

    def _write_event(self, news: Json) -> None:
        """Count a repetition on the Event that it repeats, if that is still there."""
        about = (news["involvedObject"].get("uid") or "", news["reason"], news["message"])
        if self._is_one_of_many(*about):
            news = {**news, "message": f"{COMBINED}{news['message']}"[:MOST_WORDS]}
            about = (*about[:2], COMBINED)
        first_id, count = self._counts.pop(about, ("", 0))
        if first_id:
            body = {name: news[name] for name in ("message", "lastTimestamp")}
            body["count"] = count + 1
            try:
                self._api.patch(Patch("events", first_id, body))
            except ApiError:  # it was deleted, or has expired: this one is the first again
                first_id, count = "", 0
        if not first_id:
            first_id = json_tree.object_id(self._api.create("events", news))
        self._counts[about] = (first_id, count + 1)

    def _is_one_of_many(self, uid: str, reason: str, message: str) -> bool:
        """Whether more than ten different ones of this kind were to be written lately."""
        messages = self._similar.setdefault((uid, reason), set())
        if message in messages or len(messages) < MOST_SIMILAR:
            messages.add(message)
            return False
        return True


def own_pod() -> Json:
    """The pod of this service, for Events that are about no Job."""
    name = os.environ.get("POD_NAME") or socket.gethostname()
    metadata = {"name": name, "namespace": own_namespace()}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}


def camel_case(code: str) -> str:
    """A reason's code as Kubernetes writes reasons."""
    return "".join(part.capitalize() for part in code.split("_"))


def build_event(job: Json, code: str, words: str, *, warning: bool = False) -> Json:
    """An Event about a Job, or what else the object says it is; `code` is its reason in CamelCase.

    One about a Node, which has no namespace, stands in `default`: Kubernetes allows no other.
    """
    meta, now = job["metadata"], CLOCK.now()
    namespace = meta.get("namespace")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{meta['name']}.{time.time_ns():x}",
            "namespace": namespace or "default",
        },
        "involvedObject": {
            "apiVersion": job.get("apiVersion") or "batch/v1",
            "kind": job.get("kind") or "Job",
            "name": meta["name"],
            "namespace": namespace,
            "uid": json_tree.get_in(job, "metadata", "uid"),
            "resourceVersion": json_tree.get_in(job, "metadata", "resourceVersion"),
        },
        "reason": camel_case(code),
        "message": words,
        "type": "Warning" if warning else "Normal",
        "source": {"component": "laxity"},
        "firstTimestamp": format_rfc3339(int(now)),
        "lastTimestamp": format_rfc3339(int(now)),
        "count": 1,
    }
