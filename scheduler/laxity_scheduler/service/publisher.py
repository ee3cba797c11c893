"""What a cycle saw and decided becomes views, rows of the store, lessons, metrics and news.

Each part stands by itself: what raises about one Job costs that Job's share, what raises otherwise
costs that part, this time. The views come first, as all others read them; what changed in them is
news until every part has been given it.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Final, Protocol

from laxity import names
from laxity.api.outcome import instant
from laxity.safe_text import printable
from laxity_profiler.estimate import Predictor
from laxity_scheduler.live import LiveWorld, Report
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.job import Job
from laxity_scheduler.plan import Plan
from laxity_scheduler.service import expected_times
from laxity_scheduler.service.feedback import Feedback
from laxity_scheduler.service.metrics import Metrics
from laxity_scheduler.service.notifier import Notifier
from laxity_scheduler.service.offers import PROBE_KEY_PREFIX
from laxity_scheduler.service.view_cache import CycleInput, ViewCache, ViewChange
from laxity_scheduler.service.view_fields import Json
from laxity_scheduler.service.views import ExpectedEnd, LastReason
from laxity_scheduler.store.audit_rows import AuditRows
from laxity_scheduler.store.store import StaleServiceError, Store, StoreError
from laxity_scheduler.store.tables import JobRow, PendingRow

LOG: Final = logging.getLogger(__name__)
VERDICT_FIELDS: Final = ("verdict", "promised_p90_at")  # where these differ it is another one
REFRESH_S: Final = 5.0  # figures that flow with time are made anew this often


class Notifications(Protocol):
    """Is told what a cycle changed; returns at once."""

    def dispatch(
        self, news: Sequence[ViewChange], state: ClusterState, predictor: Predictor
    ) -> None: ...

    def send_epochs(self, uid: str, lines: Sequence[object]) -> None: ...

    def delivery_problem(self, listener: str) -> str: ...


class Publisher:
    """Remembers between cycles what was published last, and nothing that a restart misses."""

    def __init__(
        self,
        *,
        world: LiveWorld,
        store: Store,
        board: ViewCache,
        notifier: Notifier,
        metrics: Metrics,
        records: AuditRows,
        report_of: Callable[[str], Report],
        feedback: Feedback | None,
        deciding: Lock,
    ) -> None:
        self._world, self._store, self._board = world, store, board
        self._notifier, self._metrics, self._records = notifier, metrics, records
        self._report_of, self._feedback, self._deciding = report_of, feedback, deciding
        self._is_first = True
        self._said: dict[str, LastReason] = {}
        self._refreshed_at = float("-inf")
        self._generations: dict[str, int] = {}
        self._rows: dict[str, Job] = {}
        self._ends: dict[str, ExpectedEnd] = {}
        self._probes: dict[str, Json] = {}  # finished, and their askers not asked again yet
        self._asked_again: set[str] = set()  # uids of probes

    def publish(
        self,
        state: ClusterState,
        predictor: Predictor,
        plan: Plan,
        *,
        last_snapshot: ClusterState,
        leading: bool,
        notifications: Notifications | None,
    ) -> None:
        """Take in what a cycle saw, and decided on `state`: that without jobs that were left out.

        Those of them that were not rejected are in `seen` only.
        """
        began = time.monotonic()
        self._said = {job: said for job, said in self._said.items() if job in state.by_id}
        self._said |= expected_times.last_reasons(plan)
        cycle_input = CycleInput(
            manifests=self._world.jobs(),
            state=last_snapshot,
            expected_ends=self._refresh_expected_ends(state, predictor),
            last_reasons=self._said,
            began_s=began,
        )
        news = self._board.update_views(cycle_input, self._report_of)
        first, self._is_first = self._is_first, False
        if leading:
            _log_verdicts(news)
        with self._isolate_part("explaining"):  # who is rung may ask why
            self._save_audit_rows()
        with self._isolate_part("ringing"):
            self._notify_readers(news)
        if self._feedback is not None:
            with self._isolate_part("learning"):
                self._give_feedback(self._feedback, state, predictor, news, leading=leading)
        if leading:
            with self._isolate_part("asking again after probes"):
                self._ask_again_after_probes(
                    [n.after for n in news] if not first else self._board.all()
                )
        with self._isolate_part("counting"):
            self._metrics.count_changes(news if leading and not first else ())
            self._metrics.set_gauges(state, self._board.views_in_any_order())
            self._metrics.set_patches(getattr(self._world, "sent", {}))
        with self._isolate_part("saving"):
            self._save_views()
        if notifications is not None and leading:
            with self._isolate_part("telling"):
                notifications.dispatch(news, state, predictor)

    @contextmanager
    def _isolate_part(self, stage: str) -> Iterator[None]:
        """What a part raises is logged and counted, and the next part goes on."""
        try:
            yield
        except Exception:
            LOG.exception("%s failed in this cycle; all else goes on", stage)
            self._metrics.failed_cycles.labels("part").inc()

    def _give_feedback(
        self,
        feedback: Feedback,
        state: ClusterState,
        predictor: Predictor,
        news: Sequence[ViewChange],
        *,
        leading: bool,
    ) -> None:
        if leading:
            feedback.record_transitions(state, predictor, self._board.latest_uids())
            feedback.record_finishes(news)
        else:
            feedback.observe_nodes_only(state)

    def _refresh_expected_ends(
        self, state: ClusterState, predictor: Predictor
    ) -> dict[str, ExpectedEnd]:
        """Of all running jobs; made anew now and then, and in between where a row has changed."""
        refresh = self._refreshed_at + REFRESH_S <= state.now
        old = {} if refresh else self._rows
        jobs = [job for job in state.running if old.get(job.id) is not job]
        with self._deciding:
            anew = self._predict_ends_of(state, predictor, jobs)
        known = self._ends | anew
        self._rows = {job.id: job for job in state.running if job.id in known}
        self._ends = {name: known[name] for name in self._rows}
        if refresh:
            self._refreshed_at = state.now
        return self._ends

    def _predict_ends_of(
        self, state: ClusterState, predictor: Predictor, jobs: Sequence[Job]
    ) -> dict[str, ExpectedEnd]:
        """When these are expected to end; one that nothing can be said of is left out."""
        try:
            return expected_times.predict_ends(state, predictor, jobs)
        except Exception:  # noqa: BLE001 - asked for one by one, it is told of whom
            found: dict[str, ExpectedEnd] = {}
        for job in jobs:
            try:
                found |= expected_times.predict_ends(state, predictor, [job])
            except Exception as error:  # noqa: BLE001 - noted with its traceback
                self._metrics.faults.record_fault("expected end", job.id, error)
        return found

    def _ask_again_after_probes(self, views: Iterable[Json]) -> None:
        """A job whose model was unknown is asked for again when its probe has finished."""
        for view in views:
            is_probe = view["idempotency_key"].startswith(PROBE_KEY_PREFIX)
            if is_probe and view["state"] == "finished" and view["uid"] not in self._asked_again:
                self._probes[view["uid"]] = view
        for uid, probe in list(self._probes.items()):
            asker = self._board.view_by_uid(probe["idempotency_key"].removeprefix(PROBE_KEY_PREFIX))
            try:
                if asker is not None and asker["state"] == "refused":
                    self._world.annotate(asker["id"], {names.VERDICT: None})
                    self._world.wake()
            except Exception as error:  # noqa: BLE001 - noted, and asked again in the next cycle
                self._metrics.faults.record_fault("asking again", probe["id"], error)
            else:
                del self._probes[uid]
                self._asked_again.add(uid)

    def _notify_readers(self, news: Sequence[ViewChange]) -> None:
        for change in news:
            self._notifier.notify(f"job:{change.after['id']}")
        self.notify_workers()

    def notify_workers(self) -> None:
        """Ring the workers whose signal is another one than when they were rung last."""
        heard = self._notifier.subscribers("signal:")
        for name in heard:
            generation = self._signal_generation(name.removeprefix("signal:"))
            if self._generations.get(name) != generation:
                self._generations[name] = generation
                self._notifier.notify(name)
        self._generations = {name: self._generations[name] for name in heard}

    def _signal_generation(self, job_id: str) -> int:
        """Of a job's signal; -1 if there is none."""
        try:
            return self._world.signal(job_id).generation
        except KeyError:
            return -1
        except Exception as error:  # noqa: BLE001 - noted with its traceback
            self._metrics.faults.record_fault("signal", job_id, error)
            return -1

    def _save_audit_rows(self) -> None:
        """What was said to whom, for people who ask why."""
        rows = self._records.pending_rows()
        if rows and self._write_to_store(rows, ()):
            self._records.mark_flushed()

    def _save_views(self) -> None:
        """Views into the store."""
        rows = self._board.rows_to_save()
        if rows and self._write_to_store((), rows):
            self._board.mark_saved(rows)

    def _write_to_store(self, said: Sequence[PendingRow], views: Sequence[JobRow]) -> bool:
        """Whether the store has it now; what could not be written is written next time."""
        try:
            self._store.write_rows(said, views)
        except StaleServiceError:
            return True  # who leads now has written it
        except StoreError as error:
            LOG.warning("not written to the store yet, it will be: %s", error)
            return False
        return True


def _log_verdicts(news: Iterable[ViewChange]) -> None:
    """A line for each verdict: in one line, whatever users have named."""
    for change in news:
        before, after = change.before or {}, change.after
        is_new = any(before.get(name) != after[name] for name in VERDICT_FIELDS)
        if is_new and after["verdict"] != "none":
            dates = [("deadline", after["deadline_at"]), ("P90 finish", after["p90_at"])]
            said = ", ".join(f"{name} {instant(at)}" for name, at in dates if at is not None)
            why = " ".join(printable(f"{after['reason_code']}: {after['reason']}").split())
            words = (after["id"], after["verdict"], said, why)
            LOG.info("%s: %s, %s; %s", *words, extra={"job": after["id"]})
