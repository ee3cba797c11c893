"""`laxity serve --world kubernetes` as a process of its own on the test cluster.

Started as people start it, or forked where a service_forker is given: then a start takes a moment.
It acts as the service account of the manifests, with the rights that they give it and no others.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self

import httpx

from laxity import names
from tests.support.builders import SECRET, TOKEN, bearer
from tests.support.kubernetes.cluster import DIES_WITH_US, Cluster
from tests.support.kubernetes.killable_services import End, Life, ServiceForker
from tests.support.manifests import indexed_job, train_template
from tests.support.processes import free_ports

LAXITY: Final = Path(sys.executable).with_name("laxity")
START_S: Final = 180.0
LIVES_ON: Final = End()
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
        store: str = "",
        service_forker: ServiceForker | None = None,
        kubeconfig: Path | None = None,
        **more: str,
    ) -> None:
        self.cluster, self.folder, self.service_forker = cluster, folder, service_forker
        self.store = store  # a database; "" for a file in the home, and no other service
        self.port = free_ports(1)[0]
        self.url = f"http://127.0.0.1:{self.port}"
        self.tracking_uri = tracking_uri
        self.log = folder / "serve.log"
        self.env = {
            "KUBECONFIG": str(kubeconfig or cluster.service_kubeconfig),
            "LAXITY_HOME": str(folder / "home"),
            "LAXITY_TOKEN": TOKEN,
            "LAXITY_WORKER_SECRET": SECRET,
            "LAXITY_STORE": store,
            **more,
        }
        self.life: Life | None = None

    def start(self, home: str = "home") -> None:
        """Returns when it is ready."""
        self.env["LAXITY_HOME"] = str(self.folder / home)
        self.begin()
        self.until_ready()

    def until_ready(self) -> None:
        self.cluster.until(self._ready, START_S, f"the service to be ready; its log is {self.log}")

    def begin(self, end: End = LIVES_ON) -> None:
        """Returns at once."""
        if not self.store and not Path(self.env["LAXITY_HOME"]).exists():
            self.cluster.drop_lease()
        arguments = ["serve", "--world", "kubernetes", "--port", str(self.port)]
        arguments += ["--tracking-uri", self.tracking_uri]
        if self.service_forker is not None:
            self.life = self.service_forker.fork(arguments, self.env, self.log, end)
            return
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("LAXITY_", "KUBE"))}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*DIES_WITH_US, str(LAXITY), *arguments],
                env={**inherited, **self.env}, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
            )  # fmt: skip

    def kill(self) -> None:
        if self.service_forker is not None:
            self.end()
            return
        self.process.kill()
        self.process.wait()

    def end(self, how: signal.Signals = signal.SIGKILL) -> None:
        """Of one that was forked."""
        if self.life is not None:
            self.life.end(how)

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
            self.end(signal.SIGTERM)
            return
        self.process.terminate()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.kill()

    def ask(self, method: str, path: str, body: Json | None = None) -> httpx.Response:
        """What it answers whoever shows the token that opens everything."""
        url = f"{self.url}{path}"
        return httpx.request(method, url, json=body, headers=bearer(), timeout=60.0)

    def said(self) -> Json:
        """What /readyz says; nothing if nobody answers."""
        try:
            reply = self.ask("GET", "/readyz")
        except httpx.HTTPError:
            return {}
        return dict(reply.json()) if reply.is_success else {}

    def dead(self) -> bool:
        if self.service_forker is not None:
            return self.life is None or not self.life.state()
        return self.process.poll() is not None

    def _ready(self) -> bool:
        assert not self.dead(), f"the service ended: {self.log.read_text()[-3000:]}"
        return bool(self.said().get("ready"))


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
