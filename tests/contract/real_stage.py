"""A real API server as the stage of the exam of worlds."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from laxity_k8s.act.namespace_limits import Limits
from laxity_k8s.cluster_api import Json
from laxity_k8s.http.api_cluster import KubernetesApi
from laxity_k8s.live_cluster import LiveCluster
from laxity_k8s.objects.seal import Seal
from laxity_scheduler.live import Report
from tests.contract.live_stage import OpenStage
from tests.support.kubernetes.cluster import Cluster, simulated_node
from tests.support.kubernetes.fixtures import MANIFESTS, WHY_NOT
from tests.support.kubernetes.kubectl import kubectl
from tests.support.manifests import train_template


class RealStage(OpenStage):
    """On an API server whose nodes are simulated."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        super().__init__()

    def open(self) -> LiveCluster:
        api = KubernetesApi(self.cluster.kubeconfig)
        limits = Limits(api.get_namespace, api.try_create_job, "laxity")
        return LiveCluster(api, lambda _: Report(), seal=Seal(b"k" * 32), limits=limits)

    def template(self, *, stop_s: float = 0.0) -> Json:
        told = {"test.laxity/stop-for": f"{stop_s}s"} if stop_s else {}
        return {"metadata": {"annotations": told}, **train_template(image="none")}


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    assets = Path(os.environ.get("KUBEBUILDER_ASSETS", ""))
    if not (assets / "kwok").exists():
        pytest.skip(WHY_NOT)
    started = Cluster(assets, tmp_path_factory.mktemp("world"))
    try:
        started.up()
        kubectl(started, "apply", "-f", str(MANIFESTS / "base" / "namespace.yaml"))
        for name in ("a", "b"):
            started.ask("POST", "/api/v1/nodes", simulated_node(name, 4))
        started.add_nodes(0)
        yield started
    finally:
        started.down()


@pytest.fixture
def real_stage(control_plane: Cluster) -> Iterator[RealStage]:
    made = RealStage(control_plane)
    try:
        made.until(lambda state: len(state.nodes) == 2, "both nodes are ready")
        yield made
        jobs = "/apis/batch/v1/namespaces/default/jobs?propagationPolicy=Background"
        control_plane.ask("DELETE", jobs)
        made.until(lambda state: not state.jobs and state.free_gpus == 8, "all is swept")
        control_plane.ask("DELETE", "/api/v1/namespaces/default/events")
    finally:
        made.live.close()
