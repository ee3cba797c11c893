"""A shadow policy decides about the snapshots that were decided on; nothing of it is carried out.

It works in a thread of its own, on frozen snapshots: one that raises or hangs harms no decision. A
snapshot that comes while it is at work is skipped, and after each it rests for four times as long as
it worked, so that it takes a fifth of one core at most. What it would have done stands in the store,
beside the journal, and goes with the journal's cycles.
"""

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import orjson

from laxity_profiler.estimate import Predictor
from laxity_scheduler.engine import Policy
from laxity_scheduler.inflight import with_follow_ups
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.plan import Plan
from laxity_scheduler.service.settled_widths import HOUR_S, reward_rate, settle_widths
from laxity_scheduler.service.view_fields import Json
from laxity_scheduler.store.store import Store
from laxity_scheduler.store.tables import ShadowRow, storable_text

LOG: Final = logging.getLogger(__name__)
REST: Final = 4.0  # times as long as it worked
CLOSE_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class DecidedCycle:
    """What the loop decided: the snapshot, the plan, and by whom."""

    state: ClusterState
    plan: Plan
    predictor: Predictor
    decide: Policy


@dataclass(frozen=True, slots=True)
class ShadowComparison:
    """Widths by job that the shadow and the policy in force are heading for, and what these train.

    Rates are shares of whole trainings an hour, predicted.
    """

    cycle: int
    widths: Mapping[str, int]
    decided: Mapping[str, int]
    rate: float
    decided_rate: float

    @property
    def differing(self) -> dict[str, tuple[int, int]]:
        """By job: workers in force, workers of the shadow."""
        both = {job: (self.decided[job], self.widths.get(job, 0)) for job in self.decided}
        return {job: pair for job, pair in both.items() if pair[0] != pair[1]}


@dataclass(slots=True)
class ShadowTotals:
    """What came of a policy's widths: shares of whole trainings, predicted, from cycle to cycle."""

    cycles: int = 0
    differing: int = 0
    skipped: int = 0
    failed: int = 0
    trained: float = 0.0
    decided_trained: float = 0.0
    last: ShadowComparison | None = None
    _last_at: float = 0.0

    def add(self, now: float, compared: ShadowComparison) -> None:
        """Count a cycle; the widths of the last one were trained on until now."""
        if self.last is not None and now > self._last_at:
            hours = (now - self._last_at) / HOUR_S
            self.trained += hours * self.last.rate
            self.decided_trained += hours * self.last.decided_rate
        self.cycles += 1
        self.differing += bool(compared.differing)
        self.last, self._last_at = compared, now

    @property
    def gain(self) -> float:
        """How much more the shadow would have trained, as a share; 0 before anything is known."""
        return self.trained / self.decided_trained - 1.0 if self.decided_trained > 0.0 else 0.0


@dataclass(slots=True)
class Shadow:
    """`show` hands it a decided cycle and returns at once; `start` makes its thread."""

    name: str
    decide: Policy
    store: Store
    totals: ShadowTotals = field(default_factory=ShadowTotals)
    failure: str = ""
    _memory: dict[str, Any] = field(default_factory=dict)
    _box: list[DecidedCycle] = field(default_factory=list)
    _busy: bool = False
    _wake: threading.Condition = field(default_factory=threading.Condition)
    _stopping: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        threading.Thread(target=self._run_loop, name="laxity-shadow", daemon=True).start()

    def show(self, cycle: DecidedCycle) -> None:
        """Hand over a cycle, unless the shadow is still at work on another."""
        with self._wake:
            if self._busy or self._box:
                self.totals.skipped += 1
                return
            self._box.append(cycle)
            self._wake.notify_all()

    def replace_policy(self, name: str, decide: Policy) -> None:
        """Go on with another policy; what was counted is of the one before, and begins anew."""
        LOG.info("%s decides in shadow from now on, in place of %s", name, self.name)
        self.name, self.decide, self.totals = name, decide, ShadowTotals()

    def close(self) -> None:
        """Take no more cycles. A decision that hangs is left to itself."""
        self._stopping.set()
        with self._wake:
            self._wake.notify_all()

    def compare(self, cycle: DecidedCycle) -> None:
        """Decide about one cycle and write it down; an error is logged and counted."""
        began = time.perf_counter()
        try:
            compared = compare_widths(self.decide, cycle, self._memory)
            self.totals.add(cycle.state.now, compared)
            self.store.write_rows([self._row(cycle.state.now, compared, began)])
            self.failure = ""
        except Exception as error:
            self.totals.failed += 1
            if not self.failure:
                LOG.exception("shadow %s fails; decisions go on without it", self.name)
            self.failure = f"{type(error).__name__}: {error}"

    def view(self) -> Json:
        """For people and programs."""
        totals = self.totals
        return {
            "policy": self.name,
            "cycles": totals.cycles,
            "differing": totals.differing,
            "skipped": totals.skipped,
            "failed": totals.failed,
            "failure": self.failure,
            "trained": totals.trained,
            "decided_trained": totals.decided_trained,
            "gain": totals.gain,
        }

    def view_of_job(self, job_id: str) -> Json | None:
        """What it would last have given a job; None if it has not decided about it."""
        last = self.totals.last
        if last is None or job_id not in last.decided:
            return None
        widths = {"workers": last.widths.get(job_id, 0), "decided": last.decided[job_id]}
        return {"policy": self.name, "cycle": last.cycle, **widths}

    def _row(self, now: float, compared: ShadowComparison, began: float) -> ShadowRow:
        body = {
            "widths": {job: width for job, width in compared.widths.items() if width},
            "differing": compared.differing,
            "rate": compared.rate,
            "decided_rate": compared.decided_rate,
        }
        return ShadowRow(
            cycle=compared.cycle,
            policy=storable_text(self.name),
            at=now,
            decided_s=time.perf_counter() - began,
            body=orjson.dumps(body),
        )

    def _run_loop(self) -> None:
        while not self._stopping.is_set():
            with self._wake:
                self._busy = False
                self._wake.wait_for(lambda: bool(self._box) or self._stopping.is_set())
                if self._stopping.is_set():
                    return
                cycle, self._busy = self._box.pop(), True
            began = time.perf_counter()
            self.compare(cycle)
            self._stopping.wait(REST * (time.perf_counter() - began))


def compare_widths(decide: Policy, cycle: DecidedCycle, memory: dict[str, Any]) -> ShadowComparison:
    """Both policies on one snapshot; `memory` is kept from one snapshot to the next."""
    state, predictor = replace(cycle.state, memory=memory), cycle.predictor
    decided = settle_widths(state, with_follow_ups(cycle.decide), predictor, cycle.plan)
    widths = settle_widths(state, with_follow_ups(decide), predictor)
    return ShadowComparison(
        cycle=state.cycle,
        widths=widths,
        decided=decided,
        rate=reward_rate(state, widths, predictor),
        decided_rate=reward_rate(state, decided, predictor),
    )
