"""Waiting for the world instead of sleeping: a watched cache and a condition, or looks again."""

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar

from laxity import json_tree
from laxity_k8s.cluster_api import Change, ClusterApi, Json, Kind, Watch

PATIENCE_S = 60.0
T = TypeVar("T")


class Eyes:
    """Follows Jobs and Pods of a ClusterApi; `until` returns when what is asked for is so."""

    def __init__(self, api: ClusterApi) -> None:
        self._changed = threading.Condition()
        self._seen: dict[Kind, dict[str, Json]] = {"jobs": {}, "pods": {}}
        self.changes: list[tuple[Kind, Change]] = []
        self._watches = [self._follow(api, "jobs"), self._follow(api, "pods")]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        for watch in self._watches:
            watch.stop()

    def job(self, job_id: str) -> Json:
        with self._changed:
            return self._seen["jobs"].get(job_id, {})

    def pods(self, job_id: str) -> list[Json]:
        """Pods of a Job that are not over."""
        namespace, _, name = job_id.partition("/")
        with self._changed:
            return [
                pod
                for pod in self._seen["pods"].values()
                if pod["metadata"]["namespace"] == namespace
                and json_tree.labels_of(pod).get("batch.kubernetes.io/job-name") == name
                and json_tree.get_in(pod, "status", "phase") not in {"Succeeded", "Failed"}
            ]

    def until(self, what: Callable[[], T | bool | None], words: str) -> T:
        """The first answer that counts as true; AssertionError with `words` if none comes."""
        end_at = time.monotonic() + PATIENCE_S
        with self._changed:
            while True:
                found = what()
                if found:
                    return found  # type: ignore[return-value]
                left_s = end_at - time.monotonic()
                if left_s <= 0 or not self._changed.wait(left_s):
                    seen = {key: job.get("status") for key, job in self._seen["jobs"].items()}
                    raise AssertionError(f"not within {PATIENCE_S:.0f} s: {words}; Jobs: {seen}")

    def saw(self, job_id: str, what: Callable[[Json], object], words: str) -> None:
        """Wait until some state of the Job, however short, was so."""
        seen = 0

        def looked() -> bool:
            nonlocal seen
            new, seen = self.changes[seen:], len(self.changes)
            return any(
                kind == "jobs"
                and json_tree.object_id(change.object) == job_id
                and what(change.object)
                for kind, change in new
            )

        self.until(looked, words)

    def _follow(self, api: ClusterApi, kind: Kind) -> Watch:
        listing = api.list(kind)
        for thing in listing.items:
            self._seen[kind][json_tree.object_id(thing)] = thing
        return api.watch(
            kind, since=listing.resource_version, on_change=lambda change: self._note(kind, change)
        )

    def _note(self, kind: Kind, change: Change) -> None:
        with self._changed:
            key = json_tree.object_id(change.object)
            if change.type == "DELETED":
                self._seen[kind].pop(key, None)
            elif change.type != "BOOKMARK":
                self._seen[kind][key] = change.object
            self.changes.append((kind, change))
            self._changed.notify_all()


def until(
    holds: Callable[[], object], what: str, *, limit_s: float = PATIENCE_S, every_s: float = 0.05
) -> None:
    """For what no watch tells, as files and processes: look again until it holds."""
    end_at = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < end_at, f"waited {limit_s:.0f} s for {what}"
        threading.Event().wait(every_s)
