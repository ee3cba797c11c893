"""The jobs of a batch cluster as its log tells them, in order of submission."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from laxity_lab.traces.traces import BadLine
from laxity_profiler.estimate import Floats
from laxity_scheduler.frame.arrays import Ints


@dataclass(frozen=True, slots=True)
class BatchJob:
    """One job that ran. Instants are POSIX seconds; it held whole nodes from start to end."""

    id: str
    submitted_at: float
    started_at: float
    ended_at: float
    time_limit_s: float
    nodes: int


class LogColumns(NamedTuple):
    """The jobs of a log as arrays of one length, in order of submission."""

    submitted_at: Floats
    started_at: Floats
    ended_at: Floats
    time_limit_s: Floats
    nodes: Ints


@dataclass(frozen=True)
class QueueLog:
    """Jobs in order of submission, and the lines that could not be used.

    `stated_nodes` is the size of the cluster by the file's header, 0 without one. Of
    `assumed_limits` jobs the file names no time limit: their run time counts as one. With
    `assumed_zone` it tells times of day without a zone, which count as UTC.
    """

    name: str
    jobs: tuple[BatchJob, ...]
    bad_lines: tuple[BadLine, ...] = field(default=())
    stated_nodes: int = 0
    assumed_limits: int = 0
    assumed_zone: bool = False

    @cached_property
    def columns(self) -> LogColumns:
        jobs = self.jobs
        return LogColumns(
            submitted_at=np.array([job.submitted_at for job in jobs], dtype=np.float64),
            started_at=np.array([job.started_at for job in jobs], dtype=np.float64),
            ended_at=np.array([job.ended_at for job in jobs], dtype=np.float64),
            time_limit_s=np.array([job.time_limit_s for job in jobs], dtype=np.float64),
            nodes=np.array([job.nodes for job in jobs], dtype=np.int64),
        )

    def before(self, instant: float) -> "QueueLog":
        """The jobs that were submitted before an instant, on a cluster of the same size."""
        jobs = tuple(job for job in self.jobs if job.submitted_at < instant)
        return replace(self, jobs=jobs, stated_nodes=self.cluster_nodes)

    @property
    def cluster_nodes(self) -> int:
        """The stated size of the cluster, else the most nodes that were busy at once."""
        return self.stated_nodes or self.most_busy_nodes

    @cached_property
    def most_busy_nodes(self) -> int:
        columns = self.columns
        instants = np.concatenate((columns.ended_at, columns.started_at))
        changes = np.concatenate((-columns.nodes, columns.nodes))
        order = np.argsort(instants, kind="stable")  # at one instant ends come first
        return int(np.cumsum(changes[order]).max(initial=0))
