"""Replicas of the service on the test cluster, each of which a test may kill or pause at a step."""

import signal
from pathlib import Path
from typing import Any, Self

from tests.support.kubernetes.cluster import Cluster
from tests.support.kubernetes.killable_services import WOKEN, ServiceForker
from tests.support.kubernetes.service import Service


class Replica(Service):
    """One replica, with a home of its own. Without a store it is the only service."""

    def __init__(
        self, cluster: Cluster, service_forker: ServiceForker, folder: Path, *,
        lease_s: float = 15.0, pods_within_s: float = 60.0, **more: Any,
    ) -> None:  # fmt: skip
        folder.mkdir()
        times = {"LAXITY_LEASE_S": f"{lease_s:g}", "LAXITY_PODS_WITHIN_S": f"{pods_within_s:g}"}
        super().__init__(cluster, folder, service_forker=service_forker, **{**times, **more})

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

    def paused(self) -> bool:
        """AssertionError with its log if it died instead."""
        assert not self.dead(), self.log.read_text()[-3000:]
        return self.life is not None and self.life.state() == "T"

    def wake(self) -> None:
        assert self.life is not None
        self.life.send(signal.SIGCONT)

    def blind(self) -> str:
        """Why it decides nothing."""
        return str(self.said().get("blind", ""))

    def leads(self) -> bool:
        return bool(self.said().get("leads"))

    def woken(self) -> list[tuple[str, int]]:
        """What it sent after a pause, and the status that it was answered with."""
        lines = [line for line in self.log.read_text().splitlines() if line.startswith(WOKEN)]
        return [(line.split()[4], int(line.split()[-1])) for line in lines]
