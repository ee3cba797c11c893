"""All jobs as people see them now, kept between cycles and over restarts.

Most jobs do not change in most cycles, so a view is made anew only when its Job, its row or what it
waits for is another one, when time alone has changed it (a deadline passed), or when figures that
flow are due to be refreshed.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

import orjson

from laxity_scheduler.engine import Report
from laxity_scheduler.memory.tables import JobRow, words
from laxity_scheduler.service import views
from laxity_scheduler.service.views import Finish, Json, Said
from laxity_scheduler.state import ClusterState, Job

LASTING = ("first_p50_at", "first_p90_at", "told", "danger", "released")


@dataclass(frozen=True, slots=True)
class News:
    """A job's view changed. `before` is None for a job seen for the first time."""

    before: Json | None
    after: Json


@dataclass(frozen=True, slots=True)
class Look:
    """What one cycle saw: all Jobs, the snapshot, and what is expected and said of its jobs."""

    manifests: Sequence[Mapping[str, Any]]
    state: ClusterState
    finishes: Mapping[str, Finish]
    said: Mapping[str, Said]
    began: float = float("inf")  # monotonic; a job that was noted later is not missing


class Board:
    """Views by uid; the latest job of a name is the one that its id means. Safe for threads."""

    def __init__(self, rows: Iterable[JobRow] = ()) -> None:
        self._lock = Lock()
        self._views: dict[str, Json] = {}
        self._latest: dict[str, str] = {}
        self._seen: dict[str, tuple[object, Job | None, Said | None]] = {}
        self._ends: dict[str, Finish] = {}  # the last that was looked at, of running jobs
        self._unsaved: set[str] = set()
        self._noted: dict[str, float] = {}
        self._stale: set[str] = set()
        for row in rows:
            self._put(orjson.loads(row.view))

    def update(self, look: Look, report_of: Callable[[str], Report]) -> list[News]:
        """Take in what a cycle saw; what has changed for a reader."""
        news = []
        present = set()
        with self._lock:
            for uid in self._stale:
                self._seen.pop(uid, None)
            self._stale.clear()
        for manifest in look.manifests:
            uid = str((manifest.get("metadata") or {}).get("uid", ""))
            present.add(uid)
            if self._fresh(uid, manifest, look):
                news += self._flowed(uid, look)
            else:
                news += self._note(self._made(uid, manifest, look, report_of))
        with self._lock:
            missing = [
                view
                for uid, view in self._views.items()
                if uid not in present
                and view["state"] not in views.ENDED
                and self._noted.get(uid, 0.0) < look.began
            ]
            self._noted.clear()
        for view in missing:
            news += self._note(views.gone(view, look.state.now))
        return news

    def first(self, manifest: Mapping[str, Any], report: Report, now: float) -> Json:
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
        """Every view, in order of submission."""
        return sorted(self.unordered(), key=lambda view: (view["submitted_at"] or 0.0, view["id"]))

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
                self._unsaved.add(uid)

    def unsaved(self) -> list[JobRow]:
        """Rows for the store; they count as unsaved until `saved` is called with them."""
        with self._lock:
            return [_row(self._views[uid]) for uid in self._unsaved]

    def saved(self, rows: Iterable[JobRow]) -> None:
        with self._lock:
            self._unsaved -= {row.uid for row in rows}

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

    def _fresh(self, uid: str, manifest: Mapping[str, Any], look: Look) -> bool:
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

    def _flowed(self, uid: str, look: Look) -> list[News]:
        """The view with another expected end, if a reader would see that or is to be warned."""
        before = self._views[uid]
        finish = look.finishes.get(before["id"])
        if finish is None or finish is self._ends.get(uid):
            return []
        self._ends[uid] = finish
        view = _dated(before | views.ends(finish))
        if views.same(before, view):
            return []
        return self._note(view | {"laxity_s": views.laxity_s(view, look.state.now)})

    def _made(
        self,
        uid: str,
        manifest: Mapping[str, Any],
        look: Look,
        report_of: Callable[[str], Report],
    ) -> Json:
        name, before = views.job_id(manifest), self._views.get(uid)
        view = views.view_of(
            manifest,
            look.state.by_id.get(name),
            report=report_of(uid),
            before=before,
            now=look.state.now,
            finish=look.finishes.get(name),
            said=look.said.get(name),
        )
        view |= {key: (before or {}).get(key) for key in LASTING}
        view["broken"] = bool(view["broken"] or views.broken(view, look.state.now))
        return _dated(view)

    def _note(self, view: Json) -> list[News]:
        before = self._views.get(view["uid"])
        changed = before is None or not views.same(before, view)
        view["revision"] = (before["revision"] if before else 0) + changed
        with self._lock:
            self._put(view)
            if changed:
                self._unsaved.add(view["uid"])
        return [News(before, view)] if changed else []

    def _put(self, view: Json) -> None:
        uid, name = view["uid"], view["id"]
        self._views[uid] = view
        latest = self._views.get(self._latest.get(name, ""))
        if latest is None or (view["submitted_at"] or 0) >= (latest["submitted_at"] or 0):
            self._latest[name] = uid


def _dated(view: Json) -> Json:
    """With what follows from its expected end."""
    if view["first_p90_at"] is None and view["verdict"] in ("promised", "forecast"):
        view |= {"first_p50_at": view["p50_at"], "first_p90_at": view["p90_at"]}
    return view | {"danger": views.in_danger(view)}


def shown(view: Json, now: float) -> Json:
    """The view as it is answered: figures that flow are of this instant."""
    hidden = ("told", "released")
    answer = {name: value for name, value in view.items() if name not in hidden}
    return answer | {"laxity_s": views.laxity_s(view, now)}


def _row(view: Json) -> JobRow:
    return JobRow(
        uid=view["uid"],
        job=words(view["id"]),
        namespace=words(view["id"].partition("/")[0]),
        state=view["state"],
        outcome=view["outcome"],
        submitted_at=view["submitted_at"] or 0.0,
        finished_at=view["finished_at"],
        view=orjson.dumps(view),
    )
