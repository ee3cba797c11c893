"""How long jobs wait in the simulated cluster, beside how long they really waited.

The simulation begins with the jobs that ran and waited in the log. What then differs is what it
does not know: fair share, QOS, partitions, reservations, dependencies, nodes that were down.
"""

import math
from dataclasses import dataclass

import numpy as np

from laxity_lab.batch_queue.batch_cluster import arriving_jobs, open_cluster
from laxity_lab.batch_queue.queue_log import QueueLog
from laxity_profiler.estimate import Floats


@dataclass(frozen=True, slots=True)
class WaitComparison:
    """Waits in seconds of the same jobs, in order of submission."""

    simulated_s: Floats
    real_s: Floats
    nodes: Floats
    limit_s: Floats

    def like(self, nodes: int, limit_s: float) -> "WaitComparison":
        """The jobs of this size and time limit alone."""
        rows = (self.nodes == nodes) & (self.limit_s == limit_s)
        columns = (self.simulated_s, self.real_s, self.nodes, self.limit_s)
        return WaitComparison(*(column[rows] for column in columns))


def compare_waits(
    log: QueueLog, began_at: float, nodes: int, *, until_at: float = math.inf
) -> WaitComparison:
    """Play the log from its real running set on; waits of the jobs submitted in the window."""
    cluster = open_cluster(log, began_at, nodes, start="running")
    rows = arriving_jobs(log, began_at, nodes)
    simulated_s = cluster.play_out()[-len(rows) :] if len(rows) else np.zeros(0)
    columns = log.columns
    inside = columns.submitted_at[rows] <= until_at
    rows = rows[inside]
    return WaitComparison(
        simulated_s=simulated_s[inside],
        real_s=columns.started_at[rows] - columns.submitted_at[rows],
        nodes=columns.nodes[rows].astype(np.float64),
        limit_s=columns.time_limit_s[rows],
    )
