"""The views of all jobs, kept between cycles and over restarts.

Most jobs do not change in most cycles. A view is made again only when its Job, its row or its last
reason has changed, when time alone has changed it (a deadline passed), or when figures that move
with time are due to be refreshed.

A view is kept only if it can be serialised, so that one Job can spoil neither the list nor the
store. A Job whose view cannot be made shows the error instead, and is tried again in every cycle.
"""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final

import orjson

from laxity import json_tree
from laxity_profiler.estimate import Workload
from laxity_profiler.history.history import HistoryError
from laxity_scheduler.job_faults import JobFaults, error_text
from laxity_scheduler.live import Manifest, Report
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.job import Job
from laxity_scheduler.service.views.borrowing import count_borrowed
from laxity_scheduler.service.views.live_view import (
    Absence,
    ExpectedEnd,
    LastReason,
    end_fields,
    looks_same,
    shows_wait,
    view_of,
    view_of_missing,
    wait_fields,
    without_end_of_return,
)
from laxity_scheduler.service.views.promise_outcome import is_over, is_promise_broken, laxity_s
from laxity_scheduler.service.views.verdict_view import shows_verdict_of
from laxity_scheduler.service.views.view_fields import Json, job_id_of
from laxity_scheduler.service.views.view_record import (
    INTERNAL_FIELDS,
    p90_when_given,
    row_of_view,
    with_first_prediction,
)
from laxity_scheduler.service_clock import CLOCK
from laxity_scheduler.simulated.told_finish import ToldFinish
from laxity_scheduler.store.store import Store
from laxity_scheduler.store.tables import JobRow, SavedView, storable_text

WAIT_SHARE: Final = 0.01


@dataclass(frozen=True, slots=True)
class ViewChange:
    """A job's view changed. `before` is None for a job seen for the first time."""

    before: Json | None
    after: Json


@dataclass(frozen=True, slots=True)
class CycleInput:
    """What one cycle saw: all Jobs, the snapshot, the expected ends and last reasons of its jobs."""

    manifests: Sequence[Manifest]
    state: ClusterState
    expected_ends: Mapping[str, ExpectedEnd]
    last_reasons: Mapping[str, LastReason]
    note_of: Callable[[Workload], str] = lambda _: ""  # what people should know of a prediction
    began_s: float = float("inf")  # monotonic; a job that was added later is not missing
    told: Mapping[str, ToldFinish] | None = None  # worked out; None: verdicts' finishes are told

    def with_first(self, view: Json) -> Json:
        """The view with what its job was told first."""
        told = None if self.told is None else self.told.get(view["id"])
        awaited = self.told is not None and told is None
        return with_first_prediction(view, self.state.now, told, awaited=awaited)


class ViewCache:
    """Views by uid; the latest job of a name is the one that its id means. Safe for threads."""

    def __init__(
        self,
        rows: Iterable[JobRow | SavedView] = (),
        faults: JobFaults | None = None,
        absence: Absence | None = None,
    ) -> None:
        self._lock = Lock()
        self._faults = faults or JobFaults()
        self._absence = absence
        self._views: dict[str, Json] = {}
        self._latest: dict[str, str] = {}
        self._inputs: dict[str, tuple[object, Job | None, LastReason | None, int, bool]] = {}
        self._waits: dict[str, LastReason] = {}  # the last that was looked at
        self._ends: dict[str, ExpectedEnd] = {}  # the last that was looked at, of running jobs
        self._unsaved: dict[str, SavedView] = {}
        self._news: list[ViewChange] = []  # of a look that did not come to its end, too
        self._noted: dict[str, float] = {}
        self._stale: set[str] = set()
        for row in rows:
            with self._faults.isolate("stored view", row.uid):
                self._store_view(orjson.loads(row.view))

    @classmethod
    def load(cls, store: Store, faults: JobFaults) -> "ViewCache":
        """The views that the store has, of a service that begins now."""
        last_at = store.last_cycle_at()
        absence = None if last_at is None else Absence(last_at, CLOCK.now())
        return cls(store.load_jobs(), faults, absence)

    def update_views(
        self, cycle_input: CycleInput, report_of: Callable[[str], Report]
    ) -> list[ViewChange]:
        """Update all views; returns what has changed for a reader since the last call.

        HistoryError if reports cannot be read: the rest is updated by the next call.
        """
        present = set()
        with self._lock:
            for uid in self._stale:
                self._inputs.pop(uid, None)
            self._stale.clear()
        for manifest in cycle_input.manifests:
            uid = json_tree.uid_of(manifest)
            present.add(uid)
            self._update_one(uid, manifest, cycle_input, report_of)
        with self._lock:
            for uid in self._inputs.keys() - present:
                self._inputs.pop(uid)
            missing = [
                view
                for uid, view in self._views.items()
                if uid not in present
                and not is_over(view)
                and self._noted.get(uid, 0.0) < cycle_input.began_s
            ]
            self._noted.clear()
        for view in missing:
            self._keep_view(view_of_missing(view, cycle_input.state.now))
        news, self._news = self._news, []
        return news

    def _update_one(
        self,
        uid: str,
        manifest: Manifest,
        cycle_input: CycleInput,
        report_of: Callable[[str], Report],
    ) -> None:
        try:
            if self._is_unchanged(uid, manifest, cycle_input):
                self._update_expected_end(uid, cycle_input)
                self._update_wait(uid, cycle_input)
            else:
                self._keep_view(self._make_view(uid, manifest, cycle_input, report_of(uid)))
        except HistoryError:
            self._inputs.pop(uid, None)
            raise
        except Exception as error:  # noqa: BLE001 - noted with its traceback
            self._faults.record_fault("view", uid, error)
            self._inputs.pop(uid, None)
            self._ends.pop(uid, None)
            view = self._fallback_view(uid, manifest, cycle_input, error)
            if view is not None:
                self._keep_view(view)

    def _fallback_view(
        self, uid: str, manifest: Manifest, cycle_input: CycleInput, error: Exception
    ) -> Json | None:
        """A view that can be serialised: without its workers' reports, else the last one, else bare."""
        metadata = json_tree.mapping_at(manifest, "metadata")
        named = {
            key: storable_text(str(metadata.get(key, ""))) for key in ("name", "namespace", "uid")
        }
        bare = {"metadata": named}
        for readable_view in (manifest, bare):
            before = self._views.get(uid) if readable_view is bare else None
            with self._faults.isolate("view without its reports", uid):
                view = {
                    **(before or self._make_view(uid, readable_view, cycle_input, Report())),
                    "result": None,
                }
                view["error"] = storable_text(
                    f"laxity cannot show all of this Job: {error_text(error)}"
                )
                orjson.dumps(view)
                return view
        return None

    def add_first(self, manifest: Manifest, report: Report, now: float) -> Json:
        """Add a job that no cycle has seen yet; its id now means this job."""
        view = view_of(manifest, None, report=report, before=None, now=now)
        view |= dict.fromkeys(INTERNAL_FIELDS) | {"revision": 0}
        with self._lock:
            if view["uid"] in self._views:
                return self._views[view["uid"]]
            self._store_view(view)
            self._latest[view["id"]] = view["uid"]
            self._noted[view["uid"]] = time.monotonic()
        return view

    def view(self, job_id: str) -> Json | None:
        with self._lock:
            return self._views.get(self._latest.get(job_id, ""))

    def view_by_uid(self, uid: str) -> Json | None:
        with self._lock:
            return self._views.get(uid)

    def cancelled_attempts(self, namespace: str, key: str) -> list[Json]:
        """The declarations of Jobs with this idempotency key that were cancelled."""
        return [
            view["cancelled"]
            for view in self.views_in_any_order()
            if view.get("cancelled")
            and view["idempotency_key"] == key
            and view["id"].partition("/")[0] == namespace
        ]

    def shows_verdict(self, manifest: Mapping[str, Any]) -> bool:
        """Whether the last view of this Job shows the verdict that is written on it."""
        view = self.view_by_uid(json_tree.uid_of(manifest))
        return view is not None and shows_verdict_of(view, manifest)

    def latest_uids(self) -> dict[str, str]:
        """The uid of the latest job of each name."""
        with self._lock:
            return dict(self._latest)

    def all(self) -> list[Json]:
        """Every view, in order of submission; of a job that was refused and asked again, the last."""
        rows = (view for view in self.views_in_any_order() if not self._gave_way(view))
        return sorted(rows, key=lambda view: (view["submitted_at"] or 0.0, view["id"]))

    def views_in_any_order(self) -> list[Json]:
        """Every view."""
        with self._lock:
            return list(self._views.values())

    def mark_stale(self, uid: str) -> None:
        """Make this job's view again in the next cycle: something was reported about it."""
        with self._lock:
            self._stale.add(uid)

    def remember_fields(self, uid: str, **lasting: Any) -> None:
        """Remember fields of a job that its readers do not see."""
        with self._lock:
            view = self._views.get(uid)
            if view is not None:
                self._views[uid] = view | lasting
                self._unsaved[uid] = row_of_view(self._views[uid])

    def rows_to_save(self) -> list[SavedView]:
        """Rows for the store; they stay in this list until `mark_saved` is called with them."""
        with self._lock:
            return list(self._unsaved.values())

    def mark_saved(self, rows: Iterable[SavedView]) -> None:
        """These are in the store; a row that is newer than the one that was written is not."""
        with self._lock:
            for row in rows:
                if self._unsaved.get(row.uid) is row:
                    del self._unsaved[row.uid]

    def drop_old(self, *, ended_before: float) -> None:
        """Drop jobs that ended before this instant and are no longer in the cluster."""
        with self._lock:
            old = [
                uid
                for uid, view in self._views.items()
                if uid not in self._inputs and (view["finished_at"] or ended_before) < ended_before
            ]
            for uid in old:
                self._ends.pop(uid, None)
                self._waits.pop(uid, None)
                view = self._views.pop(uid)
                if self._latest.get(view["id"]) == uid:
                    del self._latest[view["id"]]

    def _is_unchanged(self, uid: str, manifest: Manifest, cycle_input: CycleInput) -> bool:
        """Whether nothing has changed that the view is made of, except figures that move with time."""
        name = job_id_of(manifest)
        row = cycle_input.state.by_id.get(name)
        borrowed = count_borrowed(row, cycle_input.state.node_pools.lent)
        reason = cycle_input.last_reasons.get(name)
        told = row is not None and name in (cycle_input.told or ())
        key = (manifest["metadata"].get("resourceVersion"), row, reason, borrowed, told)
        before = self._inputs.get(uid)
        self._inputs[uid] = key
        view = self._views.get(uid)
        if view is None or before is None:
            return False
        if not view["broken"] and is_promise_broken(view, cycle_input.state.now):
            return False
        same = before[0] == key[0] and before[1] is row and before[3:] == key[3:]
        return same and _says_the_same(before[2], reason)

    def _update_expected_end(self, uid: str, cycle_input: CycleInput) -> None:
        """Update the expected end, if a reader would see the difference or is to be warned."""
        before = self._views[uid]
        finish = cycle_input.expected_ends.get(before["id"])
        if finish is None or finish is self._ends.get(uid):
            return
        self._ends[uid] = finish
        view = cycle_input.with_first(before | end_fields(finish))
        if not looks_same(before, view):
            self._keep_view(view | {"laxity_s": laxity_s(view, cycle_input.state.now)})

    def _update_wait(self, uid: str, cycle_input: CycleInput) -> None:
        """Update what a job waits for, and until when: in a crowd both move in every cycle.

        A reader is told of another start only if it moved by a hundredth of the wait.
        """
        before, now = self._views[uid], cycle_input.state.now
        reason = cycle_input.last_reasons.get(before["id"])
        if reason is None or reason is self._waits.get(uid):
            return
        self._waits[uid] = reason
        row = cycle_input.state.by_id.get(before["id"])
        if not shows_wait(before, row, now):
            return
        view = before | wait_fields(reason)
        old_at, new_at = before["expected_start_at"], view["expected_start_at"]
        if old_at is None or new_at is None:
            is_news = old_at is not new_at
        else:
            is_news = abs(new_at - old_at) > WAIT_SHARE * max(0.0, new_at - now)
        if is_news:
            self._keep_view(view)
        else:
            with self._lock:
                self._store_view(view)

    def _make_view(
        self, uid: str, manifest: Manifest, cycle_input: CycleInput, report: Report
    ) -> Json:
        name, before = job_id_of(manifest), without_end_of_return(self._views.get(uid), manifest)
        row = cycle_input.state.by_id.get(name)
        view = view_of(
            manifest,
            row,
            report=report,
            before=before,
            now=cycle_input.state.now,
            finish=cycle_input.expected_ends.get(name),
            last_reason=cycle_input.last_reasons.get(name),
            borrowed_gpus=count_borrowed(row, cycle_input.state.node_pools.lent),
            absence=self._absence,
        )
        view |= {key: (before or {}).get(key) for key in INTERNAL_FIELDS}
        if row is not None:
            view["prediction_note"] = cycle_input.note_of(row.workload)
        view["broken"] = bool(view["broken"] or is_promise_broken(view, cycle_input.state.now))
        view["given_p90_at"] = p90_when_given(view, before)
        return cycle_input.with_first(view)

    def _keep_view(self, view: Json) -> None:
        """Keep a view; TypeError if it cannot be serialised, and the last one stays."""
        before = self._views.get(view["uid"])
        if before is not None and not before["revision"]:
            before = None  # only who asked for it has seen it
        changed = before is None or not looks_same(before, view)
        view["revision"] = (before["revision"] if before else 0) + changed
        row = row_of_view(view) if changed else None
        with self._lock:
            self._store_view(view)
            if row is not None:
                self._unsaved[row.uid] = row
                self._news.append(ViewChange(before, view))

    def _store_view(self, view: Json) -> None:
        uid, name = view["uid"], view["id"]
        self._views[uid] = view
        latest = self._views.get(self._latest.get(name, ""))
        if latest is None or _submission_key(view) >= _submission_key(latest):
            self._latest[name] = uid

    def _gave_way(self, view: Json) -> bool:
        """Whether this refused Job ran nothing, is gone, and another one asks by its name."""
        is_latest = self._latest.get(view["id"]) == view["uid"]
        return view["state"] == "refused" and is_over(view) and not is_latest


def _says_the_same(one: LastReason | None, other: LastReason | None) -> bool:
    """Whether two reasons differ at most in whom a job waits for, and until when."""
    if one is None or other is None:
        return one is other
    return (one.reason_code, one.reason) == (other.reason_code, other.reason)


def _submission_key(view: Json) -> tuple[float, float]:
    """Orders Jobs of one name. A job that asks again has the time of its first submission."""
    ended_at = view["finished_at"]
    return view["submitted_at"] or 0.0, math.inf if ended_at is None else ended_at
