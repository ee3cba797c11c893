"""Inference on labelled nodes of the test cluster: pods with a priority, more of them and fewer."""

import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Any, Final

from laxity_k8s.objects.node_rows.pool_label import POOL
from tests.support.kubernetes.cluster import Cluster
from tests.support.kubernetes.kubectl import apply, kubectl

FLEET: Final = ("gpu-2", "gpu-3")
TOLERATES: Final = [{"key": "laxity.dev/inference", "operator": "Exists"}]
Json = dict[str, Any]


def label_fleet(cluster: Cluster, fleet: Sequence[str] = FLEET) -> dict[str, Json]:
    """What an operator does once; the nodes as they are then."""
    for name in fleet:
        kubectl(cluster, "label", "node", name, f"{POOL}=inference")
        kubectl(cluster, "taint", "node", name, "laxity.dev/inference=only:NoSchedule")
    return node_specs(cluster, fleet)


def unlabel_fleet(cluster: Cluster) -> None:
    for name in FLEET:
        kubectl(cluster, "label", "node", name, f"{POOL}-")
        kubectl(cluster, "taint", "node", name, "laxity.dev/inference-")


def pools(cluster: Cluster, fleet: Sequence[str] = FLEET) -> dict[str, str]:
    """The pool label of each node of the fleet."""
    nodes = (cluster.ask("GET", "/api/v1/nodes") or {})["items"]
    labels = {node["metadata"]["name"]: node["metadata"].get("labels", {}) for node in nodes}
    return {name: labels[name].get(POOL, "") for name in fleet if name in labels}


def lent(cluster: Cluster) -> list[str]:
    return [name for name, pool in pools(cluster).items() if pool == "loaned"]


def node_specs(cluster: Cluster, fleet: Sequence[str] = FLEET) -> dict[str, Json]:
    """Of the fleet: labels and spec, all that laxity or an operator may have changed."""
    nodes = (cluster.ask("GET", "/api/v1/nodes") or {})["items"]
    return {
        node["metadata"]["name"]: {
            "labels": node["metadata"].get("labels"),
            "spec": node.get("spec"),
            "annotations": node["metadata"].get("annotations"),
        }
        for node in nodes
        if node["metadata"]["name"] in fleet
    }


def patch_as_laxity(cluster: Cluster, node: str, body: Json) -> tuple[int, str]:
    """What the API server answers laxity's own account."""
    request = urllib.request.Request(
        f"https://127.0.0.1:{cluster.port}/api/v1/nodes/{node}",
        method="PATCH",
        data=json.dumps(body).encode(),
        headers={
            "Authorization": "Bearer service",
            "Content-Type": "application/merge-patch+json",
        },
    )
    trust = ssl.create_default_context(cafile=cluster.folder / "certs/apiserver.crt")
    try:
        with urllib.request.urlopen(request, context=trust, timeout=10) as reply:  # noqa: S310
            return reply.status, ""
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()


class Deployment:
    """Pods of one GPU each that may go to the fleet only, lent or not.

    `container`: what a pod runs, where that is not simulated.
    """

    def __init__(
        self,
        cluster: Cluster,
        namespace: str,
        name: str = "serving",
        *,
        container: Json | None = None,
    ) -> None:
        self.cluster, self.namespace, self.name = cluster, namespace, name
        self.container = container or {"image": "none"}
        self.volumes: list[Json] = []
        self.waited_s: dict[str, float] = {}  # from creation to a node, by pod

    def scale(self, pods: int) -> None:
        """So many pods from now on."""
        apply(self.cluster, self._manifest(pods))
        self.expected = pods

    def pods(self) -> list[Json]:
        path = f"/api/v1/namespaces/{self.namespace}/pods?labelSelector=app={self.name}"
        items: list[Json] = (self.cluster.ask("GET", path) or {}).get("items", [])
        return [pod for pod in items if "deletionTimestamp" not in pod["metadata"]]

    def serves(self) -> bool:
        """Whether all of its pods have a node; notes how long each waited."""
        pods = self.pods()
        for pod in pods:
            if not pod["spec"].get("nodeName"):
                self.waited_s.setdefault(pod["metadata"]["name"], -time.time())
        for pod in pods:
            name = pod["metadata"]["name"]
            if pod["spec"].get("nodeName") and self.waited_s.get(name, 0.0) < 0:
                self.waited_s[name] += time.time()
        return len(pods) == self.expected and all(pod["spec"].get("nodeName") for pod in pods)

    def nodes(self) -> list[str]:
        return [pod["spec"].get("nodeName", "") for pod in self.pods()]

    def _manifest(self, pods: int) -> Json:
        limits = {"nvidia.com/gpu": "1"}
        mine = {
            "matchExpressions": [{"key": POOL, "operator": "In", "values": ["inference", "loaned"]}]
        }
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [mine]}}
        return {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": self.name, "namespace": self.namespace},
            "spec": {
                "replicas": pods,
                "selector": {"matchLabels": {"app": self.name}},
                "template": {
                    "metadata": {"labels": {"app": self.name}},
                    "spec": {
                        "priorityClassName": "laxity-inference",
                        "tolerations": TOLERATES,
                        "affinity": {"nodeAffinity": required},
                        "volumes": self.volumes,
                        "containers": [
                            {"name": "serve", "resources": {"limits": limits}, **self.container}
                        ],
                    },
                },
            },
        }
