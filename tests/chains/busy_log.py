"""A queue log with a queue: jobs of one node, hour after hour, on a cluster of eight."""

import numpy as np

from laxity_lab.batch_queue.queue_log import BatchJob, QueueLog

HOUR_S, DAY_S = 3_600.0, 86_400.0


def busy_log(days: int = 8, every_h: float = 1.0, run_h: float = 9.0) -> QueueLog:
    submits = np.arange(0, 24 * days, every_h) * HOUR_S
    jobs = [
        BatchJob(str(number), float(at), float(at), float(at) + run_h * HOUR_S, DAY_S, 1)
        for number, at in enumerate(submits)
    ]
    return QueueLog("busy", tuple(jobs))


def as_swf(log: QueueLog, nodes: int) -> str:
    """The log as a file that states the cluster's size."""
    rows = [
        f"{job.id} {job.submitted_at:.0f} {job.started_at - job.submitted_at:.0f} "
        f"{job.ended_at - job.started_at:.0f} {job.nodes} -1 -1 {job.nodes} {job.time_limit_s:.0f}"
        " -1 1 1 1 1 1 1 -1 -1\n"
        for job in log.jobs
    ]
    return f"; MaxNodes: {nodes}\n; MaxProcs: {nodes}\n" + "".join(rows)
