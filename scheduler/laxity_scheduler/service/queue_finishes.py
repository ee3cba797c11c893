"""The finishes that jobs are told: the policy in force runs the present queue down, in a thread beside the loop.

A verdict never waits for it: the thread pauses while a cycle runs, and decides under the lock of the
policy as what-ifs do. Until a job's first rollout has ended, its finish is the verdict's, said as being
worked out. Afterwards another finish is told only when it has moved much. What later arrivals usually do
comes from the jobs that ended last (`simulated.overtaking`).
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from threading import Event, Lock, Thread
from typing import Final

from laxity_profiler.estimate import Predictor
from laxity_scheduler.engine import DecidedCycle
from laxity_scheduler.inflight import with_follow_ups
from laxity_scheduler.job_faults import error_text
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.plan import Plan, Policy
from laxity_scheduler.service.views.view_fields import Json
from laxity_scheduler.simulated.overtaking import EndedFinish, Overtaking
from laxity_scheduler.simulated.rollout import roll_out
from laxity_scheduler.simulated.told_finish import ToldFinish, kind_of, told_finishes

LOG: Final = logging.getLogger(__name__)
MOVED: Final = 0.1  # of the time that was left: a smaller move is not told
PAUSE_TIMES: Final = (
    10.0  # as long as a rollout took, none is begun unless somebody new waits for it
)
REST_S: Final = 5.0  # between rollouts, at least


class QueueFinishes:
    """`told` is replaced as a whole by the thread; the loop reads it.

    It is None where no thread runs: the finishes of verdicts are told then.
    """

    def __init__(
        self, deciding: Lock, views: Callable[[], Iterable[Json]], *, wake: Callable[[], None]
    ) -> None:
        """`views` of all jobs, ended ones too; `wake` is called when there is news."""
        self.told: Mapping[str, ToldFinish] | None = None
        self._deciding, self._views, self._wake = deciding, views, wake
        self._calm, self._offered, self._closed = Event(), Event(), Event()
        self._calm.set()
        self._latest: DecidedCycle | None = None
        self._thread: Thread | None = None
        self._problem = ""  # of the last rollout that failed: it is logged once

    def start(self) -> None:
        self.told = {}
        self._thread = Thread(target=self._run, name="queue finishes", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Let the thread end; a rollout in between ends at its next decision."""
        self._closed.set()
        self._calm.set()
        self._offered.set()
        if self._thread is not None:
            self._thread.join()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """No rollout goes on meanwhile, but for the decision that it is in."""
        self._calm.clear()
        try:
            yield
        finally:
            self._calm.set()

    def offer(self, cycle: DecidedCycle) -> None:
        """A cycle has ended."""
        self._latest = cycle
        self._offered.set()

    def work_out(self, cycle: DecidedCycle) -> bool:
        """Run its queue down; whether there is anything to tell."""
        state, before = cycle.state, self.told or {}
        ends = self._run_down(cycle)
        news = told_finishes(state, cycle.plan, ends, Overtaking(_lessons(self._views())))
        told = {
            name: old if (old := before.get(name)) and not _has_moved(old, new) else new
            for name, new in news.items()
        }
        self.told = told
        return any(before.get(name) is not finish for name, finish in told.items())

    def _is_asked(self, cycle: DecidedCycle) -> bool:
        """Whether a job of it waits, or has not been told a finish."""
        told = self.told or {}
        return any(not job.workers or job.id not in told for job in cycle.state.jobs)

    def _run_down(self, cycle: DecidedCycle) -> dict[str, float]:
        """Ends by a rollout; none of a policy that fails in it: verdicts' own finishes are told then."""
        policy = self._guarded(with_follow_ups(cycle.decide))
        try:
            return roll_out(
                cycle.state, cycle.plan, policy, cycle.predictor, pause=self._wait_for_calm
            )
        except _ClosedError:
            raise
        except Exception as error:
            if (problem := error_text(error)) != self._problem:
                LOG.exception(
                    "the queue cannot be run down; jobs are told their verdicts' finishes"
                )
            self._problem = problem
            return {}

    def _run(self) -> None:
        while not self._closed.is_set():
            self._offered.wait()
            self._offered.clear()
            cycle = self._latest
            if cycle is None or self._closed.is_set() or not self._is_asked(cycle):
                continue
            began = time.monotonic()
            try:
                if self.work_out(cycle):
                    self._wake()
            except _ClosedError:
                return
            except Exception:
                LOG.exception(
                    "the finishes of waiting jobs were not worked out; the next cycle's are"
                )
            self._rest(cycle, PAUSE_TIMES * (time.monotonic() - began))

    def _rest(self, cycle: DecidedCycle, seconds: float) -> None:
        """Until then, or until a job comes that has not been told a finish."""
        known, until = set(cycle.state.by_id), time.monotonic() + max(REST_S, seconds)
        while not self._closed.is_set() and (left_s := until - time.monotonic()) > 0.0:
            latest = self._latest
            if latest is not None and not known.issuperset(latest.state.by_id):
                break
            if self._offered.wait(left_s):
                self._offered.clear()
        self._offered.set()

    def _guarded(self, policy: Policy) -> Policy:
        def decide(state: ClusterState, predictor: Predictor) -> Plan:
            with self._deciding:
                return policy(state, predictor)

        return decide

    def _wait_for_calm(self) -> None:
        self._calm.wait()
        if self._closed.is_set():
            raise _ClosedError


class _ClosedError(Exception):
    """The service ends."""


def _has_moved(old: ToldFinish, new: ToldFinish) -> bool:
    """Whether it is worth telling: by a tenth of the time that was left, or from never to an instant."""
    pairs = ((old.p50_at, new.p50_at), (old.p90_at, new.p90_at))
    return any(a != b and not abs(a - b) < MOVED * (max(a, b) - new.at) for a, b in pairs)


def _lessons(views: Iterable[Json]) -> Iterator[EndedFinish]:
    """What finished jobs teach, in order of their ends."""
    rows = [v for v in views if v["state"] == "finished" and v.get("queue_s") is not None]
    for view in sorted(rows, key=lambda view: float(view["finished_at"])):
        if not view.get("finished_early"):
            took_s = view["finished_at"] - view["queue_at"]
            kind, told_p90_at = kind_of(view["verdict"], view["class"]), view["first_p90_at"]
            kept = told_p90_at is None or view["finished_at"] <= told_p90_at
            yield EndedFinish(kind, view["queue_s"], took_s, kept=kept)
