"""Two replicas on one PostgreSQL: one acts, and one that was paused while it acted does no harm."""

import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from laxity import names
from tests.support.kubernetes.cluster import Cluster
from tests.support.kubernetes.history import annotations, width
from tests.support.kubernetes.killable_services import End, ServiceForker
from tests.support.kubernetes.kubectl import apply, kubectl
from tests.support.kubernetes.namespace_jobs import (
    HARD,
    WHENEVER,
    NamespaceJobs,
    open_namespace_jobs,
)
from tests.support.kubernetes.replicas import Replica
from tests.support.kubernetes.service import Json, training_job

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(300)]

LEASE_S = 10.0
PATIENCE_S = 90.0


@pytest.fixture
def replicas(
    account: None,
    cluster: Cluster,
    service_forker: ServiceForker,
    postgres_url: str,
    tmp_path: Path,
) -> Iterator[tuple[Replica, Replica]]:
    pair = [
        Replica(cluster, service_forker, tmp_path / name, store=postgres_url, lease_s=LEASE_S)
        for name in ("one", "other")
    ]
    try:
        yield pair[0], pair[1]
    finally:
        for replica in pair:
            replica.end()


@pytest.mark.parametrize("step", ["before journal", "after journal", "before patch"])
def test_a_leader_that_was_paused_for_longer_than_its_lease_acts_no_more(
    step: str, replicas: tuple[Replica, Replica], cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    """It gives away a free GPU and is stopped; meanwhile the other one gives it to somebody else."""
    one, other = replicas
    now = tmp_path / "now"
    with open_namespace_jobs(cluster, namespace, one, other) as there:
        one.begin(End(step, 1, signal.SIGSTOP, since=str(now)))
        one.until_ready()
        fills = there.apply(16, WHENEVER, run_s=None)
        there.until(lambda: there.running(fills) == 16, "the cluster to be full")
        other.start()
        waits = there.apply(1, WHENEVER)
        there.until(lambda: told(there, waits), "somebody to wait for a GPU")
        now.touch()
        kubectl(cluster, "-n", namespace, "delete", "job", fills[5])
        there.until(one.paused, "the leader to be stopped while it acts")
        hard = there.apply(1, HARD, run_s=None)
        there.until(other.leads, "the other to take over")
        there.until(lambda: there.running(hard) == 1, "it to act")
        one.wake()
        there.until(lambda: agree(one, other), "the old one to see who leads")
        kubectl(cluster, "-n", namespace, "delete", "job", fills[6])
        there.until(lambda: there.finished(waits) == 1, "the one who waited to finish")
        assert there.problems() == []
        if step != "before journal":  # what was in the journal was fenced off before it acted
            assert when(there, waits, fenced) < when(there, hard, lambda job: width(job) > 0)
    assert all(status == 409 for _, status in one.woken()), "nothing that it sent has landed"
    assert bool(one.woken()) == (step == "before patch"), "only what was under way was sent"
    ended = re.search(r"term \d+ is over", one.log.read_text())
    assert bool(ended) == (step == "before journal"), "the journal took nothing of it"


def test_a_leader_that_ends_well_hands_over_at_once_and_one_that_is_killed_after_its_lease(
    replicas: tuple[Replica, Replica], cluster: Cluster, namespace: str
) -> None:
    one, other = replicas
    until = waiting(cluster, one, other)
    one.start()
    until(one.leads, "the first to lead")
    other.start()
    assert not other.leads()
    assert other.said()["leader"] == one.said()["leader"]
    before = lease(cluster)
    assert other.life is not None
    other.life.send(signal.SIGSTOP)  # it would take what is given back
    one.end(signal.SIGTERM)
    assert "holderIdentity" not in lease(cluster), "the lease was given back"
    other.wake()
    until(other.leads, "the other to lead")
    apply(cluster, job(namespace, "handed-over", HARD))
    one.start()
    assert not one.leads()
    other.end()
    until(one.leads, "the first to lead again")
    apply(cluster, job(namespace, "taken-over", HARD))
    where = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    until(lambda: all(map(done, cluster.ask("GET", where)["items"])), "both jobs to finish")
    assert lease(cluster)["leaseTransitions"] >= before["leaseTransitions"] + 2


def job(namespace: str, name: str, asked: dict[str, str]) -> Json:
    return training_job(namespace, name, asked, run_s=1.5)


def agree(old: Replica, new: Replica) -> bool:
    """Both say that the new one leads."""
    said = (old.said(), new.said())
    leads = [one.get("leads") for one in said]
    return leads == [False, True] and said[0]["leader"] == said[1]["leader"] != ""


def done(one: Json) -> bool:
    return bool(one["status"].get("succeeded"))


def told(there: NamespaceJobs, called: list[str]) -> bool:
    """They know why they wait."""
    return all(names.REASON in annotations(job) for job in there.jobs(called))


def fenced(job: Json) -> bool:
    return names.TERM in annotations(job)


def when(there: NamespaceJobs, called: list[str], is_so: Callable[[Json], bool]) -> int:
    """The first revision of the only job of this name at which it is so."""
    return min(
        int(change.object["metadata"]["resourceVersion"])
        for kind, change in there.history.events()
        if kind == "jobs" and [change.object["metadata"]["name"]] == called and is_so(change.object)
    )


def lease(cluster: Cluster) -> Json:
    where = "/apis/coordination.k8s.io/v1/namespaces/laxity/leases/laxity"
    found: Json = cluster.ask("GET", where)["spec"]
    return found


def waiting(cluster: Cluster, *replicas: Replica) -> Callable[[Callable[[], bool], str], None]:
    logs = ", ".join(str(one.log) for one in replicas)

    def until(is_so: Callable[[], bool], what: str) -> None:
        cluster.until(is_so, PATIENCE_S, f"{what}; logs of the services: {logs}")

    return until
