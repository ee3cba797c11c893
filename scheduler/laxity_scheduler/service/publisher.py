"""What a cycle saw and decided becomes views, rows of the store, feedback, metrics and notifications.

The parts are isolated: an error about one Job costs that Job's share, any other error costs that part
in this cycle. The views come first, because all other parts read their changes.
"""

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import Final, Protocol

from laxity import names
from laxity.api.status_text import instant_text
from laxity.safe_text import printable
from laxity_profiler.estimate import Predictor
from laxity_scheduler.live import LiveWorld, Manifest, Report
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.job import Job
from laxity_scheduler.plan import Plan
from laxity_scheduler.service import expected_times
from laxity_scheduler.service.demand_keeper import DemandKeeper
from laxity_scheduler.service.exported.metrics import Metrics
from laxity_scheduler.service.feedback import Feedback
from laxity_scheduler.service.notifier import Notifier
from laxity_scheduler.service.offers import PROBE_KEY_PREFIX
from laxity_scheduler.service.pool_keeper import PoolKeeper
from laxity_scheduler.service.queue_finishes import QueueFinishes
from laxity_scheduler.service.views.live_view import ExpectedEnd, LastReason
from laxity_scheduler.service.views.stalling import StallWatch, stall_notice
from laxity_scheduler.service.views.view_cache import CycleInput, ViewCache, ViewChange
from laxity_scheduler.service.views.view_fields import Json
from laxity_scheduler.service_clock import CLOCK
from laxity_scheduler.simulated.told_finish import ToldFinish
from laxity_scheduler.store.audit_rows import AuditRows, row_of_notice
from laxity_scheduler.store.store import StaleServiceError, Store, StoreError
from laxity_scheduler.store.tables import PendingRow, SavedView

LOG: Final = logging.getLogger(__name__)
VERDICT_FIELDS: Final = ("verdict", "promised_p90_at")  # where these differ it is another one
LEAST_LOOK_S: Final = 0.5  # between looks at jobs that take longer than expected
REFRESH_S: Final = 5.0  # figures that flow with time are made anew this often


class Notifications(Protocol):
    """Sends what a cycle changed to others; returns at once."""

    def dispatch(
        self, changes: Sequence[ViewChange], state: ClusterState, predictor: Predictor
    ) -> None: ...

    @property
    def logs_points(self) -> bool: ...

    def send_points(self, uid: str, lines: Sequence[object], *, all_epochs: bool) -> None: ...

    def delivery_problem(self, listener: str) -> str: ...


class Publisher:
    """Keeps between cycles what was published last; a restart can do without it."""

    def __init__(
        self,
        *,
        world: LiveWorld,
        store: Store,
        view_cache: ViewCache,
        notifier: Notifier,
        metrics: Metrics,
        audit_rows: AuditRows,
        report_of: Callable[[str], Report],
        feedback: Feedback | None,
        demand_keeper: DemandKeeper,
        deciding: Lock,
        finishes: QueueFinishes,
    ) -> None:
        self._world, self._store, self._view_cache = world, store, view_cache
        self._notifier, self._metrics, self._audit_rows = notifier, metrics, audit_rows
        self._report_of, self._feedback, self._deciding = report_of, feedback, deciding
        self._demand_keeper, self._finishes = demand_keeper, finishes
        self._pool_keeper = PoolKeeper(store, world.pool_arrivals)
        if feedback is not None:
            feedback.faults = metrics.faults
        self.stalls = StallWatch(metrics.faults)
        self._is_first = True
        self._last_reasons: dict[str, LastReason] = {}
        self._left_out: frozenset[str] = frozenset()
        self._refreshed_at = float("-inf")
        self._generations: dict[str, int] = {}
        self._rows: dict[str, Job] = {}
        self._expected_ends: dict[str, ExpectedEnd] = {}
        self._told: dict[str, ToldFinish] = {}
        self._told_ends: dict[str, ExpectedEnd] = {}
        self._probes: dict[str, Json] = {}  # finished, and their askers not asked again yet
        self._asked_again: set[str] = set()  # uids of probes

    def publish(
        self,
        state: ClusterState,
        predictor: Predictor,
        plan: Plan,
        *,
        jobs: Sequence[Manifest],
        last_snapshot: ClusterState,
        leading: bool,
        notifications: Notifications | None,
    ) -> None:
        """Publish a cycle: `plan` was decided on `state`, from which faulty jobs were left out.

        `jobs` are all of the world, `last_snapshot` has all but the rejected ones.
        """
        began = time.monotonic()
        self._note_reasons(state, plan)
        cycle_input = CycleInput(
            manifests=jobs,
            state=last_snapshot,
            expected_ends=self._refresh_expected_ends(state, predictor) | self._waiting_ends(state),
            told=self._finishes.told,
            last_reasons=self._last_reasons,
            note_of=partial(expected_times.prediction_note, predictor),
            began_s=began,
        )
        changes = self._view_cache.update_views(cycle_input, self._report_of)
        first, self._is_first = self._is_first, False
        if leading:
            self._tell_changes(changes, state)
            if any(map(_ends_step, changes)):
                self._world.wake()  # who waits for it begins in the next cycle: this one saw no end
        with self._metrics.isolate_part("explaining"):
            self._save_audit_rows()  # first: a reader who is notified may ask why
        with self._metrics.isolate_part("ringing"):
            self._notify_readers(changes)
        if self._feedback is not None:
            with self._metrics.isolate_part("learning"):
                self._give_feedback(self._feedback, state, predictor, changes, leading=leading)
        if leading:
            with self._metrics.isolate_part("asking again after probes"):
                self._ask_again_after_probes(
                    [n.after for n in changes] if not first else self._view_cache.all()
                )
        with self._metrics.isolate_part("counting"):
            self._metrics.count_changes(changes if leading and not first else ())
            self._metrics.set_gauges(state, self._view_cache.views_in_any_order())
            self._metrics.set_patches(self._world.patch_outcomes)
            self._count_loans(state, plan, leading=leading)
        with self._metrics.isolate_part("saving"):
            self._save_views()
        if leading:
            self._save_learned()
        if notifications is not None and leading:
            with self._metrics.isolate_part("telling"):
                notifications.dispatch(changes, state, predictor)

    def _note_reasons(self, state: ClusterState, plan: Plan) -> None:
        """The last reason of each job, as the plan or what leaves it out of plans says it."""
        self._last_reasons = {
            job: last for job, last in self._last_reasons.items() if job in state.by_id
        }
        left_out = self._world.find_left_out()
        for job in self._left_out - left_out.keys():  # mended: what was wrong is old
            row = state.by_id.get(job)
            if row is not None and row.verdict is not None:
                standing = row.verdict.reason
                self._last_reasons[job] = LastReason(standing.code, standing.text)
        self._last_reasons |= expected_times.last_reasons(plan)
        self._last_reasons |= {
            job: LastReason(wrong.code, wrong.text) for job, wrong in left_out.items()
        }
        self._left_out = frozenset(left_out)

    def _save_learned(self) -> None:
        """What the world has seen, for the service after this one."""
        with self._metrics.isolate_part("keeping what inference needed"):
            self._demand_keeper.save()
        with self._metrics.isolate_part("keeping how long nodes take to come"):
            self._pool_keeper.save()

    def _tell_changes(self, changes: Sequence[ViewChange], state: ClusterState) -> None:
        """Log verdicts; tell on its Job and in `explain` that no epoch of a job ends, or one again."""
        _log_verdicts(changes)
        for change in changes:
            job_id = change.after["id"]
            with self._metrics.faults.isolate("stall", job_id):
                notice = stall_notice(change.before, change.after, state.now)
                if notice is not None:
                    self._world.tell(job_id, notice)
                    self._audit_rows.add_answer(row_of_notice(state, job_id, notice))

    def _count_loans(self, state: ClusterState, plan: Plan, *, leading: bool) -> None:
        loans = self._metrics.loans
        loans.record(state, plan, self._demand_keeper.history)
        loans.record_waits(self._world.inference_waits, state.now, counted=leading)

    def _give_feedback(
        self,
        feedback: Feedback,
        state: ClusterState,
        predictor: Predictor,
        changes: Sequence[ViewChange],
        *,
        leading: bool,
    ) -> None:
        if leading:
            feedback.record_transitions(state, predictor, self._view_cache.latest_uids())
            feedback.record_finishes(changes, now=state.now)
        else:
            feedback.observe_nodes_only(state)

    def _refresh_expected_ends(
        self, state: ClusterState, predictor: Predictor
    ) -> dict[str, ExpectedEnd]:
        """Of all running jobs; predicted anew every REFRESH_S.

        In between where a row has changed, or a job still runs that was expected to have ended.
        """
        refresh = min(self._refreshed_at + REFRESH_S, self.stalls.due_at) <= state.now
        old = {} if refresh else self._rows
        overdue = {name for name, end in self._expected_ends.items() if end.p50_at <= state.now}
        jobs = [job for job in state.running if old.get(job.id) is not job or job.id in overdue]
        with self._deciding:
            anew = self._predict_ends_of(state, predictor, jobs)
            stalls = self.stalls.find(jobs, predictor, state.now, all_jobs=refresh)
        anew |= {
            job: replace(anew[job], stall=stall) for job, stall in stalls.items() if job in anew
        }
        ends = self._expected_ends | anew
        self._rows = {job.id: job for job in state.running if job.id in ends}
        self._expected_ends = {name: ends[name] for name in self._rows}
        if refresh:
            self._refreshed_at = state.now
        return self._expected_ends

    def _waiting_ends(self, state: ClusterState) -> dict[str, ExpectedEnd]:
        """Of jobs without workers: as they were told. The same object as long as that stands."""
        told = self._finishes.told or {}
        before, self._told = (
            self._told,
            {job.id: told[job.id] for job in state.jobs if not job.workers and job.id in told},
        )
        self._told_ends = {
            name: self._told_ends[name]
            if before.get(name) is finish
            else ExpectedEnd(finish.p50_at, finish.p90_at)
            for name, finish in self._told.items()
        }
        return self._told_ends

    def until_overdue_s(self) -> float:
        """Seconds until a running job is expected to have ended: then its end is predicted anew."""
        first_at = min((end.p50_at for end in self._expected_ends.values()), default=float("inf"))
        return max(LEAST_LOOK_S, first_at - CLOCK.now())

    def _predict_ends_of(
        self, state: ClusterState, predictor: Predictor, jobs: Sequence[Job]
    ) -> dict[str, ExpectedEnd]:
        """When these are expected to end; a job whose prediction raises is left out."""
        try:
            return expected_times.predict_ends(state, predictor, jobs)
        except Exception:  # noqa: BLE001 - found by predicting one by one
            ends: dict[str, ExpectedEnd] = {}
        for job in jobs:
            with self._metrics.faults.isolate("expected end", job.id):
                ends |= expected_times.predict_ends(state, predictor, [job])
        return ends

    def _ask_again_after_probes(self, views: Iterable[Json]) -> None:
        """Ask for a new verdict on jobs of unknown models whose probe has finished."""
        for view in views:
            is_probe = view["idempotency_key"].startswith(PROBE_KEY_PREFIX)
            if is_probe and view["state"] == "finished" and view["uid"] not in self._asked_again:
                self._probes[view["uid"]] = view
        for uid, probe in list(self._probes.items()):
            asker = self._view_cache.view_by_uid(
                probe["idempotency_key"].removeprefix(PROBE_KEY_PREFIX)
            )
            # what raises is asked again in the next cycle
            with self._metrics.faults.isolate("asking again", probe["id"]):
                if asker is not None and asker["state"] == "refused":
                    self._world.annotate(asker["id"], {names.VERDICT: None})
                    self._world.wake()
                del self._probes[uid]
                self._asked_again.add(uid)

    def _notify_readers(self, changes: Sequence[ViewChange]) -> None:
        for change in changes:
            self._notifier.notify(f"job:{change.after['id']}")
        self.notify_workers()

    def notify_workers(self) -> None:
        """Notify the workers whose signal has changed since they were last notified."""
        subscribers = self._notifier.subscribers("signal:")
        for name in subscribers:
            generation = self._signal_generation(name.removeprefix("signal:"))
            if self._generations.get(name) != generation:
                self._generations[name] = generation
                self._notifier.notify(name)
        self._generations = {name: self._generations[name] for name in subscribers}

    def _signal_generation(self, job_id: str) -> int:
        """The generation of a job's signal; -1 if there is none."""
        with self._metrics.faults.isolate("signal", job_id), suppress(KeyError):
            return self._world.signal(job_id).generation
        return -1

    def _save_audit_rows(self) -> None:
        """Write the rows that `explain` and `decisions` show."""
        rows = self._audit_rows.pending_rows()
        if rows and self._write_to_store(rows, ()):
            self._audit_rows.mark_flushed()

    def _save_views(self) -> None:
        """Write changed views to the store."""
        rows = self._view_cache.rows_to_save()
        if rows and self._write_to_store((), rows):
            self._view_cache.mark_saved(rows)

    def _write_to_store(self, rows: Sequence[PendingRow], views: Sequence[SavedView]) -> bool:
        """Whether the store has the rows now; if not, the next cycle writes them."""
        try:
            self._store.write_rows(rows, views)
        except StaleServiceError:
            return True  # the new leader has written them
        except StoreError as error:
            LOG.warning("not written to the store yet, it will be: %s", error)
            return False
        return True


def _ends_step(change: ViewChange) -> bool:
    """Whether a job of a group has ended."""
    ended_before = change.before is not None and change.before["finished_at"] is not None
    return (
        bool(change.after["group"]) and change.after["finished_at"] is not None and not ended_before
    )


def _log_verdicts(changes: Iterable[ViewChange]) -> None:
    """Log each new verdict in one line, whatever characters users have put into names."""
    for change in changes:
        before, after = change.before or {}, change.after
        is_new = any(before.get(name) != after[name] for name in VERDICT_FIELDS)
        if is_new and after["verdict"] != "none":
            dates = [("deadline", after["deadline_at"]), ("P90 finish", after["p90_at"])]
            dates_text = ", ".join(
                f"{name} {instant_text(instant_at)}"
                for name, instant_at in dates
                if instant_at is not None
            )
            reason_text = " ".join(printable(f"{after['reason_code']}: {after['reason']}").split())
            fields = (after["id"], after["verdict"], dates_text, reason_text)
            LOG.info("%s: %s, %s; %s", *fields, extra={"job": after["id"]})
