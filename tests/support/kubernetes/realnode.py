"""This machine as a node of the test cluster: a kubelet and containerd run pods as real containers.

Both live in a PID and mount namespace of their own, whose first process dies with the tests: the
kernel then ends every container and takes every mount away, also after a kill -9. Nothing can be
pulled, so pods run this machine's own Python: the image `localhost/host:1` is empty folders, and
everything else is a hostPath (see `Host`).

Needed: root, Debian's containerd, runc and containernetworking-plugins, and beside the control
plane's binaries kubelet and images.tar (the images `localhost/pause:1` and `localhost/host:1`).
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from tests.support.kubernetes.cluster import Cluster
from tests.support.processes import free_ports

NODE: Final = "localhost"  # a name that the API server can resolve: it asks the kubelet for logs
IMAGE: Final = "localhost/host:1"
CNI: Final = Path("/usr/lib/cni")
Json = dict[str, Any]

CONTAINERD: Final = """\
version = 2
root = "{folder}/containerd"
state = "{folder}/run"
[grpc]
  address = "{folder}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  restrict_oom_score_adj = true  # without CAP_SYS_RESOURCE a container could not be started
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{cni}"
    conf_dir = "{folder}/cni"
"""
# The namespace's first process, which reaps what is orphaned. What kubelet, runc and CNI would leave
# on the machine lies in memory, and goes with the namespace.
FIRST: Final = """\
mkdir -p /var/lib/kubelet
for place in /run /var/log /var/lib/kubelet; do mount -t tmpfs tmpfs $place || exit 1; done
containerd -c {folder}/containerd.toml >{folder}/logs/containerd.log 2>&1 &
until ctr -a {folder}/containerd.sock version >/dev/null 2>&1; do sleep 0.1; done
ctr -a {folder}/containerd.sock -n k8s.io images import {images} >/dev/null || exit 1
{kubelet} >{folder}/logs/kubelet.log 2>&1 &
wait
"""


def why_not(binaries: Path) -> str:
    """What is missing for a real node; "" if nothing is."""
    if os.geteuid() != 0:
        return "a real node needs root: containers are started"
    missing = [name for name in ("containerd", "ctr", "runc", "unshare") if not shutil.which(name)]
    missing += [name for name in ("kubelet", "images.tar") if not (binaries / name).exists()]
    missing += [] if (CNI / "bridge").exists() else ["containernetworking-plugins"]
    return f"a real node needs {', '.join(missing)}" if missing else ""


class RealNode:
    """A node of a cluster. `down` leaves no process, mount, cgroup or bridge.

    Several of them have numbers. Logs are to be had of pods on `localhost` only.
    """

    def __init__(self, cluster: Cluster, *, gpus: int, name: str = NODE, number: int = 0) -> None:
        self.cluster, self.gpus, self.name = cluster, gpus, name
        self.folder = cluster.folder / f"node{number or ''}"
        self.bridge = f"lax{os.getpid()}n{number}"
        self.subnet = f"10.{200 + os.getpid() % 50}.{(os.getpid() // 50 + number) % 250}"
        self._first: subprocess.Popen[bytes] | None = None

    def up(self) -> None:
        folder = self.folder
        for name in ("cni", "logs", "kubelet"):
            (folder / name).mkdir(parents=True)
        (folder / "containerd.toml").write_text(CONTAINERD.format(folder=folder, cni=CNI))
        (folder / "cni" / "10-bridge.conflist").write_text(json.dumps(self._network()))
        (folder / "kubelet.json").write_text(json.dumps(self._kubelet()))
        kubelet = shlex.join(
            [
                str(self.cluster.binaries / "kubelet"),
                f"--kubeconfig={self.cluster.kubeconfig}",
                f"--config={folder}/kubelet.json",
                f"--root-dir={folder}/kubelet",
                f"--cert-dir={folder}/certs",
                f"--hostname-override={self.name}",
                "--node-labels=type=real",
            ]
        )
        first = FIRST.format(
            folder=folder, images=self.cluster.binaries / "images.tar", kubelet=kubelet
        )
        with (folder / "logs" / "first.log").open("ab") as log:
            self._first = subprocess.Popen(
                [
                    "setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork",
                    "--kill-child=KILL", "--mount-proc", "sh", "-c", first,
                ],
                stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        self.cluster.until(self._ready, 240.0, "the real node to be ready")
        status = {"status": {"capacity": {"nvidia.com/gpu": str(self.gpus)}}}
        patch = ["patch", "node", self.name, "--subresource=status", "-p", json.dumps(status)]
        subprocess.run(
            [self.cluster.binaries / "kubectl", f"--kubeconfig={self.cluster.kubeconfig}", *patch],
            check=True,
            capture_output=True,
        )
        self.cluster.until(
            lambda: "nvidia.com/gpu" in self._node()["status"]["allocatable"], 120.0, "its GPUs"
        )

    def down(self) -> None:
        if self._first is None:
            return
        self._first.kill()  # unshare's child, the namespace's first process, goes with it
        self._first.wait()
        subprocess.run(["ip", "link", "delete", self.bridge], check=False, capture_output=True)
        for group in sorted(self._groups(), reverse=True):
            with suppress(OSError):
                group.rmdir()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _groups(self) -> Iterator[Path]:
        """Control groups of containers; who still has a process keeps its own."""
        for parent in Path("/sys/fs/cgroup").glob("**/k8s.io"):
            yield from (path for path in (parent, *parent.rglob("*")) if path.is_dir())

    def _node(self) -> Json:
        found: Json = self.cluster.ask("GET", f"/api/v1/nodes/{self.name}") or {"status": {}}
        return found

    def _ready(self) -> bool:
        if self._first is not None and self._first.poll() is not None:
            said = (self.folder / "logs" / "first.log").read_text()
            raise AssertionError(f"the node did not start: {said}; logs in {self.folder}/logs")
        conditions = self._node()["status"].get("conditions", [])
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    def _network(self) -> Json:
        ranges = [[{"subnet": f"{self.subnet}.0/24"}]]
        addresses = {"type": "host-local", "dataDir": f"{self.folder}/addresses", "ranges": ranges}
        routes = [{"dst": "0.0.0.0/0"}]
        bridge = {
            "type": "bridge",
            "bridge": self.bridge,
            "isGateway": True,
            "ipam": {**addresses, "routes": routes},
        }
        return {"cniVersion": "0.4.0", "name": "laxity", "plugins": [bridge]}

    def _kubelet(self) -> Json:
        port, health = free_ports(2)
        room = {
            "memory.available": "1Mi",
            "nodefs.available": "0%",
            "imagefs.available": "0%",
            "nodefs.inodesFree": "0%",
        }
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": "127.0.0.1",
            "port": port,
            "healthzPort": health,
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "containerRuntimeEndpoint": f"unix://{self.folder}/containerd.sock",
            "podLogsDir": f"{self.folder}/podlogs",
            "cgroupDriver": "cgroupfs",
            "cgroupsPerQOS": False,
            "enforceNodeAllocatable": [],
            "failCgroupV1": False,  # 1.35 refuses such machines otherwise
            "failSwapOn": False,
            "oomScoreAdj": 0,
            "localStorageCapacityIsolation": False,
            "evictionHard": room,
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
            "resolvConf": "",
            "nodeStatusUpdateFrequency": "5s",
            "kubeAPIQPS": 200,
            "kubeAPIBurst": 400,
        }


class Host:
    """What a pod mounts so that it runs this machine's Python and the code under test."""

    def __init__(self, *folders: Path) -> None:
        root = Path(__file__).parents[3]
        system = [Path(name) for name in ("/usr", "/bin", "/lib", "/lib64", "/etc")]
        python = [Path(sys.base_prefix).resolve(), Path(sys.prefix).resolve()]
        self.folders = _outermost([*system, *python, root, *folders])
        self.path = f"{Path(sys.executable).parent}:/usr/bin:/bin"

    def volumes(self) -> list[Json]:
        return [
            {"name": f"host-{number}", "hostPath": {"path": str(path)}}
            for number, path in enumerate(self.folders)
        ]

    def mounts(self) -> list[Json]:
        return [
            {"name": f"host-{number}", "mountPath": str(path)}
            for number, path in enumerate(self.folders)
        ]


def _outermost(folders: list[Path]) -> list[Path]:
    """Folders that exist, without those inside another one."""
    found: list[Path] = []
    for path in sorted({path for path in folders if path.is_dir()}):
        if not any(path.is_relative_to(outer) for outer in found):
            found.append(path)
    return found
