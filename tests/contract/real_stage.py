"""A real API server as the stage of the exam of worlds."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from laxity_k8s.act.namespace_limits import Limits
from laxity_k8s.cluster_api import Json
from laxity_k8s.http.cluster import KubernetesApi
from laxity_k8s.live_cluster import LiveCluster
from laxity_k8s.objects.seal import Seal
from laxity_scheduler.live import LiveWorld, Report
from laxity_scheduler.model.cluster import ClusterState
from tests.contract.live_world_exam import manifest
from tests.support.kubernetes.cluster import Cluster, simulated_node
from tests.support.kubernetes.fixtures import WHY_NOT

PATIENCE_S = 60.0


class RealStage:
    """Two simulated nodes of 4 GPUs; a pod runs until it is deleted."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.open()

    def open(self) -> None:
        self.api = KubernetesApi(self.cluster.kubeconfig)
        limits = Limits(self.api.get_namespace, "laxity")
        self.live = LiveCluster(self.api, lambda _: Report(), seal=Seal(b"k" * 32), limits=limits)

    @property
    def world(self) -> LiveWorld:
        return self.live

    def template(self, *, stop_s: float = 0.0) -> Json:
        told = {"test.laxity/stop-for": f"{stop_s}s"} if stop_s else {}
        limits = {"nvidia.com/gpu": "1"}
        worker = {"name": "train", "image": "none", "resources": {"limits": limits}}
        return {
            "metadata": {"annotations": told},
            "spec": {"restartPolicy": "Never", "containers": [worker]},
        }

    def another(self) -> LiveWorld:
        self.live.close()
        self.open()
        return self.live

    def submit(
        self, name: str, *, widths: Sequence[int] = (1, 2, 4), stop_s: float = 0.0, on: str = ""
    ) -> str:
        made = manifest(self, name, widths=",".join(map(str, widths)))
        made["spec"]["template"] = self.template(stop_s=stop_s)
        if on:
            made["spec"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": on}
        self.live.submit(made)
        return f"default/{name}"

    def until(self, what: Callable[[ClusterState], bool], words: str) -> ClusterState:
        end_at = time.monotonic() + PATIENCE_S
        while time.monotonic() < end_at:
            state = self.live.observe()
            if what(state) and all(self._settled(job.id, job.workers) for job in state.jobs):
                return state
            self.live.wait(1.0)
        raise AssertionError(f"not within {PATIENCE_S:.0f} s: {words}; {self.live.observe()}")

    def _settled(self, job_id: str, workers: int) -> bool:
        found = self.cluster.ask("GET", f"/apis/batch/v1/namespaces/default/jobs/{job_id[8:]}")
        return not workers or (found or {}).get("status", {}).get("ready", 0) >= workers


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    assets = Path(os.environ.get("KUBEBUILDER_ASSETS", ""))
    if not (assets / "kwok").exists():
        pytest.skip(WHY_NOT)
    started = Cluster(assets, tmp_path_factory.mktemp("world"))
    try:
        started.up()
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
