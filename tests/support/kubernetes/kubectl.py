"""kubectl against the test cluster, as people use it."""

import json
import subprocess
from typing import Any

from tests.support.kubernetes.cluster import Cluster


def kubectl(cluster: Cluster, *words: str, text: str | None = None) -> str:
    """What kubectl says; AssertionError with its words when it fails."""
    code, said = tried(cluster, *words, text=text)
    assert code == 0, said
    return said


def tried(cluster: Cluster, *words: str, text: str | None = None) -> tuple[int, str]:
    command = [str(cluster.binaries / "kubectl"), f"--kubeconfig={cluster.kubeconfig}", *words]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, input=text, timeout=180
    )
    return done.returncode, done.stdout + done.stderr


def apply(cluster: Cluster, *objects: dict[str, Any]) -> str:
    """`kubectl apply -f` of these objects in one file."""
    whole = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
    return kubectl(cluster, "apply", "-f", "-", text=json.dumps(whole))
