"""What a service stands on breaks under it: API server, etcd, watches, conflicts, a node."""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from laxity.instants import format_rfc3339
from tests.support.kubernetes.audit import Audit
from tests.support.kubernetes.cluster import Cluster, simulated_node
from tests.support.kubernetes.history import kept, width
from tests.support.kubernetes.killable_services import ServiceForker
from tests.support.kubernetes.kubectl import kubectl
from tests.support.kubernetes.namespace_jobs import (
    ELASTIC,
    GPUS,
    HARD,
    URGENT,
    WHENEVER,
    NamespaceJobs,
    elapse,
    open_namespace_jobs,
)
from tests.support.kubernetes.proxy import Proxy
from tests.support.kubernetes.replicas import Replica
from tests.support.kubernetes.storm import storm

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def wire(cluster: Cluster) -> Iterator[Proxy]:
    made = Proxy(cluster.port)
    yield made
    made.close()


@pytest.fixture(scope="module")
def replica(
    account: None,
    cluster: Cluster,
    service_forker: ServiceForker,
    wire: Proxy,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Replica]:
    folder = tmp_path_factory.mktemp("faults") / "service"
    kubeconfig = cluster.service_kubeconfig_by(wire.port)
    with Replica(cluster, service_forker, folder, kubeconfig=kubeconfig) as made:
        yield made


@pytest.fixture
def there(replica: Replica, cluster: Cluster, namespace: str) -> Iterator[NamespaceJobs]:
    """Whatever happened, the invariants held."""
    with open_namespace_jobs(cluster, namespace, replica) as made:
        yield made


@pytest.mark.parametrize(
    "away_s", [5.0, pytest.param(60.0, marks=pytest.mark.soak)], ids=["5 s", "60 s"]
)
def test_an_api_server_that_was_away_finds_all_as_it_was(
    there: NamespaceJobs, away_s: float
) -> None:
    stays = there.apply(6, HARD, run_s=None)
    there.until(lambda: there.running(stays) == 6, "six jobs to run")
    before = {job["metadata"]["name"]: job["spec"] for job in there.jobs(stays)}
    there.apply(14, WHENEVER)
    there.cluster.stop("kube-apiserver", hard=True)
    elapse(away_s)
    there.cluster.start_api_server()
    later = there.apply(6, HARD)
    there.until(lambda: there.finished() == 14 + len(later), "the other jobs to finish")
    assert {job["metadata"]["name"]: job["spec"] for job in there.jobs(stays)} == before
    assert there.problems(twins=True) == []


def test_an_etcd_that_is_killed_and_comes_back_loses_nothing(there: NamespaceJobs) -> None:
    stays = there.apply(4, HARD, run_s=None)
    there.until(lambda: there.running(stays) == 4, "four jobs to run")
    there.apply(16, WHENEVER)
    there.cluster.stop("etcd", hard=True)
    elapse(2.0)
    there.cluster.start_etcd()
    ready = "/readyz"
    there.until(lambda: there.cluster.ask("GET", ready) is not None, "the API server to be ready")
    later = there.apply(6, HARD)
    there.until(lambda: there.finished() == 16 + len(later), "the other jobs to finish")
    assert there.running(stays) == 4
    assert there.problems(twins=True) == []


@pytest.mark.parametrize(
    "asked", [WHENEVER, pytest.param(ELASTIC, marks=pytest.mark.soak)], ids=["fixed", "elastic"]
)
def test_watches_that_are_cut_while_it_acts_miss_nothing(
    there: NamespaceJobs, wire: Proxy, asked: dict[str, str]
) -> None:
    for _ in range(5):
        before = there.finished()
        there.apply(6, asked)
        wire.cut()
        there.until(lambda before=before: there.finished() > before, "some jobs to finish")  # type: ignore[misc]
        wire.cut()
    there.all_end()
    assert there.problems() == []


def test_a_service_that_was_cut_off_for_too_long_lists_anew_and_sees_what_it_missed(
    there: NamespaceJobs, wire: Proxy, replica: Replica
) -> None:
    stays = there.apply(4, HARD, run_s=None)
    gone = there.apply(4, HARD, run_s=None)
    ends = there.apply(4, HARD, run_s=None)
    there.until(lambda: there.running() == 12, "twelve jobs to run")
    told = replica.log.read_text().count("is too old, listing anew")
    wire.shut()
    end(there, ends)
    there.until(lambda: there.finished(ends) == 4, "four jobs to finish unseen")
    kubectl(there.cluster, "-n", there.namespace, "delete", "job", *gone)
    there.cluster.stop("kube-apiserver", hard=True)  # the next one remembers no old versions
    there.cluster.start_api_server()
    later = there.apply(12, HARD)
    wire.open()
    there.until(lambda: there.finished(later) == 12, "the jobs that came meanwhile to finish")
    assert replica.log.read_text().count("is too old, listing anew") > told
    assert there.running(stays) == 4
    assert there.problems() == []


def test_nothing_is_decided_while_pods_cannot_be_watched_and_all_else_can(
    there: NamespaceJobs, wire: Proxy, replica: Replica
) -> None:
    """Jobs of now beside pods of a while ago: who has finished would seem to hold his GPU."""
    stays = there.apply(6, HARD, run_s=None)
    ends = there.apply(10, HARD, run_s=None)
    there.until(lambda: there.running() == 16, "all GPUs to be busy")
    before = {job["metadata"]["name"]: job["spec"] for job in there.jobs(stays)}
    with unwatchable(there.cluster, "pods"):
        wire.cut()
        cut = "the API server cannot be watched for pods"
        there.until(lambda: replica.blind() == cut, "the other watches to be back")
        end(there, ends)
        there.until(lambda: there.finished(ends) == 10, "ten jobs to finish")
        audit = Audit(there.cluster)
        later = there.apply(1, URGENT)
        elapse(3.0)
        assert replica.blind() == cut
        assert audit.written(there.namespace) == set()
    there.until(lambda: there.finished(later) == 1, "the job that came meanwhile to finish")
    assert replica.blind() == ""
    assert {job["metadata"]["name"]: job["spec"] for job in there.jobs(stays)} == before
    assert there.problems() == []


def test_a_second_writer_who_changes_all_jobs_all_the_time_holds_up_nobody(
    there: NamespaceJobs,
) -> None:
    audit = Audit(there.cluster)
    with storm(there) as written:
        called = there.apply(20, HARD)
        there.until(lambda: there.finished(called) == 20, "all jobs to finish in the storm")
    assert written[0] > 100
    assert audit.conflicts() > 0
    assert there.problems() == []


def test_jobs_of_a_node_that_is_lost_go_on_elsewhere(there: NamespaceJobs) -> None:
    """The node stops answering: its pods neither run nor go, until somebody takes them away."""
    make_node(there.cluster, "shaky")
    stays = there.apply(20, WHENEVER, run_s=None)
    there.until(lambda: there.running(stays) == 20, "all GPUs to be busy")
    hit = on_node(there, "shaky")
    assert len(hit) == 4
    lose_node(there.cluster, "shaky")
    there.until(lambda: all(width(job) == 0 for job in there.jobs(hit)), "its jobs to be stopped")
    kubectl(
        there.cluster, "-n", there.namespace, "delete", "pods", "--force", "--grace-period=0",
        "--field-selector=spec.nodeName=shaky",
    )  # fmt: skip
    freed = [name for name in stays if name not in hit][:4]
    kubectl(there.cluster, "-n", there.namespace, "delete", "job", *freed)
    there.until(lambda: there.running(hit) == 4, "its jobs to run elsewhere")
    there.cluster.ask("DELETE", "/api/v1/nodes/shaky")
    assert on_node(there, "shaky") == []
    assert {kept(job)["preemptions"] for job in there.jobs(hit)} == {1}
    assert there.running() == 16, "no other job was touched"
    assert there.problems({**GPUS, "shaky": 4}) == []


def end(there: NamespaceJobs, called: Sequence[str]) -> None:
    """The workers of these Jobs are done."""
    kubectl(
        there.cluster, "-n", there.namespace, "annotate", "pods", "test.laxity/run-for=0.1s",
        "-l", f"batch.kubernetes.io/job-name in ({','.join(called)})",
    )  # fmt: skip


@contextmanager
def unwatchable(cluster: Cluster, resource: str) -> Iterator[None]:
    """The service may list these, and not watch them."""
    where = "/apis/rbac.authorization.k8s.io/v1/clusterroles/laxity"
    role = cluster.ask("GET", where)
    less = [
        {**rule, "verbs": [verb for verb in rule["verbs"] if verb != "watch"]}
        if resource in rule["resources"]
        else rule
        for rule in role["rules"]
    ]
    kept = ("name", "labels", "annotations")  # with what `kubectl apply` knows of it
    meta = {key: value for key, value in role["metadata"].items() if key in kept}
    assert cluster.ask("PUT", where, {**role, "metadata": meta, "rules": less})
    try:
        yield
    finally:
        assert cluster.ask("PUT", where, {**role, "metadata": meta})


def make_node(cluster: Cluster, name: str) -> None:
    assert cluster.ask("POST", "/api/v1/nodes", simulated_node(name, 4))
    cluster.add_nodes(0)  # returns when all are ready


def lose_node(cluster: Cluster, name: str) -> None:
    """Nobody speaks for it any more, and it has been away for an hour."""
    kubectl(cluster, "label", "node", name, "type-")
    away = {
        "type": "Ready",
        "status": "Unknown",
        "lastTransitionTime": format_rfc3339(time.time() - 3600),
    }
    patch = json.dumps({"status": {"conditions": [away]}})
    kubectl(cluster, "patch", "node", name, "--subresource=status", "--type=merge", "-p", patch)


def on_node(there: NamespaceJobs, node: str) -> Sequence[str]:
    """Jobs that have a pod there."""
    return [
        pod["metadata"]["labels"]["job-name"]
        for pod in there.history.now()[1]
        if pod["spec"].get("nodeName") == node
    ]
