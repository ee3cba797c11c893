"""A shadow policy decides about the snapshots that were decided on; nothing of it is carried out.

It works in a thread of its own, on frozen snapshots: one that raises or hangs harms no decision. A
snapshot that comes while it is at work is skipped, and after each it rests for four times as long as
it worked, so that it takes a fifth of one core at most. What it would have done stands in the store,
beside the journal, and goes with the journal's cycles.
"""

import logging
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from laxity_scheduler.engine import Policy
from laxity_scheduler.job_faults import error_text
from laxity_scheduler.service.view_fields import Json
from laxity_scheduler.store.store import Store
from laxity_scheduler.store.tables import ShadowRow, storable_text
from laxity_scheduler.width_comparison import (
    DecidedCycle,
    ShadowComparison,
    ShadowTotals,
    compare_widths,
)

LOG: Final = logging.getLogger(__name__)
REST: Final = 4.0  # times as long as it worked


@dataclass(slots=True)
class Shadow:
    """`show` hands it a decided cycle and returns at once; `start` makes its thread.

    Without `decide` it shadows nothing yet, and `failure` says why.
    """

    name: str
    decide: Policy | None
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
        if self.decide is None:
            return
        with self._wake:
            if self._busy or self._box:
                self.totals.skipped += 1
                return
            self._box.append(cycle)
            self._wake.notify_all()

    def replace_policy(self, name: str, decide: Policy) -> None:
        """Go on with another policy; what was counted is of the one before, and begins anew."""
        LOG.info("%s decides in shadow from now on, in place of %s", name, self.name)
        self.name, self.decide, self.totals, self.failure = name, decide, ShadowTotals(), ""

    def close(self) -> None:
        """Take no more cycles. A decision that hangs is left to itself."""
        self._stopping.set()
        with self._wake:
            self._wake.notify_all()

    def compare(self, cycle: DecidedCycle) -> None:
        """Decide about one cycle and write it down; an error is logged and counted."""
        if self.decide is None:
            return
        began = time.perf_counter()
        try:
            compared = compare_widths(self.decide, cycle, self._memory)
            self.totals.add(cycle.state.now, compared)
            self.store.write_rows([self._row(cycle.state.now, compared, began)])
            self.failure = ""
        except Exception as error:
            is_first, self.failure = not self.failure, error_text(error)
            self.totals.failed += 1  # whoever sees the count finds the reason
            if is_first:
                LOG.exception("shadow %s fails; decisions go on without it", self.name)

    def view(self) -> Json:
        """For people and programs."""
        totals = self.totals
        return {
            "policy": self.name,
            "decides": self.decide is not None,
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
