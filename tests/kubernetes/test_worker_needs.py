"""Jobs whose workers need more than GPUs: they run where the cluster's scheduler finds room for them."""

import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from tests.support.kubernetes.cluster import Cluster, simulated_node
from tests.support.kubernetes.kubectl import apply
from tests.support.kubernetes.place import HARD, Place, annotations, complete, labels
from tests.support.kubernetes.service import Json

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(300)]

NODES: Final = tuple(f"needs-{number}" for number in range(4))  # of 8 GPUs, 96 CPUs and 768Gi
GPU: Final = {"nvidia.com/gpu": "1"}
SOON_S: Final = 30.0
WRONG: Final = frozenset({"PodsDoNotFit", "PromiseBroken", "PromiseInDanger", "WorkerDisplaced"})
Change = Callable[[Json], None]


@pytest.fixture
def idle(there: Place, cluster: Cluster) -> Iterator[Place]:
    """A namespace beside four empty nodes, for Jobs that ask for such a node."""
    for number, name in enumerate(NODES):
        made = simulated_node(name, 8)
        made["metadata"]["labels"] |= {"needs": "more", "zone": f"zone-{number % 2}"}
        assert cluster.ask("POST", "/api/v1/nodes", made)
    cluster.add_nodes(0)  # returns when all are ready
    yield there
    for name in NODES:
        cluster.ask("DELETE", f"/api/v1/nodes/{name}")


def requesting(**requests: str) -> Change:
    def change(pod: Json) -> None:
        pod["containers"][0]["resources"] = {"requests": requests, "limits": GPU}

    return change


def with_host_port(pod: Json) -> None:
    pod["containers"][0]["ports"] = [{"containerPort": 29500, "hostPort": 29500}]


def on_the_nodes_network(pod: Json) -> None:
    pod["hostNetwork"] = True
    pod["containers"][0]["ports"] = [{"containerPort": 29501}]


def spread(pod: Json) -> None:
    pod["topologySpreadConstraints"] = [
        {
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"spread": "yes"}},
        }
    ]


def with_zonal_volume(pod: Json) -> None:
    pod["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "zonal"}}]


KINDS: Final[tuple[tuple[int, Change], ...]] = (  # workers, and what each needs
    (2, requesting(cpu="60")),
    (8, requesting(cpu="16")),
    (2, requesting(memory="500Gi")),
    (2, with_host_port),
    (2, on_the_nodes_network),
    (4, spread),
    (2, with_zonal_volume),
)


def needing(
    there: Place, name: str, workers: int, change: Change, *, run_s: float = 3.0, due: str = "6m"
) -> Json:
    asked = {**HARD, "deadline": due, "widths": str(workers)}
    made = there.job(name, asked, run_s=run_s)
    made["spec"] |= {"parallelism": workers, "completions": workers}
    made["spec"]["template"]["metadata"]["labels"] = {"spread": "yes"}
    pod = made["spec"]["template"]["spec"]
    pod["nodeSelector"] = {"needs": "more"}
    change(pod)
    return made


def add_zonal_volume(there: Place) -> None:
    """A volume that nodes of zone-1 can mount, bound to claim `zonal`."""
    size: dict[str, Any] = {"storage": "1Gi"}
    zone = {"key": "zone", "operator": "In", "values": ["zone-1"]}
    name = f"zonal-{there.namespace}"
    claim = {"kind": "PersistentVolumeClaim", "namespace": there.namespace, "name": "zonal"}
    volume: Json = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}}
    volume["spec"] = {
        "capacity": size, "accessModes": ["ReadWriteMany"], "local": {"path": "/data"},
        "claimRef": claim, "storageClassName": "",
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}},
    }  # fmt: skip
    bound = {"pv.kubernetes.io/bind-completed": "yes"}
    wanted: Json = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
    wanted["metadata"] = {"name": "zonal", "namespace": there.namespace, "annotations": bound}
    wanted["spec"] = {
        "accessModes": ["ReadWriteMany"], "resources": {"requests": size}, "volumeName": name,
        "storageClassName": "",
    }  # fmt: skip
    apply(there.cluster, volume, wanted)


def told(there: Place, name: str) -> set[str]:
    return {event["reason"] for event in there.events(name)}


def test_every_kind_runs_soon_on_an_idle_cluster(idle: Place) -> None:
    add_zonal_volume(idle)
    for number, (workers, change) in enumerate(KINDS):
        name = f"kind-{number}"
        idle.apply(needing(idle, name, workers, change))
        begun_s = time.monotonic()
        idle.until_job(
            name,
            lambda job, width=workers: job["status"].get("ready") == width or complete(job),  # type: ignore[misc]
            "runs",
        )
        took_s = time.monotonic() - begun_s
        job = idle.until_job(name, complete, "finishes")

        assert took_s < SOON_S, name
        assert labels(job)["laxity.dev/verdict"] == "promised"
        assert told(idle, name).isdisjoint(WRONG), name


def test_none_of_twenty_promises_is_broken_where_all_kinds_compete(idle: Place) -> None:
    add_zonal_volume(idle)
    made = [
        needing(idle, f"one-{number}", *KINDS[number % len(KINDS)], run_s=15.0, due="20m")
        for number in range(20)
    ]
    idle.apply(*made)
    idle.until(lambda: idle.succeeded() == 20, "all to finish")

    for job in idle.jobs():
        name = job["metadata"]["name"]
        assert labels(job)["laxity.dev/verdict"] == "promised", annotations(job)
        assert told(idle, name).isdisjoint(WRONG), name
