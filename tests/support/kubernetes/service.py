"""`laxity serve --world kubernetes` as a process of its own on the test cluster.

Started as people start it, or forked where a service_forker is given: then a start takes a moment.
It acts as the service account of the manifests, with the rights that they give it and no others.
"""

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final, Self

from laxity import names
from tests.support.builders import SECRET, TOKEN
from tests.support.kubernetes.cluster import DIES_WITH_US, Cluster
from tests.support.kubernetes.killable_services import ServiceForker
from tests.support.manifests import indexed_job, train_template
from tests.support.processes import free_ports

LAXITY: Final = Path(sys.executable).with_name("laxity")
START_S: Final = 180.0
MINE: Final = {names.MANAGED: "true"}
Json = dict[str, Any]


class Service:
    """One service; `home` may be another one after a restart: the Jobs are the record."""

    def __init__(
        self,
        cluster: Cluster,
        folder: Path,
        *,
        tracking_uri: str = "none",
        prefect_api: str = "",
        store: str = "",
        service_forker: ServiceForker | None = None,
        pools: str = "",
    ) -> None:
        self.cluster, self.folder, self.service_forker = cluster, folder, service_forker
        self.tracking_uri, self.prefect_api = tracking_uri, prefect_api
        self.pools = pools
        self.store = store  # a database; "" for a file in the home, and no other service
        self.port = free_ports(1)[0]
        self.log = folder / "serve.log"

    def start(self, home: str = "home") -> None:
        """Returns when it is ready."""
        self._spawn(self.folder / home)
        self.cluster.until(self._ready, START_S, f"the service to be ready; its log is {self.log}")

    def _spawn(self, home: Path) -> None:
        if not self.store and not home.exists():
            self.cluster.drop_lease()
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("LAXITY_", "KUBE"))}
        env = {
            "KUBECONFIG": str(self.cluster.service_kubeconfig),
            "LAXITY_HOME": str(home),
            "LAXITY_TOKEN": TOKEN,
            "LAXITY_WORKER_SECRET": SECRET,
            "PREFECT_API_URL": self.prefect_api,
            "LAXITY_STORE": self.store,
            "LAXITY_POOLS": self.pools,
        }
        arguments = ["serve", "--world", "kubernetes", "--port", str(self.port)]
        arguments += ["--tracking-uri", self.tracking_uri]
        if self.service_forker is not None:
            self.life = self.service_forker.fork(arguments, env, self.log)
            return
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*DIES_WITH_US, str(LAXITY), *arguments],
                env={**inherited, **env}, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
            )  # fmt: skip

    def kill(self) -> None:
        if self.service_forker is not None:
            self.life.end()
            return
        self.process.kill()
        self.process.wait()

    @contextmanager
    def running(self) -> Iterator[Self]:
        """Started, and stopped at the end whatever happens."""
        try:
            self.start()
            yield self
        finally:
            self.stop()

    def stop(self) -> None:
        if self.service_forker is not None:
            self.life.end(signal.SIGTERM)
            return
        self.process.terminate()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.kill()

    def _ready(self) -> bool:
        if self._dead():
            raise AssertionError(f"the service ended: {self.log.read_text()[-3000:]}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=5) as reply:
                reply.read()
        except urllib.error.HTTPError as not_yet:
            not_yet.close()
            return False
        except (OSError, HTTPException):
            return False
        return True

    def _dead(self) -> bool:
        if self.service_forker is not None:
            return not self.life.state()
        return self.process.poll() is not None


def training_job(
    namespace: str,
    name: str,
    asked: Mapping[str, str],
    *,
    labels: Mapping[str, str] = MINE,
    run_s: float | None = None,
    suspend: bool = True,
) -> Json:
    """A Job as somebody writes it by hand; its simulated pods run for `run_s`, or until deleted.

    `asked` are laxity's annotations, without its domain.
    """
    template = train_template(image="none")
    told = {} if run_s is None else {"test.laxity/run-for": f"{run_s}s"}
    template["metadata"] = {"annotations": told}
    spec = {"suspend": suspend}
    return indexed_job(name, template, asked, namespace=namespace, labels=labels, spec=spec)


def verdict_of(job: Json) -> Json:
    found: Json = json.loads(job["metadata"].get("annotations", {}).get(names.VERDICT, "{}"))
    return found
