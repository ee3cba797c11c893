"""One run of the service with all that it ever does, under the shipped rights.

The API server's audit log then names exactly what the roles grant, no more and no fewer; and a Job
of Kueue's and Jobs without laxity's label, in the middle of it all, were never written to.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from laxity import names
from tests.support.kubernetes.audit import Audit, Right, granted
from tests.support.kubernetes.cluster import Cluster
from tests.support.kubernetes.fixtures import MANIFESTS, remove_namespace
from tests.support.kubernetes.history import annotations, width
from tests.support.kubernetes.killable_services import ServiceForker
from tests.support.kubernetes.kubectl import apply, kubectl
from tests.support.kubernetes.namespace_jobs import HARD, URGENT, WHENEVER, NamespaceJobs
from tests.support.kubernetes.postgres import WHY_NOT, postgresql, programs
from tests.support.kubernetes.replicas import Replica
from tests.support.kubernetes.service import Json, training_job
from tests.support.kubernetes.storm import storm

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(400)]

KUEUES = {names.MANAGED: "true", names.KUEUE_QUEUE: "theirs"}
NEIGHBOURS = ("kueues", "kueues-runs", "plain", "plain-runs")
SEAL = "/api/v1/namespaces/laxity/secrets/laxity-seal"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/laxity/leases/laxity"


@dataclass
class Day:
    """What was seen of one long day."""

    audit: Audit
    namespace: str
    before: dict[str, Json]  # neighbours, before laxity's work came
    after: dict[str, Json]
    problems: list[str]


@pytest.fixture(scope="module")
def day(
    account: None,
    cluster: Cluster,
    service_forker: ServiceForker,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Day]:
    if programs() is None:
        pytest.skip(WHY_NOT)
    namespace, folder = "a-day", tmp_path_factory.mktemp("rights")
    kubectl(cluster, "create", "namespace", namespace)
    for made_by_itself in (LEASE, SEAL):
        cluster.ask("DELETE", made_by_itself)
    audit = Audit(cluster)
    with postgresql() as store:
        replica = Replica(cluster, service_forker, folder / "service", store=store)
        there = NamespaceJobs(cluster, namespace, [replica])
        try:
            replica.begin()
            before = neighbours(there)
            live(there, audit)
            yield Day(audit, namespace, before, shown(there), there.problems())
        finally:
            there.close()
            replica.end()
            remove_namespace(cluster, namespace)


def test_the_audit_log_names_exactly_the_rights_of_the_roles(day: Day) -> None:
    assert day.audit.used() == granted(MANIFESTS / "base" / "rbac.yaml")
    assert day.audit.refused() == set()


def test_jobs_of_kueue_and_jobs_without_the_label_were_never_written_to(day: Day) -> None:
    written = day.audit.written(day.namespace)
    assert {"job-0", "by-http"} <= written, "those of laxity were"
    assert not written & set(NEIGHBOURS)
    assert day.after == day.before, "and look as they did, down to their resourceVersions"


def test_nothing_was_given_twice_all_day(day: Day) -> None:
    assert day.problems == []


def neighbours(there: NamespaceJobs) -> dict[str, Json]:
    """Jobs that are none of laxity's business, settled; two of them run."""
    made = [
        training_job(
            there.namespace, name, HARD,
            labels=KUEUES if "kueues" in name else {}, suspend="runs" not in name,
        )
        for name in NEIGHBOURS
    ]  # fmt: skip
    apply(there.cluster, *made)
    there.until(lambda: all(map(settled, shown(there).values())), "the neighbours to settle")
    return shown(there)


def settled(job: Json) -> bool:
    said = [one["type"] for one in job["status"].get("conditions") or ()]
    return "Suspended" in said if job["spec"]["suspend"] else bool(job["status"].get("ready"))


def shown(there: NamespaceJobs) -> dict[str, Json]:
    where = f"/apis/batch/v1/namespaces/{there.namespace}/jobs"
    found = there.cluster.ask("GET", where)["items"]
    return {one["metadata"]["name"]: one for one in found if one["metadata"]["name"] in NEIGHBOURS}


def live(there: NamespaceJobs, audit: Audit) -> None:
    """Admit, promise, ask to stop by pod and by HTTP, preempt, move, log, conflict, cancel."""
    fills = there.apply(14, WHENEVER, run_s=None)  # two GPUs are the neighbours'
    there.until(lambda: there.running(fills) == 14, "the cluster to be full")
    there.until(lambda: there.formed(fills) == 14, "their workers to have formed")
    there.simulated_workers.silent = True
    hard = there.apply(2, URGENT, run_s=None)
    there.until(lambda: asked_to_stop(there) == 2, "two jobs to be asked to stop")
    told: Right = ("", "pods", "patch")
    there.until(lambda: told in audit.used(), "their pods to be told, as nobody came to ask")
    there.simulated_workers.silent = False
    there.until(lambda: there.running(hard) == 2, "the hard jobs to run")
    stopped = [name for name in fills if width(there.named(name)) == 0]
    assert len(stopped) == 2
    elsewhere = [
        name
        for name in fills
        if name not in stopped and not nodes(there, name) & nodes_of(there, hard)
    ]
    called(there, "GET", f"/v1/jobs/{there.namespace}/{hard[0]}/logs")
    for name in elsewhere[:2]:
        called(there, "DELETE", f"/v1/jobs/{there.namespace}/{name}")
    there.until(lambda: there.running(stopped) == 2, "the stopped jobs to run elsewhere")
    called(there, "POST", "/v1/jobs", training_job(there.namespace, "by-http", HARD))
    for name in (*stopped, *hard):
        called(there, "DELETE", f"/v1/jobs/{there.namespace}/{name}")
    with storm(there):
        looked: Right = ("batch", "jobs", "get")
        there.apply(12, HARD)
        there.until(lambda: looked in audit.used(), "a conflict to be looked into")
    there.until(lambda: width(there.named("by-http")) == 1, "the job that came by HTTP to run")
    podless = training_job(there.namespace, "podless", URGENT)
    podless["spec"]["template"]["spec"]["serviceAccountName"] = "nobody"
    apply(there.cluster, podless)
    read: Right = ("", "events", "list")
    there.until(lambda: read in audit.used(), "why a Job has no pod to be looked up")


def asked_to_stop(there: NamespaceJobs) -> int:
    return sum(names.STOP in annotations(job) for job in there.jobs())


def nodes(there: NamespaceJobs, name: str) -> set[str]:
    return set(json.loads(annotations(there.named(name))[names.NODES]))


def nodes_of(there: NamespaceJobs, called: list[str]) -> set[str]:
    return set().union(*(nodes(there, name) for name in called))


def called(there: NamespaceJobs, method: str, where: str, body: Any = None) -> Any:
    """What the service answers."""
    return there.replicas[0].ask(method, where, body).raise_for_status().json()
