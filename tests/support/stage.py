"""A service, jobs and flows as processes of their own, and the means to kill any of them."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from laxity.job.qos import QoS
from laxity.job.spec import TrainingSpec
from tests.support.local_service import NO_PREFECT, LocalService
from tests.support.programs import marked as script

SCRIPT = Path(script.__file__)


class Stage(LocalService):
    """One home folder: a service on 3 slots, plain jobs, and flows by a Prefect API."""

    def __init__(self, home: Path, prefect_api: str) -> None:
        super().__init__(
            home, slots=3, prefect_api=prefect_api, tracking_uri=f"sqlite:///{home}/mlflow.db"
        )
        self.evidence = home / "evidence"
        self.evidence.mkdir(parents=True)
        self.flows: dict[str, subprocess.Popen[bytes]] = {}
        self.killed: list[str] = []

    def submit(self, name: str, **asked: Any) -> str:
        """A plain job by the HTTP API; asked again and again until somebody answers."""
        spec = TrainingSpec(
            name=f"job-{name}",
            qos=QoS.of(epoch_estimate="2s", **asked),
            model="marked",
            epochs=script.EPOCHS,
            entry=f"{SCRIPT}:marked",
            parameters={"name": name, "folder": str(self.evidence)},
            idempotency_key=f"crash-{name}",
        )
        return str(self.client.submit(spec.to_manifest()).id)

    def start_flow(self, name: str) -> None:
        command = [sys.executable, str(SCRIPT), name, str(self.evidence)]
        self.flows[name] = self.processes.start(f"flow-{name}", command)

    def kill_one(self, kind: str, rng: np.random.Generator) -> bool:
        """Kill one process of that kind with -9, and start service and flows again."""
        if kind == "service":
            self.kill()
            self.start()
        elif kind == "worker":
            running = sorted(self.workers())
            if not running:
                return False
            os.kill(running[int(rng.integers(len(running)))], signal.SIGKILL)
        else:
            alive = sorted(name for name, flow in self.flows.items() if flow.poll() is None)
            if not alive:
                return False
            name = alive[int(rng.integers(len(alive)))]
            self.flows[name].kill()
            self.flows[name].wait()
            self.start_flow(name)
        self.killed.append(kind)
        return True


@contextmanager
def stage(home: Path, prefect_api: str = NO_PREFECT) -> Iterator[Stage]:
    opened = Stage(home, prefect_api)
    try:
        opened.start()
        yield opened
    finally:
        opened.processes.stop()
