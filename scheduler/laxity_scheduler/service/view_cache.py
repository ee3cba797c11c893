"""All jobs as people see them now, kept between cycles and over restarts.

Most jobs do not change in most cycles, so a view is made anew only when its Job, its row or what it
waits for is another one, when time alone has changed it (a deadline passed), or when figures that
flow are due to be refreshed.

A view is kept only if it can be written, so that one Job can spoil neither the list nor the store: a
Job whose view cannot be made or written shows the error instead, and is tried again at every look.
"""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

import orjson

from laxity_profiler.history.history import HistoryError
from laxity_scheduler.live import Manifest, Report
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.job import Job
from laxity_scheduler.service import views
from laxity_scheduler.service.job_faults import Faults, words_of
from laxity_scheduler.service.views import Finish, Json, Said
from laxity_scheduler.store.tables import JobRow, storable_text

LASTING = ("first_p50_at", "first_p90_at", "first_run_s", "told", "danger", "released")


@dataclass(frozen=True, slots=True)
class News:
    """A job's view changed. `before` is None for a job seen for the first time."""

    before: Json | None
    after: Json


@dataclass(frozen=True, slots=True)
class Look:
    """What one cycle saw: all Jobs, the snapshot, and what is expected and said of its jobs."""

    manifests: Sequence[Manifest]
    state: ClusterState
    finishes: Mapping[str, Finish]
    said: Mapping[str, Said]
    began: float = float("inf")  # monotonic; a job that was noted later is not missing


class Board:
    """Views by uid; the latest job of a name is the one that its id means. Safe for threads."""

    def __init__(self, rows: Iterable[JobRow] = (), faults: Faults | None = None) -> None:
        self._lock = Lock()
        self._faults = faults or Faults()
        self._views: dict[str, Json] = {}
        self._latest: dict[str, str] = {}
        self._seen: dict[str, tuple[object, Job | None, Said | None]] = {}
        self._ends: dict[str, Finish] = {}  # the last that was looked at, of running jobs
        self._unsaved: dict[str, JobRow] = {}
        self._news: list[News] = []  # of a look that did not come to its end, too
        self._noted: dict[str, float] = {}
        self._stale: set[str] = set()
        for row in rows:
            try:
                self._put(orjson.loads(row.view))
            except (KeyError, TypeError, ValueError) as error:
                self._faults.note("stored view", row.uid, error)

    def update(self, look: Look, report_of: Callable[[str], Report]) -> list[News]:
        """Take in what a cycle saw; what has changed for a reader since this last returned.

        HistoryError if reports cannot be read: what is left is taken in by the next look.
        """
        present = set()
        with self._lock:
            for uid in self._stale:
                self._seen.pop(uid, None)
            self._stale.clear()
        for manifest in look.manifests:
            uid = str((manifest.get("metadata") or {}).get("uid", ""))
            present.add(uid)
            self._look_at(uid, manifest, look, report_of)
        with self._lock:
            for uid in self._seen.keys() - present:
                self._seen.pop(uid)
            missing = [
                view
                for uid, view in self._views.items()
                if uid not in present
                and not views.is_over(view)
                and self._noted.get(uid, 0.0) < look.began
            ]
            self._noted.clear()
        for view in missing:
            self._note(views.gone(view, look.state.now))
        news, self._news = self._news, []
        return news

    def _look_at(
        self,
        uid: str,
        manifest: Manifest,
        look: Look,
        report_of: Callable[[str], Report],
    ) -> None:
        try:
            if self._fresh(uid, manifest, look):
                self._flow(uid, look)
            else:
                self._note(self._made(uid, manifest, look, report_of(uid)))
        except HistoryError:
            self._seen.pop(uid, None)
            raise
        except Exception as error:  # noqa: BLE001 - noted with its traceback
            self._faults.note("view", uid, error)
            self._seen.pop(uid, None)
            self._ends.pop(uid, None)
            view = self._instead(uid, manifest, look, error)
            if view is not None:
                self._note(view)

    def _instead(self, uid: str, manifest: Manifest, look: Look, error: Exception) -> Json | None:
        """A view that can be written: without what its workers said, else as it was, else bare."""
        metadata = manifest.get("metadata") or {}
        named = {
            key: storable_text(str(metadata.get(key, ""))) for key in ("name", "namespace", "uid")
        }
        bare = {"metadata": named}
        for shown in (manifest, bare):
            before = self._views.get(uid) if shown is bare else None
            try:
                view = {**(before or self._made(uid, shown, look, Report())), "result": None}
                view["error"] = storable_text(
                    f"laxity cannot show all of this Job: {words_of(error)}"
                )
                orjson.dumps(view)
            except Exception as worse:  # noqa: BLE001 - noted with its traceback
                self._faults.note("view without its reports", uid, worse)
            else:
                return view
        return None

    def first(self, manifest: Manifest, report: Report, now: float) -> Json:
        """A job that no cycle has seen yet, from now on the one that its id means."""
        view = views.view_of(manifest, None, report=report, before=None, now=now)
        view |= dict.fromkeys(LASTING) | {"revision": 0}
        with self._lock:
            if view["uid"] in self._views:
                return self._views[view["uid"]]
            self._put(view)
            self._latest[view["id"]] = view["uid"]
            self._noted[view["uid"]] = time.monotonic()
        return view

    def view(self, job_id: str) -> Json | None:
        with self._lock:
            return self._views.get(self._latest.get(job_id, ""))

    def by_uid(self, uid: str) -> Json | None:
        with self._lock:
            return self._views.get(uid)

    def knows(self, manifest: Mapping[str, Any]) -> bool:
        """Whether the verdict on this Job is the one that was seen on it last."""
        view = self.by_uid(str((manifest.get("metadata") or {}).get("uid", "")))
        return view is not None and views.is_told(view, manifest)

    def uids(self) -> dict[str, str]:
        """The uid of the latest job of each name."""
        with self._lock:
            return dict(self._latest)

    def all(self) -> list[Json]:
        """Every view, in order of submission; of a job that was refused and asked again, the last."""
        rows = (view for view in self.unordered() if not self._gave_way(view))
        return sorted(rows, key=lambda view: (view["submitted_at"] or 0.0, view["id"]))

    def unordered(self) -> list[Json]:
        """Every view."""
        with self._lock:
            return list(self._views.values())

    def stale(self, uid: str) -> None:
        """Something was reported about this job: its view is made anew at the next look."""
        with self._lock:
            self._stale.add(uid)

    def mark(self, uid: str, **lasting: Any) -> None:
        """Remember something about a job that its reader is not told."""
        with self._lock:
            view = self._views.get(uid)
            if view is not None:
                self._views[uid] = view | lasting
                self._unsaved[uid] = _row(self._views[uid])

    def unsaved(self) -> list[JobRow]:
        """Rows for the store; they count as unsaved until `saved` is called with them."""
        with self._lock:
            return list(self._unsaved.values())

    def saved(self, rows: Iterable[JobRow]) -> None:
        """These are in the store; a row that is newer than the one that was written is not."""
        with self._lock:
            for row in rows:
                if self._unsaved.get(row.uid) is row:
                    del self._unsaved[row.uid]

    def forget(self, *, ended_before: float) -> None:
        """Drop jobs that ended before an instant and are no longer in the cluster."""
        with self._lock:
            old = [
                uid
                for uid, view in self._views.items()
                if uid not in self._seen and (view["finished_at"] or ended_before) < ended_before
            ]
            for uid in old:
                self._ends.pop(uid, None)
                view = self._views.pop(uid)
                if self._latest.get(view["id"]) == uid:
                    del self._latest[view["id"]]

    def _fresh(self, uid: str, manifest: Manifest, look: Look) -> bool:
        """Whether nothing that a view is made of has changed, but for figures that flow."""
        name = views.job_id(manifest)
        row = look.state.by_id.get(name)
        key = (manifest["metadata"].get("resourceVersion"), row, look.said.get(name))
        before = self._seen.get(uid)
        self._seen[uid] = key
        view = self._views.get(uid)
        if view is None or before is None:
            return False
        if not view["broken"] and views.broken(view, look.state.now):
            return False
        return before[0] == key[0] and before[1] is row and before[2] == key[2]

    def _flow(self, uid: str, look: Look) -> None:
        """Note another expected end, if a reader would see that or is to be warned."""
        before = self._views[uid]
        finish = look.finishes.get(before["id"])
        if finish is None or finish is self._ends.get(uid):
            return
        self._ends[uid] = finish
        view = _dated(before | views.ends(finish), look.state.now)
        if not views.same(before, view):
            self._note(view | {"laxity_s": views.laxity_s(view, look.state.now)})

    def _made(
        self,
        uid: str,
        manifest: Manifest,
        look: Look,
        report: Report,
    ) -> Json:
        name, before = views.job_id(manifest), self._views.get(uid)
        view = views.view_of(
            manifest,
            look.state.by_id.get(name),
            report=report,
            before=before,
            now=look.state.now,
            finish=look.finishes.get(name),
            said=look.said.get(name),
        )
        view |= {key: (before or {}).get(key) for key in LASTING}
        view["broken"] = bool(view["broken"] or views.broken(view, look.state.now))
        return _dated(view, look.state.now)

    def _note(self, view: Json) -> None:
        """Keep a view; TypeError, and nothing kept, if it cannot be written."""
        before = self._views.get(view["uid"])
        changed = before is None or not views.same(before, view)
        view["revision"] = (before["revision"] if before else 0) + changed
        row = _row(view) if changed else None
        with self._lock:
            self._put(view)
            if row is not None:
                self._unsaved[row.uid] = row
                self._news.append(News(before, view))

    def _put(self, view: Json) -> None:
        uid, name = view["uid"], view["id"]
        self._views[uid] = view
        latest = self._views.get(self._latest.get(name, ""))
        if latest is None or _age(view) >= _age(latest):
            self._latest[name] = uid

    def _gave_way(self, view: Json) -> bool:
        """Whether this refused Job ran nothing, is gone, and another one asks by its name."""
        is_latest = self._latest.get(view["id"]) == view["uid"]
        return view["state"] == "refused" and views.is_over(view) and not is_latest


def _age(view: Json) -> tuple[float, float]:
    """Orders Jobs of one name. A job that asks again has the time of its first submission."""
    ended_at = view["finished_at"]
    return view["submitted_at"] or 0.0, math.inf if ended_at is None else ended_at


def _dated(view: Json, now: float) -> Json:
    """With what follows from its expected end."""
    if view["first_p90_at"] is None and view["verdict"] in ("promised", "forecast"):
        view |= {"first_p50_at": view["p50_at"], "first_p90_at": view["p90_at"]}
        if view["p50_at"] is not None:
            view["first_run_s"] = view["p50_at"] - max(now, view["expected_start_at"] or now)
    return view | {"danger": views.in_danger(view)}


def shown(view: Json, now: float) -> Json:
    """The view as it is answered: figures that flow are of this instant."""
    hidden = ("told", "released")
    answer = {name: value for name, value in view.items() if name not in hidden}
    return answer | {"laxity_s": views.laxity_s(view, now)}


def _row(view: Json) -> JobRow:
    return JobRow(
        uid=view["uid"],
        job=storable_text(view["id"]),
        namespace=storable_text(view["id"].partition("/")[0]),
        state=view["state"],
        outcome=view["outcome"],
        submitted_at=view["submitted_at"] or 0.0,
        finished_at=view["finished_at"],
        view=orjson.dumps(view),
    )
