"""The loop: see what is, decide, write it down, act, tell; then sleep until something happens.

It is level-based: all that it must know stands in the cluster, the reports of the workers and the
journal, so a service that is killed at any instant goes on from there. A cycle that fails, for
whatever reason, acts on nothing; it is counted, and the next one starts from what is observed.
"""

import gc
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from threading import Event, Lock
from typing import Final, Protocol

from laxity import names
from laxity_profiler.estimate import Predictor
from laxity_scheduler import turn
from laxity_scheduler.engine import LiveWorld, Manifest, Policy, Report
from laxity_scheduler.memory.codec import written
from laxity_scheduler.memory.journal import Journal
from laxity_scheduler.memory.records import Journalled, Records
from laxity_scheduler.memory.store import StaleServiceError, Store, StoreError
from laxity_scheduler.memory.tables import JobRow, Owed
from laxity_scheduler.plan import Plan, PlanError
from laxity_scheduler.service import outlook
from laxity_scheduler.service.board import Board, Look, News
from laxity_scheduler.service.lessons import Lessons
from laxity_scheduler.service.metrics import Metrics
from laxity_scheduler.service.notify import Bells
from laxity_scheduler.service.offers import PROBE_OF
from laxity_scheduler.service.settings import DAY_S, Settings
from laxity_scheduler.service.views import Finish, Json, Said
from laxity_scheduler.state import FOREVER, ClusterState, Job

LOG: Final = logging.getLogger(__name__)
REFRESH_S: Final = 5.0  # figures that flow with time are made anew this often
FIRST_PAUSE_S: Final = 0.5
LONGEST_PAUSE_S: Final = 30.0
FORGET_EVERY: Final = 500  # cycles
COLLECT_AFTER: Final = 200_000  # objects made and not let go, while a cycle runs


@contextmanager
def rarely_collected() -> Iterator[None]:
    """A cycle over thousands of jobs makes much that stays and few circles: look for those seldom.

    Seldom, not never: what an API server that hangs leaves waiting must not grow without bound.
    """
    before = gc.get_threshold()
    gc.set_threshold(max(COLLECT_AFTER, before[0]), *before[1:])
    try:
        yield
    finally:
        if before[0] < COLLECT_AFTER:  # else another service of this process set it, and ends it
            gc.set_threshold(*before)


class NotReadyError(RuntimeError):
    """No cycle has seen the cluster yet: ask again in a moment."""


class Learning(Protocol):
    """Gives the predictor in use: a frozen value that is replaced when something was learned."""

    def predictor(self) -> Predictor: ...


class Telling(Protocol):
    """Is told what a cycle changed; returns at once."""

    def tell(self, news: Sequence[News], state: ClusterState, predictor: Predictor) -> None: ...

    def trained(self, uid: str, lines: Sequence[object]) -> None: ...


class Service:
    """One acting service. `step` is one cycle; `run` goes on until `stop`."""

    def __init__(
        self,
        *,
        settings: Settings,
        world: LiveWorld,
        store: Store,
        learning: Learning,
        report_of: Callable[[str], Report],
        policy: Policy,
        lessons: Lessons | None = None,
        telling: Telling | None = None,
        leads: Callable[[], bool] = lambda: True,
    ) -> None:
        self.settings = settings
        self.world = world
        self.store = store
        self.policy = policy
        self.bells = Bells()
        self.metrics = Metrics()
        self.board = Board(store.jobs())
        self.deciding = Lock()  # the policy, and what-ifs: one at a time
        self.state: ClusterState | None = None
        self.predictor: Predictor | None = None
        self.leading = False
        self.leader: Callable[[], str] = str  # its name, where replicas elect one
        self.completed = 0  # looks that ended, with or without acting
        self.failure = ""
        self.blind = ""  # why nothing is decided though the service runs
        self._leads = leads
        self._learning = learning
        self.report_of = report_of
        self.telling = telling
        self._lessons = lessons
        self._asked_again: set[str] = set()
        self._journal = Journal(store)
        self._records = Records()
        self._said: dict[str, Said] = {}
        self._wake_at = FOREVER
        self._refreshed_at = -FOREVER
        self._generations: dict[str, int] = {}
        self._rows: dict[str, Job] = {}
        self._ends: dict[str, Finish] = {}
        self._stopping = Event()

    @property
    def seen(self) -> tuple[ClusterState, Predictor]:
        """The last snapshot and its predictor; NotReadyError before the first."""
        if self.state is None or self.predictor is None:
            raise NotReadyError("the service has not looked at the cluster yet")
        return self.state, self.predictor

    def run(self) -> None:
        """Cycle until stopped."""
        failures = 0
        while not self._stopping.is_set():
            began = time.monotonic()
            failures = 0 if self.attempt() else failures + 1
            self._sleep(began, failures)

    def stop(self) -> None:
        self._stopping.set()
        self.world.wake()

    def attempt(self) -> bool:
        """One cycle; whether it went well. Nothing that it raises gets out."""
        try:
            self.step()
        except PlanError as error:
            self._failed("plan", f"a plan did not fit and was not carried out: {error}")
        except StaleServiceError as error:
            self._failed("stale", str(error))
            self._resync()
            self._wake_at = time.time() + FIRST_PAUSE_S
            return True
        except StoreError as error:
            self._failed("store", str(error))
        except Exception as error:
            LOG.exception("a cycle failed; nothing was done")
            self._failed("error", f"{type(error).__name__}: {error}")
        else:
            self.failure = ""
            return True
        return False

    def step(self) -> None:
        """Observe, decide, journal, act, tell."""
        with rarely_collected():
            self._step()

    def _step(self) -> None:
        began = time.perf_counter()
        leads, plan = False, Plan()
        try:
            leads = self._lead()
        finally:  # who does not lead, or does not know, looks all the same
            state, predictor = self._look()
            leads = self._sees() and leads
            try:
                if leads:
                    plan = self._decided(state, predictor)
                    self.world.carry_out(plan)
            finally:
                self._take_in(state, predictor, plan)
                self.completed += 1
                self.bells.ring("cycle")
        if self.completed == 1:
            gc.freeze()  # what was read first stays for long: collections need not look at it
        self._wake_at = plan.wake_at
        self._tidy(state)
        self.metrics.cycle.observe(time.perf_counter() - began)

    def _lead(self) -> bool:
        """Whether we act. Asked before looking: what is decided on must not be older than that."""
        before, self.leading = self.leading, False
        leads = self._leads()
        if leads and not before:
            self._journal.resync()
            self._records.catch_up(self._journal, self.board.uids)
        self.leading = leads
        self.metrics.leading.set(leads)
        return leads

    def _sees(self) -> bool:
        """Whether what was seen can be decided on; told when it no longer can, and when it can."""
        before, self.blind = self.blind, self.world.blind
        self.metrics.blind.set(bool(self.blind))
        if self.blind and not before:
            LOG.warning("nothing is decided until it is: %s", self.blind)
        elif before and not self.blind:
            LOG.info("decisions go on: the cluster is seen again")
        return not self.blind

    def _look(self) -> tuple[ClusterState, Predictor]:
        self.world.cycle = self._journal.last_cycle + 1
        predictor = self._learning.predictor()
        seen = self.world.observe()
        budgets = seen.budgets or self.settings.budgets
        return replace(seen, cycle=self.world.cycle, budgets=budgets), predictor

    def _decided(self, state: ClusterState, predictor: Predictor) -> Plan:
        """A checked plan that is in the journal."""
        self.world.expect_answers(sum(job.asked for job in state.jobs))
        began = time.perf_counter()
        gc.disable()  # a collection in the middle of a decision costs more than the decision
        try:
            with self.deciding:
                plan = turn.decide(state, predictor, self.policy)
                plan.check(state)
        finally:
            gc.enable()
        decided_s = time.perf_counter() - began
        self.metrics.decision.observe(decided_s)
        text = written(plan)
        self.world.expect(plan)  # connections open while the journal waits for its disk
        self._journal.write(
            state, plan, predictor,
            policy=self.settings.policy, decided_s=decided_s, text=text.text,
        )  # fmt: skip
        # A job that is decided on may be newer than what the board has seen.
        uids = partial(_uids, self.world.jobs() if plan.decisions else ())
        self._records.owe(Journalled(state, plan, text, uids))
        return plan

    def _take_in(self, state: ClusterState, predictor: Predictor, plan: Plan) -> None:
        """What was seen becomes views; who waits for news is rung."""
        first = self.state is None
        self.state, self.predictor = state, predictor
        began = time.monotonic()
        self._said = {job: said for job, said in self._said.items() if job in state.by_id}
        self._said |= outlook.said(plan)
        look = Look(
            manifests=self.world.jobs(),
            state=state,
            finishes=self._finishes(state, predictor),
            said=self._said,
            began=began,
        )
        news = self.board.update(look, self.report_of)
        self._explain()  # who is rung may ask why
        self._ring(news)
        if self._lessons is not None and self.leading:
            self._lessons.look(state, predictor, self.board.uids())
            self._lessons.ended(news)
        elif self._lessons is not None:
            self._lessons.stand_by(state)
        self._after_probes([n.after for n in news] if not first else self.board.all())
        self.metrics.count(() if first else news)
        self.metrics.look(state, self.board.unordered())
        self.metrics.sent(getattr(self.world, "sent", {}))
        self._save()
        if self.telling is not None and self.leading:
            self.telling.tell(news, state, predictor)

    def _finishes(self, state: ClusterState, predictor: Predictor) -> dict[str, Finish]:
        """Of all running jobs; made anew now and then, and in between where a row has changed."""
        refresh = self._refreshed_at + REFRESH_S <= state.now
        old = {} if refresh else self._rows
        jobs = [job for job in state.running if old.get(job.id) is not job]
        with self.deciding:
            anew = outlook.finishes(state, predictor, jobs)
        self._ends = {job.id: anew.get(job.id) or self._ends[job.id] for job in state.running}
        self._rows = {job.id: job for job in state.running}
        if refresh:
            self._refreshed_at = state.now
        return self._ends

    def _after_probes(self, views: Iterable[Json]) -> None:
        """A job whose model was unknown is asked for again when its probe has finished."""
        if not self.leading:
            return
        for probe in views:
            uid = probe["idempotency_key"].removeprefix(PROBE_OF)
            if uid == probe["idempotency_key"] or probe["state"] != "finished":
                continue
            asker = self.board.by_uid(uid)
            known = (
                asker is None or asker["state"] != "refused" or probe["uid"] in self._asked_again
            )
            if asker is not None and not known:
                self._asked_again.add(probe["uid"])
                self.world.annotate(asker["id"], {names.VERDICT: None})
                self.world.wake()

    def _ring(self, news: Sequence[News]) -> None:
        for change in news:
            self.bells.ring(f"job:{change.after['id']}")
        self.ring_signals()

    def ring_signals(self) -> None:
        """Ring the workers whose signal is another one than when they were rung last."""
        heard = self.bells.heard("signal:")
        for name in heard:
            try:
                generation = self.world.signal(name.removeprefix("signal:")).generation
            except KeyError:
                generation = -1
            if self._generations.get(name) != generation:
                self._generations[name] = generation
                self.bells.ring(name)
        self._generations = {name: self._generations[name] for name in heard}

    def _explain(self) -> None:
        """What was said to whom, for people who ask why."""
        rows = self._records.owed()
        if rows and self._stored(rows, ()):
            self._records.paid()

    def _save(self) -> None:
        """Views into the store."""
        rows = self.board.unsaved()
        if rows and self._stored((), rows):
            self.board.saved(rows)

    def _stored(self, said: Sequence[Owed], views: Sequence[JobRow]) -> bool:
        """Whether the store has it now; what could not be written is written next time."""
        try:
            self.store.record(said, views)
        except StaleServiceError:
            return True  # who leads now has written it
        except StoreError as error:
            LOG.warning("not written to the store yet, it will be: %s", error)
            return False
        return True

    def _tidy(self, state: ClusterState) -> None:
        if state.cycle % FORGET_EVERY == 1:
            ended_before = state.now - self.settings.kept_days * DAY_S
            self._journal.forget(kept_cycles=self.settings.kept_cycles, ended_before=ended_before)
            self.board.forget(ended_before=ended_before)

    def _failed(self, cause: str, message: str) -> None:
        self.metrics.failed_cycles.labels(cause).inc()
        self.failure = message
        LOG.error("cycle %d: %s", self._journal.last_cycle + 1, message)

    def _resync(self) -> None:
        try:
            self._journal.resync()
        except StoreError as error:
            LOG.warning("the journal cannot be read: %s", error)

    def _sleep(self, began: float, failures: int) -> None:
        """Until something happens or `wake_at`; never again at once, longer after failures."""
        pause_s = self.settings.least_interval_s - (time.monotonic() - began)
        if failures:
            pause_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(failures - 1, 10))
        if pause_s > 0:
            self._stopping.wait(pause_s)
        if self._stopping.is_set() or failures:
            return
        until_wake_s = max(0.0, self._wake_at - time.time())
        given = self.settings
        longest_s = given.longest_sleep_s if self.store.alone else given.shared_sleep_s
        self.world.wait(min(longest_s, until_wake_s, self._until_deadline_s()))

    def _until_deadline_s(self) -> float:
        """Until the next promise is broken, if nothing else happens: that is told at once."""
        if self.state is None:
            return FOREVER
        now = time.time()
        due = [job.deadline_at - now for job in self.state.jobs if job.promise is not None]
        return min((left for left in due if left > 0), default=FOREVER) + 0.01


def _uids(jobs: Iterable[Manifest]) -> dict[str, str]:
    """By job id, of the jobs that the world showed."""
    seen = (manifest["metadata"] for manifest in jobs)
    return {f"{one.get('namespace', 'default')}/{one['name']}": one["uid"] for one in seen}
