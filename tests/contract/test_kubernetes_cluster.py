"""A real API server, job controller and scheduler sit the exam of all Cluster APIs."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from laxity_k8s.api import Json
from laxity_k8s.kubernetes import KubernetesApi
from tests.contract.cluster_api_exam import EXAM, NAMESPACE, Question, named
from tests.kube.cluster import Cluster

pytestmark = pytest.mark.cluster


@dataclass(frozen=True)
class RealBench:
    """Simulated nodes; an annotation tells a pod how long to run and how long to linger."""

    api: KubernetesApi

    def template(self, *, run_s: float | None = None, stop_s: float = 0.0) -> Json:
        told = {"test.laxity/stop-for": f"{stop_s}s"} if stop_s else {}
        if run_s is not None:
            told["test.laxity/run-for"] = f"{run_s}s"
        worker = {
            "name": "train",
            "image": "none",
            "resources": {"limits": {"nvidia.com/gpu": "1"}},
        }
        return {
            "metadata": {"annotations": told},
            "spec": {
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 30,
                "containers": [worker],
            },
        }


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


@pytest.mark.parametrize("question", EXAM, ids=named)
def test_a_real_cluster_behaves_as_we_say_kubernetes_does(
    question: Question, bench: RealBench
) -> None:
    question(bench)
