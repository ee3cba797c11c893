"""A pair of jobs in somebody else's queue, and when the successor starts if submitted then.

The predecessor is submitted after a warm-up and runs to its time limit. All probes of one start
share the simulation up to where they submit the successor; each goes on from there on its own.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from laxity_lab.batch_queue.batch_cluster import BatchCluster, open_cluster
from laxity_lab.batch_queue.queue_log import QueueLog
from laxity_profiler.estimate import Floats
from laxity_scheduler.chains.choices import Start
from laxity_scheduler.chains.features import DECIDE_EVERY_S, WINDOW, Singles, Windows
from laxity_scheduler.chains.queue_plan import TICK_S
from laxity_scheduler.chains.snapshot_loop import COLUMNS
from laxity_scheduler.frame.arrays import Ints
from laxity_scheduler.model.job import DAY_S, HOUR_S

HISTORY_S: Final = DAY_S  # watched before the predecessor's submission


@dataclass(frozen=True, slots=True)
class PairSettings:
    """The pair, and the cluster it meets. `arrivals_s`: jobs submitted later are not played."""

    cluster_nodes: int
    nodes: int = 1
    limit_s: float = 2 * DAY_S
    warm_up_s: float = 2 * DAY_S
    start: Start = "empty"
    arrivals_s: float = math.inf


@dataclass(frozen=True, slots=True)
class Probe:
    """A successor's submission and its start, POSIX seconds; hours after its predecessor's end."""

    submitted_at: float
    started_at: float
    difference_h: float


class Pair:
    """A predecessor that has started, and probes of its successor.

    ValueError when the pair is larger than the cluster.
    """

    def __init__(self, log: QueueLog, began_at: float, settings: PairSettings) -> None:
        self.began_at, self.settings = began_at, settings
        until_at = began_at + settings.arrivals_s
        cluster = open_cluster(
            log, began_at, settings.cluster_nodes, start=settings.start, until_at=until_at
        )
        cluster.run_until(began_at + max(0.0, settings.warm_up_s - HISTORY_S))
        self._before = cluster.fork()
        cluster.run_until(began_at + settings.warm_up_s)
        self.submitted_at = cluster.now_at
        self._cluster = cluster.fork()  # at the predecessor's submission
        self._row = self._submit(self._cluster)
        self.started_at = self._cluster.fork().run_until_started(self._row)
        self.ended_at = self.started_at + settings.limit_s

    def even_instants(self, count: int) -> list[float]:
        """So many instants from a minute after the submission to a minute before the end."""
        instants = np.linspace(self.submitted_at + TICK_S, self.ended_at - TICK_S, count)
        return [float(instant) for instant in instants]

    def without_successor(self) -> BatchCluster:
        """The cluster at the predecessor's end, nothing submitted."""
        cluster = self._cluster.fork()
        cluster.run_until(self.ended_at)
        return cluster

    def plan_starts(self, every_s: float) -> Iterator[tuple[float, float]]:
        """Instants of the predecessor's run, and when the plan of then would start a successor."""
        cluster = self._cluster.fork()
        for decided_at in np.arange(self.started_at, self.ended_at, every_s):
            cluster.run_until(float(decided_at))
            yield (
                cluster.now_at,
                cluster.plan_start_at(self.settings.nodes, self.settings.limit_s),
            )

    def looks(self, every_s: float) -> Iterator[tuple[float, Floats]]:
        """Snapshots from a day before the submission (or the start) to the predecessor's end."""
        back = math.floor((self.submitted_at - self._before.now_at) / every_s)
        first_at = self.submitted_at - back * every_s
        nodes, limit_s = self.settings.nodes, self.settings.limit_s
        before, during = self._before.fork(), self._cluster.fork()
        for taken_at in np.arange(first_at, self.ended_at, every_s):
            cluster = before if taken_at < self.submitted_at else during
            cluster.run_until(float(taken_at))
            yield float(taken_at), cluster.snapshot(nodes, limit_s)

    def probe(self, instants: Iterable[float]) -> list[Probe]:
        """A probe for each instant, in their order."""
        probes: dict[float, Probe] = {}
        shared = self._cluster.fork()
        wanted = list(instants)
        for instant in sorted(set(wanted)):
            shared.run_until(instant)
            probes[instant] = self._probe_from(shared.fork())
        return [probes[instant] for instant in wanted]

    def _probe_from(self, cluster: BatchCluster) -> Probe:
        submitted_at = cluster.now_at
        started_at = cluster.run_until_started(self._submit(cluster))
        return Probe(submitted_at, started_at, (started_at - self.ended_at) / HOUR_S)

    def _submit(self, cluster: BatchCluster) -> int:
        settings = self.settings
        return cluster.submit(settings.nodes, settings.limit_s, settings.limit_s)


@dataclass(frozen=True, slots=True)
class QueueHistory:
    """Snapshots of one start up to its predecessor's end, none of the successor's doing.

    All windows are views of the same rows.
    """

    pair: Pair
    taken_at: Floats
    snapshots: Singles

    def row_at(self, instant: float) -> int:
        """The last snapshot up to an instant."""
        return int(np.searchsorted(self.taken_at, instant, side="right")) - 1

    def windows(self, rows: Ints) -> Windows:
        """What is known at these snapshots. ValueError if one has less than a day before it."""
        if rows.min(initial=WINDOW) < WINDOW - 1:
            raise ValueError(f"snapshot {rows.min()} has no {WINDOW} rows up to it")
        queue = sliding_window_view(self.snapshots, WINDOW, axis=0)[rows - WINDOW + 1]
        pair, taken_at = self.pair, self.taken_at[rows]
        elapsed_h = np.maximum(0.0, taken_at - pair.started_at) / HOUR_S
        wait_h = (np.minimum(taken_at, pair.started_at) - pair.submitted_at) / HOUR_S
        left_h = pair.settings.limit_s / HOUR_S - elapsed_h
        return Windows(queue.swapaxes(1, 2), wait_h, elapsed_h, left_h)


def watch_queue(pair: Pair) -> QueueHistory:
    """Take the snapshots of a start, from a day before the predecessor's submission on."""
    looks = list(pair.looks(DECIDE_EVERY_S))
    taken_at = np.array([taken for taken, _ in looks], dtype=np.float64)
    snapshots = np.array([snapshot for _, snapshot in looks], dtype=np.float32)
    return QueueHistory(pair, taken_at, snapshots.reshape(-1, COLUMNS))
