"""A real API server, job controller and scheduler sit the exam of all Cluster APIs."""

import socket
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from laxity import json_tree
from laxity_k8s.cluster_api import Json, Patch
from laxity_k8s.http.api_cluster import KubernetesApi
from laxity_k8s.http.session import ApiSession
from tests.contract.api_answer_exam import ANSWERS
from tests.contract.cluster_bench import NAMESPACE, Question, job, named
from tests.contract.job_life_exam import LIVES
from tests.support.kubernetes.cluster import Cluster
from tests.support.manifests import train_template

pytestmark = pytest.mark.cluster


@dataclass(frozen=True)
class RealBench:
    """Simulated nodes; an annotation tells a pod how long to run and how long to linger."""

    api: KubernetesApi

    def template(self, *, run_s: float | None = None, stop_s: float = 0.0) -> Json:
        told = {"test.laxity/stop-for": f"{stop_s}s"} if stop_s else {}
        if run_s is not None:
            told["test.laxity/run-for"] = f"{run_s}s"
        made = {"metadata": {"annotations": told}, **train_template(image="none")}
        made["spec"]["terminationGracePeriodSeconds"] = 30
        return made


@pytest.fixture(scope="module")
def bench(cluster: Cluster) -> Iterator[RealBench]:
    api = KubernetesApi(cluster.kubeconfig)
    yield RealBench(api)
    api.close()


@pytest.fixture(autouse=True)
def swept(cluster: Cluster) -> Iterator[None]:
    """Every question starts and ends without Jobs."""
    yield
    where = f"namespaces/{NAMESPACE}"
    cluster.ask("DELETE", f"/apis/batch/v1/{where}/jobs?propagationPolicy=Background")
    cluster.ask("DELETE", f"/api/v1/{where}/pods?gracePeriodSeconds=0")


@pytest.mark.parametrize("question", [*LIVES, *ANSWERS], ids=named)
def test_a_real_cluster_behaves_as_we_say_kubernetes_does(
    question: Question, bench: RealBench
) -> None:
    question(bench)


NOTE = "exam/note"


def noted(job_id: str, text: str) -> Patch:
    return Patch("jobs", job_id, {"metadata": {"annotations": {NOTE: text}}})


def test_a_watch_whose_peer_is_gone_without_a_word_ends_within_a_minute(cluster: Cluster) -> None:
    async def silence_s(api_session: ApiSession) -> int:
        reply = await api_session.open_stream("/api/v1/nodes", {"watch": "1"}, silence_s=10.0)
        assert reply.connection is not None
        assert reply.connection.transport is not None
        one = reply.connection.transport.get_extra_info("socket")
        assert one.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        idle, pause, count = (
            one.getsockopt(socket.IPPROTO_TCP, option)
            for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        )
        reply.close()
        return int(idle + pause * count)

    api = KubernetesApi(cluster.kubeconfig)
    try:
        assert api.run_call(silence_s) <= 60
    finally:
        api.close()


def test_patches_of_one_object_are_sent_one_after_the_other(bench: RealBench) -> None:
    job_id, _ = job(bench, "exam-in-turn")
    outcomes = list(bench.api.patch_many(noted(job_id, str(number)) for number in range(20)))
    assert [json_tree.annotations_of(one.object or {})[NOTE] for one in outcomes] == [
        str(number) for number in range(20)
    ]
    versions = [int((one.object or {})["metadata"]["resourceVersion"]) for one in outcomes]
    assert versions == sorted(set(versions)), "each was written after the one before it"
