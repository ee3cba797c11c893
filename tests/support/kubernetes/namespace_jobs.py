"""A namespace full of work, one service that may be harmed, and what must have held all along."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from laxity import names
from tests.support.kubernetes.cluster import Cluster
from tests.support.kubernetes.history import (
    History,
    given_twice,
    labels,
    lost,
    misread,
    ours,
    run_twice,
    width,
)
from tests.support.kubernetes.kubectl import apply, kubectl
from tests.support.kubernetes.replicas import Replica
from tests.support.kubernetes.service import Json, training_job
from tests.support.kubernetes.simulated_workers import SimulatedWorkers

PATIENCE_S: Final = 180.0
GPUS: Final = {f"gpu-{number}": 4 for number in range(4)}  # of the session's cluster
# By its own words it takes hours, so that hard jobs cannot wait for it; its pods run for seconds.
WHENEVER: Final = {"epochs": "1000", "epoch-estimate": "10s", "widths": "1"}
ELASTIC: Final = {**WHENEVER, "widths": "1,2"}
HARD: Final = {
    "class": "hard", "epochs": "3", "epoch-estimate": "5s", "deadline": "20m", "widths": "1",
}  # fmt: skip
# It cannot wait for others to end: somebody is stopped for it within seconds. (With 150 s it is
# after 25 s: it is let wait as long as it can.)
URGENT: Final = {**HARD, "deadline": "120s"}


class NamespaceJobs:
    """Jobs of one namespace; simulated workers speak to whichever replica is there."""

    def __init__(self, cluster: Cluster, namespace: str, replicas: Sequence[Replica]) -> None:
        self.cluster, self.namespace, self.replicas = cluster, namespace, replicas
        self.history = History(cluster, namespace)
        self.simulated_workers = SimulatedWorkers(
            self.history, lambda: [one.url for one in replicas]
        )
        self.applied = 0

    def close(self) -> None:
        self.simulated_workers.close()
        self.history.close()

    def named(self, name: str) -> Json:
        return self.history.jobs[name]

    def apply(self, count: int, asked: dict[str, str], *, run_s: float | None = 1.5) -> list[str]:
        """So many Jobs; their names."""
        first, self.applied = self.applied, self.applied + count
        called = [f"job-{number}" for number in range(first, self.applied)]
        jobs = [training_job(self.namespace, name, asked, run_s=run_s) for name in called]
        apply(self.cluster, *jobs)
        return called

    def jobs(self, called: Sequence[str] | None = None) -> list[Json]:
        found = [job for job in self.history.now()[0] if ours(job)]
        return [job for job in found if called is None or job["metadata"]["name"] in called]

    def running(self, called: Sequence[str] | None = None) -> int:
        """Jobs whose workers all run now."""
        return sum(
            0 < width(job) == job["status"].get("ready", 0) and not done(job)
            for job in self.jobs(called)
        )

    def formed(self, called: Sequence[str]) -> int:
        """Jobs of which the service knows that their workers train."""
        views = self.replicas[0].ask("GET", "/v1/jobs").json()["jobs"]
        return sum(view["formed"] > 0 for view in views if view["id"].split("/")[1] in called)

    def finished(self, called: Sequence[str] | None = None) -> int:
        return sum(map(done, self.jobs(called)))

    def ended(self) -> int:
        """Jobs that finished, or were refused: after a long absence it may be too late."""
        return sum(
            done(job) or labels(job).get(names.VERDICT_LABEL) == "refused" for job in self.jobs()
        )

    def all_end(self, *, besides: Sequence[str] = ()) -> None:
        expected = self.applied - len(besides)
        self.until(lambda: self.ended() == expected, f"{expected} jobs to end")

    def until(self, is_so: Callable[[], bool], what: str) -> None:
        try:
            self.cluster.until(is_so, PATIENCE_S, what)
        except TimeoutError as late:
            for replica in self.replicas:
                late.add_note(f"{replica.log}: {replica.log.read_text()[-4000:]}")
            late.add_note(kubectl(self.cluster, "-n", self.namespace, "get", "jobs", "-o", "yaml"))
            late.add_note(kubectl(self.cluster, "get", "nodes", "-L", "laxity.dev/pool"))
            late.add_note(kubectl(self.cluster, "-n", self.namespace, "get", "pods", "-o", "wide"))
            late.add_note(
                self.simulated_workers.tell_state()
            )  # last: of a long report the end is kept
            raise

    def problems(self, nodes: dict[str, int] = GPUS, *, twins: bool = False) -> list[str]:
        """What should never have been so; `twins` may have been made by a job controller alone."""
        found = self.history
        twice = run_twice(found, twins=twins)
        return [*given_twice(found, nodes), *twice, *lost(found), *misread(found)]


@contextmanager
def open_namespace_jobs(
    cluster: Cluster, namespace: str, *replicas: Replica
) -> Iterator[NamespaceJobs]:
    made = NamespaceJobs(cluster, namespace, replicas)
    try:
        yield made
    finally:
        made.close()


def done(job: Json) -> bool:
    return bool(job["status"].get("succeeded"))


def elapse(seconds: float) -> None:
    """The fault itself lasts: there is no condition to wait for."""
    time.sleep(seconds)
