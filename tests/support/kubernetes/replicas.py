"""Replicas of the service on the test cluster, each of which a test may kill or pause at a step."""

import json
import signal
import urllib.error
import urllib.request
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final, Self

from tests.support.builders import SECRET, TOKEN, bearer
from tests.support.kubernetes.cluster import Cluster
from tests.support.kubernetes.killable_services import WOKEN, End, Life, ServiceForker
from tests.support.processes import free_ports

START_S: Final = 180.0
LIVES_ON: Final = End()


class Replica:
    """One replica, with a home of its own. Without a store it is the only service."""

    def __init__(
        self, cluster: Cluster, service_forker: ServiceForker, folder: Path, *,
        store: str = "", lease_s: float = 15.0, pods_within_s: float = 60.0,
        kubeconfig: Path | None = None,
    ) -> None:  # fmt: skip
        folder.mkdir()
        self.cluster, self.service_forker, self.log = cluster, service_forker, folder / "serve.log"
        self.port = free_ports(1)[0]
        self.url = f"http://127.0.0.1:{self.port}"
        self.env = {
            "KUBECONFIG": str(kubeconfig or cluster.service_kubeconfig),
            "LAXITY_HOME": str(folder / "home"),
            "LAXITY_TOKEN": TOKEN,
            "LAXITY_WORKER_SECRET": SECRET,
            "LAXITY_LEASE_S": f"{lease_s:g}",
            "LAXITY_PODS_WITHIN_S": f"{pods_within_s:g}",
        }
        if store:
            self.env["LAXITY_STORE"] = store
        self.life: Life | None = None

    def __enter__(self) -> Self:
        """Started and ready; nothing of it is left afterwards."""
        try:
            self.start()
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def begin(self, end: End = LIVES_ON) -> None:
        """Returns at once."""
        if "LAXITY_STORE" not in self.env and not Path(self.env["LAXITY_HOME"]).exists():
            self.cluster.drop_lease()
        arguments = ["serve", "--world", "kubernetes", "--port", str(self.port)]
        arguments += ["--tracking-uri", "none"]
        self.life = self.service_forker.fork(arguments, self.env, self.log, end)

    def start(self, end: End = LIVES_ON) -> None:
        """Returns when it is ready."""
        self.begin(end)
        what = f"a replica to be ready; its log is {self.log}"
        self.cluster.until(self._ready, START_S, what)

    def _ready(self) -> bool:
        assert not self.dead(), self.log.read_text()[-3000:]
        return bool(self.said().get("ready"))

    def dead(self) -> bool:
        return self.life is None or not self.life.state()

    def paused(self) -> bool:
        """AssertionError with its log if it died instead."""
        assert not self.dead(), self.log.read_text()[-3000:]
        return self.life is not None and self.life.state() == "T"

    def wake(self) -> None:
        assert self.life is not None
        self.life.send(signal.SIGCONT)

    def end(self, how: signal.Signals = signal.SIGKILL) -> None:
        if self.life is not None:
            self.life.end(how)

    def said(self) -> dict[str, Any]:
        """What /readyz says; nothing if nobody answers."""
        asked = urllib.request.Request(  # noqa: S310 - http on loopback
            f"{self.url}/readyz", headers=bearer()
        )
        try:
            with urllib.request.urlopen(asked, timeout=30) as reply:  # noqa: S310
                found: dict[str, Any] = json.load(reply)
        except urllib.error.HTTPError as not_yet:
            not_yet.close()
            return {}
        except (OSError, HTTPException, ValueError):
            return {}
        return found

    def blind(self) -> str:
        """Why it decides nothing."""
        return str(self.said().get("blind", ""))

    def leads(self) -> bool:
        return bool(self.said().get("leads"))

    def woken(self) -> list[tuple[str, int]]:
        """What it sent after a pause, and the status that it was answered with."""
        lines = [line for line in self.log.read_text().splitlines() if line.startswith(WOKEN)]
        return [(line.split()[4], int(line.split()[-1])) for line in lines]
