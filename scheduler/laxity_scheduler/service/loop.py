"""The loop: observe, decide, journal, act, publish; then sleep until something happens.

It is level-based: all that it must know is in the cluster, the reports of the workers and the
journal, so a service that is killed at any instant goes on from there. A Job about which a decision
raises is left out, with the reason on it, and all others are served in the same cycle. A cycle that
fails for another reason acts on nothing. It is counted, the next one starts from what it observes,
and three failures in a row are reported in the cluster.
"""

import gc
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from threading import Event, Lock
from typing import Final, Protocol

from laxity.backoff import Backoff
from laxity_profiler.estimate import Predictor
from laxity_scheduler.engine import DecidedCycle, record_dropped
from laxity_scheduler.inflight import with_follow_ups
from laxity_scheduler.job_faults import error_text
from laxity_scheduler.live import JobError, LiveWorld, Manifest, Report
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.job import DAY_S, FOREVER
from laxity_scheduler.plan import Plan, Policy
from laxity_scheduler.service.cycle_faults import FailureStreak
from laxity_scheduler.service.demand_keeper import DemandKeeper
from laxity_scheduler.service.exported.metrics import Metrics
from laxity_scheduler.service.fault_isolation import (
    PolicyFaultError,
    decide_without_faulty,
    state_without,
)
from laxity_scheduler.service.feedback import Feedback
from laxity_scheduler.service.group_cycle.group_book import GroupBook
from laxity_scheduler.service.group_cycle.group_keeper import GroupKeeper
from laxity_scheduler.service.leadership import OtherStoreError
from laxity_scheduler.service.loan_orders import LoanOrders
from laxity_scheduler.service.notifier import Notifier
from laxity_scheduler.service.policy_in_force import PolicyInForce
from laxity_scheduler.service.publisher import Notifications, Publisher
from laxity_scheduler.service.queue_finishes import QueueFinishes
from laxity_scheduler.service.rare_collections import rare_garbage_collection
from laxity_scheduler.service.settings import Settings
from laxity_scheduler.service.views.view_cache import ViewCache
from laxity_scheduler.service.views.view_fields import uids_by_id
from laxity_scheduler.service_clock import CLOCK
from laxity_scheduler.store.audit_rows import AuditRows, JournalledPlan
from laxity_scheduler.store.codec import EncodedPlan, encode_plan, encode_record
from laxity_scheduler.store.journal import Journal
from laxity_scheduler.store.store import StaleServiceError, Store, StoreError
from laxity_scheduler.store.tables import PendingRow

LOG: Final = logging.getLogger(__name__)
BACKOFF: Final = Backoff(first_s=0.5, longest_s=30.0)
CLEANUP_EVERY: Final = 500  # cycles


class NotReadyError(RuntimeError):
    """No cycle has seen the cluster yet: ask again in a moment."""


class PredictorSource(Protocol):
    """Gives the predictor in use: a frozen value that is replaced when the history has grown."""

    def predictor(self) -> Predictor: ...


@dataclass(frozen=True, slots=True)
class DecidedPlan:
    """A checked plan, its encoding, and how long it took to make."""

    plan: Plan
    text: EncodedPlan
    decided_s: float


class Service:
    """One acting service. `step` is one cycle; `run` goes on until `stop`."""

    def __init__(
        self,
        *,
        settings: Settings,
        world: LiveWorld,
        store: Store,
        learning: PredictorSource,
        report_of: Callable[[str], Report],
        policy: Policy | PolicyInForce,
        feedback: Feedback | None = None,
        notifications: Notifications | None = None,
        metrics: Metrics | None = None,
        leads: Callable[[], bool] = lambda: True,
    ) -> None:
        self.settings, self.world, self.store = settings, world, store
        self.policies = (
            policy if isinstance(policy, PolicyInForce) else PolicyInForce(settings.policy, policy)
        )
        self.notifier = Notifier()
        self.metrics = metrics or Metrics()
        self.loan_orders = LoanOrders(
            store.save_loan_order, unsaid_gpus=None if world.sees_inference else 0
        )
        self.view_cache = ViewCache.load(store, self.metrics.faults)
        book, faults = GroupBook(store), self.metrics.faults
        self.groups = GroupKeeper(book, world, self.view_cache, faults, self.policies)
        self.deciding = Lock()  # the policy, and what-ifs: one at a time
        self.state: ClusterState | None = None
        self.predictor: Predictor | None = None
        self.leader: Callable[[], str] = str  # its name, where replicas elect one
        self.silence: Callable[[], str] = str  # why nobody can say who leads
        self.on_end: Callable[[Exception], None] = LOG.error
        self.take_left_reports: Callable[[Sequence[Manifest]], None] = lambda _: None
        self.completed = 0  # looks that ended, with or without acting
        self.failure, self._policy_fault, self.failure_streak = "", "", FailureStreak()
        self._rejected: frozenset[str] = frozenset()  # in this cycle
        self.leading = False
        self.stale_reason = ""  # why nothing is decided though the service runs
        self._leads, self._learning = leads, learning
        self.report_of, self.notifications = report_of, notifications
        demand_keeper = DemandKeeper(store, world.demand_history)
        demand_keeper.restore()
        self._journal = Journal(store)
        self._audit_rows = AuditRows(self.metrics.faults)
        views = self.view_cache.views_in_any_order
        self.finishes = QueueFinishes(self.deciding, views, wake=world.wake)
        self._publisher = Publisher(
            world=world,
            store=store,
            view_cache=self.view_cache,
            notifier=self.notifier,
            metrics=self.metrics,
            audit_rows=self._audit_rows,
            report_of=report_of,
            feedback=feedback,
            demand_keeper=demand_keeper,
            deciding=self.deciding,
            finishes=self.finishes,
        )
        self._wake_at, self._stopping = FOREVER, Event()

    @property
    def last_snapshot(self) -> tuple[ClusterState, Predictor]:
        """The last snapshot and its predictor; NotReadyError before the first."""
        if self.state is None or self.predictor is None:
            raise NotReadyError("the service has not looked at the cluster yet")
        return self.state, self.predictor

    def add_answer(self, row: PendingRow) -> None:
        """Let `explain` show an answer that no cycle decided, from the next cycle on."""
        self._audit_rows.add_answer(row)
        self.world.wake()

    def run(self) -> None:
        """Cycle until stopped."""
        failures = 0
        self.finishes.start()
        try:
            while not self._stopping.is_set():
                began = time.monotonic()
                failures = 0 if self.try_cycle() else failures + 1
                self._wait_for_change(began, failures)
        finally:
            self.finishes.close()

    def stop(self) -> None:
        self._stopping.set()
        self.world.wake()

    def try_cycle(self) -> bool:
        """Run one cycle; returns whether it succeeded. Catches whatever the cycle raises."""
        try:
            self.run_cycle()
        except OtherStoreError as error:
            self.on_end(error)
        except StaleServiceError as error:
            self._count_failure("stale", str(error))
            self._resync_journal()
            self._wake_at = CLOCK.now() + BACKOFF.first_s
            return True
        except StoreError as error:
            self._record_failure("store", str(error))
        except PolicyFaultError as error:
            self._record_failure("policy", str(error))
        except JobError as error:
            self.metrics.faults.record_fault("cycle", error.job_id, error)
            self._record_failure("job", str(error), error.job_id)
            self._reject_job(error.job_id, error.problem)
        except Exception as error:
            LOG.exception("a cycle failed; nothing was done")
            self._record_failure("error", error_text(error))
        else:
            self._record_success()
            return True
        return False

    def run_cycle(self) -> None:
        """Observe, decide, journal, act, tell."""
        with self.finishes.paused(), rare_garbage_collection():
            self._run_cycle()

    def _run_cycle(self) -> None:
        began = time.perf_counter()
        leads, plan = False, Plan()
        self.policies.begin_cycle()
        self._policy_fault, self._rejected = "", frozenset()
        try:
            leads = self._ensure_leading()
        finally:  # a replica that does not lead observes all the same
            snapshot, predictor = self._observe_world()
            state = snapshot  # that is decided on
            leads = self._can_decide() and leads
            try:
                if leads:
                    state, plan = self._decide_and_journal(snapshot, predictor)
                    self.world.carry_out(self.groups.with_waits(plan))
                    with self.metrics.isolate_part("comparing the policy"), self.deciding:
                        self.policies.observe(state, predictor)
                        self.metrics.rewards.record(self.policies)
            finally:
                self.state, self.predictor = state, predictor
                jobs = self.world.jobs()
                self.take_left_reports(jobs)
                self._publisher.publish(
                    state, predictor, plan, jobs=jobs,
                    last_snapshot=state_without(snapshot, self._rejected), leading=self.leading, notifications=self.notifications,
                )  # fmt: skip
                if leads:
                    self.finishes.offer(DecidedCycle(state, plan, predictor, self.policies.decide))
                self.completed += 1
                self.notifier.notify("cycle")
        if self.completed == 1:
            gc.freeze()  # what was read first stays for long: collections need not look at it
        self._wake_at = plan.wake_at
        self._drop_old(state)
        self.metrics.cycle.observe(time.perf_counter() - began)

    def _ensure_leading(self) -> bool:
        """Whether this replica acts. Asked before observing: the snapshot must not be older than the answer."""
        before, self.leading = self.leading, False
        leads = self._leads()
        if leads and not before:
            self._journal.resync()
            self._audit_rows.catch_up(self._journal, self.view_cache.latest_uids)
            self.loan_orders.restore(self.store.load_loan_order())
        self.leading = leads
        self.metrics.leading.set(leads)
        return leads

    def _can_decide(self) -> bool:
        """Whether the observed state can be decided on; logs when that changes."""
        before, self.stale_reason = self.stale_reason, self.silence() or self.world.stale_reason
        self.metrics.blind.set(bool(self.stale_reason))
        self.metrics.clock_ahead.set(CLOCK.ahead_s)
        if self.stale_reason and not before:
            LOG.warning("nothing is decided until it is: %s", self.stale_reason)
        elif before and not self.stale_reason:
            LOG.info("decisions go on: the cluster is seen again")
        return not self.stale_reason

    def _observe_world(self) -> tuple[ClusterState, Predictor]:
        self.world.cycle = self._journal.last_cycle + 1
        predictor = self._learning.predictor()
        snapshot = self.loan_orders.apply_to(self.world.observe())
        snapshot = self.groups.apply_to(snapshot, predictor, acts=self.leading)
        budgets = snapshot.budgets or self.settings.budgets
        return replace(snapshot, cycle=self.world.cycle, budgets=budgets), predictor

    def _decide_and_journal(
        self, state: ClusterState, predictor: Predictor
    ) -> tuple[ClusterState, Plan]:
        """A checked and journalled plan, and the state that it was made on.

        Jobs about which no decision can be made are left out of that state and rejected.
        """
        judge = partial(self._decide_and_check, predictor=predictor)
        try:
            return state, self._journal_plan(state, judge(state), predictor)
        except StoreError:
            raise
        except Exception:
            LOG.exception("a decision failed: it is made anew, without the jobs that it fails on")
        around = decide_without_faulty(state, partial(self._decide_if_writable, judge=judge))
        for faulty_job in around.faulty:
            self.metrics.faults.record_fault("decision", faulty_job.job, faulty_job.error)
        self._policy_fault = around.policy_fault
        for faulty_job in around.to_reject:
            self._reject_job(faulty_job.job, faulty_job.problem)
        self._rejected = frozenset(faulty_job.job for faulty_job in around.to_reject)
        return around.state, self._journal_plan(around.state, around.made, predictor)

    def _decide_and_check(self, state: ClusterState, predictor: Predictor) -> DecidedPlan:
        """Decide and encode a plan that fits."""
        began = time.perf_counter()
        gc.disable()  # a collection in the middle of a decision costs more than the decision
        try:
            with self.deciding:
                plan = with_follow_ups(self.policies.decide)(state, predictor)
        finally:
            gc.enable()
        decided_s = time.perf_counter() - began
        return DecidedPlan(plan, encode_plan(plan), decided_s)

    @staticmethod
    def _decide_if_writable(
        state: ClusterState, judge: Callable[[ClusterState], DecidedPlan]
    ) -> DecidedPlan:
        """Decide on a state, after testing that it can be encoded for the journal."""
        encode_record(state)
        return judge(state)

    def _journal_plan(self, state: ClusterState, judged: DecidedPlan, predictor: Predictor) -> Plan:
        """Write the plan to the journal, and return it."""
        plan, text = judged.plan, judged.text
        record_dropped(plan, self.metrics.faults)
        self.metrics.decision.observe(judged.decided_s)
        self._journal.write_cycle(
            state, plan, predictor,
            policy=self.policies.name, decided_s=judged.decided_s, text=text.text,
        )  # fmt: skip
        # A job that is decided on may be newer than what the view cache has seen.
        uids = partial(uids_by_id, self.world.jobs() if plan.decisions else ())
        self._audit_rows.add_plan(JournalledPlan(state, plan, text, uids, self.world.find_undone))
        return plan

    def _reject_job(self, job_id: str, problem: str) -> None:
        """Leave a job out until somebody changes it. If that fails, the next cycle tries again."""
        with self.metrics.faults.isolate("rejection", job_id):
            self.world.reject(job_id, problem)

    def _drop_old(self, state: ClusterState) -> None:
        if state.cycle % CLEANUP_EVERY == 1:
            ended_before = state.now - self.settings.kept_days * DAY_S
            self._journal.drop_old(
                kept_cycles=self.settings.kept_cycles,
                kept_bytes=self.settings.kept_mb * 10**6,
                ended_before=ended_before,
            )
            self.view_cache.drop_old(ended_before=ended_before)
            self.groups.book.load()

    def _record_success(self) -> None:
        """Record that a cycle ended; it counts as failed if the policy fails on many jobs."""
        if self._policy_fault:
            self._record_failure("policy", self._policy_fault)
            return
        self.failure = ""
        self.failure_streak.record_success()
        self.metrics.failed_in_a_row.set(0)

    def _record_failure(self, cause: str, message: str, job: str = "") -> None:
        """Record a failed cycle. Three in a row are reported in the cluster and make the service unready."""
        self._count_failure(cause, message)
        is_told = self.failure_streak.record_failure(message, job)
        self.metrics.failed_in_a_row.set(self.failure_streak.in_a_row)
        if is_told:
            try:
                self.world.warn(self.failure_streak.alarm, job)
            except Exception:
                LOG.exception("that cycles fail cannot be told in the cluster")

    def _count_failure(self, cause: str, message: str) -> None:
        self.metrics.failed_cycles.labels(cause).inc()
        self.failure = message
        LOG.error("cycle %d: %s", self._journal.last_cycle + 1, message)

    def _resync_journal(self) -> None:
        try:
            self._journal.resync()
        except StoreError as error:
            LOG.warning("the journal cannot be read: %s", error)

    def _wait_for_change(self, began: float, failures: int) -> None:
        """Sleep until something happens or `wake_at`; after failures with growing pauses."""
        pause_s = self.settings.least_interval_s - (time.monotonic() - began)
        if failures:
            pause_s = BACKOFF.delay_s(failures)
        if pause_s > 0:
            self._stopping.wait(pause_s)
        if self._stopping.is_set() or failures:
            return
        until_wake_s = max(0.0, self._wake_at - CLOCK.now())
        settings = self.settings
        longest_s = settings.longest_sleep_s if self.store.is_exclusive else settings.shared_sleep_s
        until_end_s = self._publisher.until_overdue_s()
        self.world.wait(min(longest_s, until_wake_s, self._until_news_s(), until_end_s))

    def _until_news_s(self) -> float:
        """Seconds until a promised deadline passes, a job stalls or a group may be complete."""
        if self.state is None:
            return FOREVER
        now = CLOCK.now()
        due = [job.deadline_at - now for job in self.state.jobs if job.promise is not None]
        due += [self._publisher.stalls.due_at - now, self.groups.settles_at - now]
        return min((left for left in due if left > 0), default=FOREVER) + 0.01
