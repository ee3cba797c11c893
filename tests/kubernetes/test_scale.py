"""The service's own path on a cluster of simulated nodes: everything is started once, nothing missed.

Figures are printed (`pytest -s`), and asserted nowhere: they are of the machine they were taken on.
"""

import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from benchmarks.bench_cluster import BenchCluster
from benchmarks.lanes import run_service
from laxity import json_tree, names
from laxity_k8s.http.api_cluster import KubernetesApi
from tests.support.kubernetes.cluster import Cluster
from tests.support.kubernetes.fixtures import WHY_NOT
from tests.support.kubernetes.scale import Timed, changes, first_look, peak_mb, told

pytestmark = [pytest.mark.cluster]
GPUS = 8
CHANGES_PER_S = 200


@pytest.fixture
def bench_cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BenchCluster]:
    """A cluster of its own with so many nodes."""
    assets = Path(os.environ.get("KUBEBUILDER_ASSETS", ""))
    if not (assets / "kube-apiserver").exists():
        pytest.skip(WHY_NOT)
    cluster = Cluster(assets, tmp_path)
    try:
        cluster.up()
        cluster.add_nodes(request.param, gpus=GPUS)
        with BenchCluster.open_cluster(cluster.kubeconfig) as bench_cluster:
            yield bench_cluster
    finally:
        cluster.down()


@pytest.mark.parametrize(
    ("bench_cluster", "jobs"),
    [
        pytest.param(200, 200, id="small", marks=[pytest.mark.slow, pytest.mark.timeout(600)]),
        pytest.param(5_000, 10_000, id="large", marks=pytest.mark.soak),
    ],
    indirect=["bench_cluster"],
)
def test_all_jobs_of_a_large_cluster_are_started_once_and_every_change_is_seen(
    bench_cluster: BenchCluster, jobs: int
) -> None:
    figures: dict[str, float] = {}
    bench_cluster.patience_s = 3600.0
    with bench_cluster.make_namespace("scale") as namespace:
        bench_cluster.create_jobs(namespace, jobs, within_s=3600.0)
        with first_look(bench_cluster, namespace) as (service, api, took_s):
            figures |= {"first_snapshot_s": took_s, "first_snapshot_peak_mb": peak_mb()}
            policy = service.policies.decide = Timed(service.policies.decide)
            began = time.perf_counter()
            while api.admitted < jobs:
                before = api.admitted
                service.run_cycle()
                assert api.admitted > before, "nothing more is admitted, and there are free GPUs"
            figures["first_decision_ms"] = 1e3 * policy.took_s[0]
            figures["last_admitted_s"] = api.acked_at - began
            with run_service(service):
                bench_cluster.until_running(namespace, jobs, within_s=3600.0)
                figures["all_running_s"] = time.perf_counter() - began
                decided = len(policy.took_s)
                lags = changed(bench_cluster, service, namespace)
            figures |= spread("watch_lag_ms", lags)
            figures |= spread("decision_ms", policy.took_s[1:])
            figures |= {"decisions": len(policy.took_s), "decisions_while_changing": decided}
            figures["peak_mb"] = peak_mb()
            state = service.world.observe()
        found = bench_cluster.list_jobs(namespace)
        pods = bench_cluster.call_api("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
    print(f"\n{jobs} Jobs, {len(state.nodes)} nodes\n{told(figures)}")  # noqa: T201
    assert len(lags) == jobs, "the watch missed changes"
    assert len(found) == len(pods) == jobs, "every Job has one pod"
    assert {json_tree.labels_of(job)[names.VERDICT_LABEL] for job in found} == {"promised"}
    busy = Counter(pod["spec"]["nodeName"] for pod in pods)
    assert max(busy.values()) <= GPUS
    assert {node.id: node.gpus - node.free_gpus for node in state.nodes if busy[node.id]} == busy


def changed(bench_cluster: BenchCluster, service: object, namespace: str) -> list[float]:
    """Each Job changed by somebody else: the lags of the watch."""
    api = KubernetesApi(bench_cluster.kubeconfig)
    try:
        ids = [
            f"{namespace}/{job['metadata']['name']}" for job in bench_cluster.list_jobs(namespace)
        ]
        return changes(service, api, ids, per_s=CHANGES_PER_S)  # type: ignore[arg-type]
    finally:
        api.close()


def spread(name: str, values_s: list[float]) -> dict[str, float]:
    if not values_s:
        return {}
    p50, p99 = np.quantile(np.array(values_s) * 1e3, (0.5, 0.99))
    return {f"{name}_p50": float(p50), f"{name}_p99": float(p99)}
