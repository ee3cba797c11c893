"""What a running service answers about jobs and the cluster, in plain values."""

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, Final

from laxity import json_tree
from laxity.api.log_text import read_log
from laxity.safe_text import without_secrets
from laxity_scheduler.groups.group import Group
from laxity_scheduler.http.charts.timeline import TimelineRows, TimelineSpan
from laxity_scheduler.http.charts.timeline_groups import lane_id
from laxity_scheduler.http.decision_rows import fold_repeats
from laxity_scheduler.http.responses import Problem
from laxity_scheduler.live import UnknownJobError
from laxity_scheduler.model.cluster import Node
from laxity_scheduler.service import expected_times
from laxity_scheduler.service.exported.loan_metrics import loan_view
from laxity_scheduler.service.group_cycle.group_rows import view_of
from laxity_scheduler.service.loop import Service
from laxity_scheduler.service.views.live_view import readable_view
from laxity_scheduler.service.views.manifest_view import project_view
from laxity_scheduler.service.views.promise_outcome import promise_counts
from laxity_scheduler.service.views.view_fields import TERMINAL_STATES, Json, finite_or_none
from laxity_scheduler.service_clock import CLOCK
from laxity_scheduler.store.capacity_history import CapacityHistory

MAX_CHAIN: Final = 200
MAX_FOLDED_ROWS: Final = 2_000  # rows that are read to be folded into an answer
MAX_SIMILAR: Final = 3
MAX_COMPARED: Final = 1_000  # names, letter by letter


class JobViews:
    """Reads from one service; nothing here changes a Job."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._world = service.world
        self._timeline_rows = TimelineRows()
        self._capacity_history = CapacityHistory(service.store)

    def timeline(self, window: TimelineSpan) -> Json:
        """The jobs in this window and the GPUs that there are, as columns."""
        state, _ = self._service.last_snapshot
        groups = self._service.groups.book.groups(window.may_see)
        answer = self._timeline_rows.timeline(
            self._service.view_cache.all(),
            {lane_id(group.id): partial(self._group_view, group) for group in groups},
            state,
            window,
            self._capacity_history.until(state),
            refused=[lane_id(group.id) for group in groups if window.shows_refused(group)],
        )
        noun = "slots" if self._service.settings.world == "local" else "GPUs"
        return answer | {"cluster": answer["cluster"] | {"noun": noun}}

    def _group_view(self, group: Group) -> Json:
        return view_of(group) | self._service.groups.group_fields(group)

    def view_of(self, job_id: str) -> Json:
        """The view of a job; UnknownJobError if there never was one of this id."""
        view = self._service.view_cache.view(job_id)
        if view is None:
            return self.first_view(self._world.job(job_id))
        return self._complete_view(view, CLOCK.now())

    def view_with_project(self, job_id: str) -> Json:
        """The view, with the working directory of its workers and the names of their variables."""
        try:
            project = project_view(self._world.job(job_id))
        except UnknownJobError:
            return self.view_of(job_id)
        return self.view_of(job_id) | {"project": project}

    def list_views(self, may_see: Callable[[str], bool]) -> list[Json]:
        """All views of the namespaces that `may_see` accepts, in order of submission."""
        now = CLOCK.now()
        return [
            self._complete_view(view, now)
            for view in self._service.view_cache.all()
            if may_see(view["id"].partition("/")[0])
        ]

    def first_view(self, manifest: Mapping[str, Any]) -> Json:
        """The view of a Job that no cycle has seen yet."""
        now = CLOCK.now()
        report = self._service.report_of(json_tree.uid_of(manifest))
        return self._complete_view(self._service.view_cache.add_first(manifest, report, now), now)

    def similar_ids(self, job_id: str) -> list[str]:
        """Jobs of the same namespace with a similar name; first those whose name it begins, newest first."""
        namespace, slash, wanted = job_id.partition("/")
        prefix = f"{namespace}/"
        ids = self._service.view_cache.latest_uids()
        candidates = [name.removeprefix(prefix) for name in ids if name.startswith(prefix)]
        longer = [name for name in reversed(candidates) if name.startswith(wanted)]
        close = get_close_matches(wanted, candidates[-MAX_COMPARED:], n=MAX_SIMILAR)
        similar = dict.fromkeys([*longer, *close])
        return [namespace + slash + name for name in similar][:MAX_SIMILAR]

    def explain_job(self, job_id: str) -> Json:
        """The chain of decisions about a job, and what it waits for."""
        view = self.view_of(job_id)
        rows = self._service.store.latest_decisions([job_id], limit=MAX_FOLDED_ROWS)
        held_by, start_at = tuple(view["held_by"]), view["expected_start_at"]
        state, predictor = self._service.last_snapshot
        row = state.by_id.get(job_id)
        if view["state"] in ("queued", "suspended") and not held_by and row is not None:
            with self._service.deciding:
                held_by, expected_at = expected_times.predict_start(state, predictor, row)
            start_at = finite_or_none(start_at or expected_at)
        fields = ("reason_code", "reason", "offers", "p50_at", "p90_at")
        return {
            "job": view,
            "verdict": {"kind": view["verdict"], **{name: view[name] for name in fields}},
            "chain": fold_repeats(rows)[-MAX_CHAIN:],
            "held_by": list(held_by),
            "expected_start_at": start_at,
        }

    def latest_decisions(
        self, job_id: str | None, namespaces: Sequence[str] | None, limit: int
    ) -> list[Json]:
        """The latest decisions about one job, or about all jobs of these namespaces."""
        jobs = None if job_id is None else [job_id]
        most = max(limit, MAX_FOLDED_ROWS)
        rows = self._service.store.latest_decisions(jobs, namespaces=namespaces, limit=most)
        return fold_repeats(rows)[-limit:]

    def cluster_view(self) -> Json:
        """Capacity, policy, and how promises have come out so far."""
        state, predictor = self._service.last_snapshot
        return {
            "now": CLOCK.now(),
            "nodes": [_node_view(node) for node in state.nodes],
            "total_gpus": state.total_gpus,
            "free_gpus": state.free_gpus,
            "cycle": state.cycle,
            "policy": self._service.policies.name,
            "learned": self._service.policies.view(),
            "world": self._service.settings.world,
            "predictor_version": predictor.version,
            "acting": self._service.leading,
            "failure": without_secrets(self._service.failure),
            "promises": promise_counts(self._service.view_cache.all()),
            "loans": loan_view(state, self._world.demand_history),
        }

    def worker_log(self, job_id: str, index: int, tail: int | None) -> str:
        """The output of one worker; only the last `tail` lines unless None."""
        view = self.view_of(job_id)
        try:
            text = self._world.logs(job_id, index)
        except UnknownJobError:
            text = self._log_of_gone_job(view, index)
        if tail is None:
            return text
        return "".join(text.splitlines(keepends=True)[-tail:]) if tail else ""

    def _log_of_gone_job(self, view: Json, index: int) -> str:
        """What a worker of a Job that was deleted had written, where this machine keeps it."""
        path = Path(self._world.log_path(view["id"], index) or "")
        if path.is_file() and path.stat().st_mtime >= (view["submitted_at"] or 0.0):
            return read_log(path)
        message = (
            f"{view['id']} was {view['state']}: its Job is gone, and its workers' output with it"
        )
        raise Problem(404, "not_found", message)

    def _complete_view(self, view: Json, now: float) -> Json:
        """The view with the page of its run, or the reason why it is not tracked now."""
        telling = self._service.notifications
        has_ended = view["state"] in TERMINAL_STATES
        is_waited_for = not view["run_id"] and view["state"] != "refused"  # by a run
        problem = ""
        if telling and (is_waited_for or not has_ended):
            problem = telling.delivery_problem("mlflow")
        url = self._service.settings.run_url(view.get("experiment", ""), view["run_id"])
        shared = self._service.groups.job_fields(view) if view.get("group") else {}
        return readable_view(view, now) | {"run_url": url, "untracked": problem} | shared


def _node_view(node: Node) -> Json:
    return {
        "id": node.id,
        "gpus": node.gpus,
        "free_gpus": max(0, node.free_gpus) if node.coming is None else 0,
        "gpu_type": node.gpu_type,
        "pool": node.pool,
        "reclaim_at": finite_or_none(node.reclaim_at),
    }
