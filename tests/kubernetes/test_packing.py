"""The scheduler profile that the page about loans gives fills one node before the next."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.kubernetes.cluster import DIES_WITH_US, Cluster
from tests.support.processes import free_ports

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(200)]

PAGE = Path(__file__).parents[2] / "docs" / "kubernetes" / "loans.md"
PROFILE = re.compile(r"```yaml\n(apiVersion: kubescheduler\..*?)```", re.DOTALL)
PODS = 4  # as many as a node holds


@pytest.fixture
def packing(cluster: Cluster, tmp_path: Path) -> Iterator[str]:
    """A scheduler with the page's profile beside the default one; its name."""
    (text,) = PROFILE.findall(PAGE.read_text())
    config = yaml.safe_load(text)
    (profile,) = [row for row in config["profiles"] if row["schedulerName"] != "default-scheduler"]
    config |= {
        "profiles": [profile],
        "clientConnection": {"kubeconfig": str(cluster.kubeconfig)},
        "leaderElection": {"leaderElect": False},
    }
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                *DIES_WITH_US, str(cluster.binaries / "kube-scheduler"),
                f"--config={tmp_path}/config.yaml", f"--secure-port={free_ports(1)[0]}",
                "--bind-address=127.0.0.1", f"--cert-dir={tmp_path}",
                "--authentication-skip-lookup=true",
            ],
            stdout=log, stderr=log, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    yield profile["schedulerName"]
    process.kill()
    process.wait()


def place_pods(cluster: Cluster, namespace: str, scheduler: str) -> list[str]:
    """The nodes of a Deployment's pods."""
    limits = {"nvidia.com/gpu": "1"}
    container = {"name": "serve", "image": "none", "resources": {"limits": limits}}
    app = {"app": scheduler}
    spec: dict[str, Any] = {
        "replicas": PODS,
        "selector": {"matchLabels": app},
        "template": {
            "metadata": {"labels": app},
            "spec": {"schedulerName": scheduler, "containers": [container]},
        },
    }
    body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": scheduler}}
    assert cluster.ask(
        "POST", f"/apis/apps/v1/namespaces/{namespace}/deployments", {**body, "spec": spec}
    )

    def nodes() -> list[str]:
        path = f"/api/v1/namespaces/{namespace}/pods?labelSelector=app={scheduler}"
        return [pod["spec"].get("nodeName", "") for pod in cluster.ask("GET", path)["items"]]

    cluster.until(lambda: len(nodes()) == PODS and all(nodes()), 60.0, "all pods to have a node")
    return nodes()


def test_the_profile_of_the_page_packs_pods_that_the_default_one_spreads(
    cluster: Cluster, namespace: str, packing: str
) -> None:
    assert len(set(place_pods(cluster, namespace, packing))) == 1
    assert len(set(place_pods(cluster, namespace, "default-scheduler"))) > 1
