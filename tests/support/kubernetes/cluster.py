"""A real Kubernetes control plane on this machine, from a folder of binaries.

The folder is what KUBEBUILDER_ASSETS names: etcd, kube-apiserver and, for Jobs that run,
kube-controller-manager, kube-scheduler and kwok (simulated nodes). All of it listens on loopback.
"""

import json
import os
import shutil
import signal
import ssl
import subprocess
import time
from collections.abc import Callable, Iterable
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final

from tests.support.kubernetes.kept_connections import KeptConnections
from tests.support.processes import free_ports

# however this process ends, nothing that it started stays
DIES_WITH_US: Final = ("setpriv", "--pdeathsig", "KILL") if shutil.which("setpriv") else ()
STAGES: Final = Path(__file__).parent / "stages.yaml"
CONTROLLERS: Final = (
    "job-controller,garbage-collector-controller,namespace-controller,serviceaccount-controller,"
    "pod-garbage-collector-controller,node-lifecycle-controller,ttl-after-finished-controller,"
    "root-ca-certificate-publisher-controller,cronjob-controller,disruption-controller,"
    "resourcequota-controller,deployment-controller,replicaset-controller"
)


ACCOUNT: Final = "system:serviceaccount:laxity:laxity"
MUTATES: Final = (  # Kubernetes 1.34 and 1.35 serve MutatingAdmissionPolicy when told to
    "--feature-gates=MutatingAdmissionPolicy=true",
    "--runtime-config=admissionregistration.k8s.io/v1beta1=true",
)


class Cluster:
    """One control plane. `up` returns when it answers; `down` leaves no process behind."""

    def __init__(self, binaries: Path, folder: Path) -> None:
        self.binaries = binaries
        self.folder = folder
        self.kubeconfig = folder / "kubeconfig"  # of its administrator
        self.service_kubeconfig = folder / "kubeconfig-service"  # of laxity's own account
        self.audit_log = folder / "logs" / "audit.jsonl"  # all that laxity's account asked for
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._kept: KeptConnections | None = None
        (folder / "logs").mkdir(parents=True, exist_ok=True)

    def up(self, *, api_flags: Iterable[str] = ()) -> None:
        client, peer, self.port, self._manager, self._scheduler = free_ports(5)
        self._etcd = (client, peer)
        self._flags = tuple(api_flags)
        self._keys()
        self.start_etcd()
        self.start_api_server()
        if not self._has("kube-controller-manager"):
            return
        self.start_controller_manager()
        self.start_scheduler()
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        self.until(lambda: self.ask("GET", account) is not None, 120.0, "the service accounts")

    def start_etcd(self) -> None:
        client, peer = self._etcd
        self._start(
            "etcd", f"--data-dir={self.folder}/etcd", "--unsafe-no-fsync", "--log-level=error",
            f"--listen-client-urls=http://127.0.0.1:{client}",
            f"--advertise-client-urls=http://127.0.0.1:{client}",
            f"--listen-peer-urls=http://127.0.0.1:{peer}",
            f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}",
            f"--initial-cluster=default=http://127.0.0.1:{peer}",
        )  # fmt: skip

    def start_api_server(self) -> None:
        self._start(
            "kube-apiserver", f"--etcd-servers=http://127.0.0.1:{self._etcd[0]}",
            "--bind-address=127.0.0.1", f"--secure-port={self.port}",
            f"--cert-dir={self.folder}/certs", f"--token-auth-file={self.folder}/tokens.csv",
            "--authorization-mode=RBAC", f"--service-account-key-file={self.folder}/sa.pub",
            f"--service-account-signing-key-file={self.folder}/sa.key",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--service-cluster-ip-range=10.0.0.0/24", "--endpoint-reconciler-type=none",
            f"--audit-policy-file={self.folder}/audit.json", f"--audit-log-path={self.audit_log}",
            *self._flags,
        )  # fmt: skip
        self.until(lambda: self.ask("GET", "/readyz") is not None, 180.0, "the API server")

    def start_controller_manager(self) -> None:
        self._start(
            "kube-controller-manager", *self._client(), f"--secure-port={self._manager}",
            f"--service-account-private-key-file={self.folder}/sa.key",
            f"--root-ca-file={self.folder}/certs/apiserver.crt",
            "--concurrent-job-syncs=20", "--node-monitor-grace-period=2h",
            f"--controllers={CONTROLLERS}",
        )  # fmt: skip

    def start_scheduler(self) -> None:
        self._start(
            "kube-scheduler", *self._client(), f"--secure-port={self._scheduler}",
            "--authentication-skip-lookup=true",
        )  # fmt: skip

    def _client(self) -> tuple[str, ...]:
        """Flags of those that work for the API server: without delays, for there is one of each."""
        quick = ("--kube-api-qps=1000", "--kube-api-burst=2000", "--leader-elect=false")
        here = ("--bind-address=127.0.0.1", f"--cert-dir={self.folder}/certs")
        return (f"--kubeconfig={self.kubeconfig}", *quick, *here)

    def add_nodes(self, count: int, *, gpus: int = 8) -> None:
        """Simulated nodes gpu-0, gpu-1, ...: they are ready, and pods run on them."""
        if "kwok" not in self._running:
            self._start(
                "kwok", f"--kubeconfig={self.kubeconfig}", f"--config={STAGES}",
                "--manage-nodes-with-label-selector=type=kwok",
                "--node-lease-duration-seconds=3600", "--v=ERROR",
            )  # fmt: skip
        for number in range(count):
            self.ask("POST", "/api/v1/nodes", simulated_node(f"gpu-{number}", gpus))
        self.until(self._all_ready, 120.0 + count / 10, "simulated nodes to be ready")

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """One call as cluster administrator; None when it failed."""
        text_sent = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": "Bearer admin", "Content-Type": "application/json"}
        try:
            status, text = self._connect().ask(method, path, text_sent, headers)
        except (OSError, HTTPException):
            return None
        if status >= HTTPStatus.MULTIPLE_CHOICES:
            return None
        return json.loads(text) if text[:1] == b"{" else text.decode()

    def drop_lease(self) -> None:
        """Forget who acts: a service that a test has killed did not give its lease back."""
        self.ask("DELETE", "/apis/coordination.k8s.io/v1/namespaces/laxity/leases/laxity")

    def _connect(self) -> KeptConnections:
        """Possible once the API server has written its certificate: OSError before."""
        if self._kept is None:
            trust = ssl.create_default_context(cafile=self.folder / "certs/apiserver.crt")
            self._kept = KeptConnections(self.port, trust)
        return self._kept

    def stop(self, name: str, *, hard: bool = False) -> None:
        """Stop one of the programs, as when it crashes (`hard`) or is updated."""
        process = self._running.pop(name)
        process.send_signal(signal.SIGKILL if hard else signal.SIGTERM)
        try:
            process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def down(self) -> None:
        if self._kept is not None:
            self._kept.close()
            self._kept = None
        for name in reversed(list(self._running)):
            self.stop(name, hard=True)  # what they know goes with the folder

    def _keys(self) -> None:
        folder = self.folder
        for command in (
            ["openssl", "genrsa", "-out", f"{folder}/sa.key", "2048"],
            ["openssl", "rsa", "-in", f"{folder}/sa.key", "-pubout", "-out", f"{folder}/sa.pub"],
        ):
            subprocess.run(command, check=True, capture_output=True)
        groups = "system:serviceaccounts,system:serviceaccounts:laxity"
        (folder / "tokens.csv").write_text(
            f'admin,admin,admin,"system:masters"\nservice,{ACCOUNT},{ACCOUNT},"{groups}"\n'
        )
        self.kubeconfig.write_text(json.dumps(self._config("admin", self.port)))
        self.service_kubeconfig.write_text(json.dumps(self._config("service", self.port)))
        rules = [{"level": "Metadata", "users": [ACCOUNT]}, {"level": "None"}]
        policy = {
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            "omitStages": ["RequestReceived"],
            "rules": rules,
        }
        (folder / "audit.json").write_text(json.dumps(policy))

    def service_kubeconfig_by(self, port: int) -> Path:
        """Laxity's account, by another port of this machine: somebody stands in between."""
        found = self.folder / f"kubeconfig-service-{port}"
        found.write_text(json.dumps(self._config("service", port)))
        return found

    def _config(self, token: str, port: int) -> dict[str, Any]:
        cluster = {
            "server": f"https://127.0.0.1:{port}",
            "certificate-authority": f"{self.folder}/certs/apiserver.crt",
        }
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": token, "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": token}}],
        }

    def _has(self, name: str) -> bool:
        return os.access(self.binaries / name, os.X_OK)

    def _start(self, name: str, *flags: str) -> None:
        with (self.folder / "logs" / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                [*DIES_WITH_US, str(self.binaries / name), *flags],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def _all_ready(self) -> bool:
        nodes = (self.ask("GET", "/api/v1/nodes") or {}).get("items") or []
        ready = [
            condition["status"] == "True"
            for node in nodes
            for condition in node["status"].get("conditions") or [{"type": "Ready", "status": ""}]
            if condition["type"] == "Ready"
        ]
        return bool(ready) and all(ready)

    def until(self, done: Callable[[], bool], limit_s: float, what: str) -> None:
        end = time.monotonic() + limit_s
        while not done():
            if time.monotonic() > end:
                raise TimeoutError(f"waited {limit_s:.0f} s for {what}; logs in {self.folder}/logs")
            time.sleep(0.1)


def simulated_node(name: str, gpus: int) -> dict[str, Any]:
    room = {"cpu": "96", "memory": "768Gi", "pods": "110", "nvidia.com/gpu": str(gpus)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"type": "kwok", "kubernetes.io/hostname": name}},
        "status": {"allocatable": room, "capacity": room},
    }
