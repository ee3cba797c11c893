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

from laxity.api.client import Client
from laxity.job.qos import QoS
from laxity.job.spec import TrainingSpec
from tests.support.builders import TOKEN
from tests.support.processes import free_ports
from tests.support.programs import marked as script

SCRIPT = Path(script.__file__)
LAXITY = Path(sys.executable).with_name("laxity")


class Stage:
    """One home folder: a service on 3 slots, plain jobs, and flows by a Prefect API."""

    def __init__(self, home: Path, prefect_api: str) -> None:
        self.home, self.evidence = home, home / "evidence"
        self.evidence.mkdir(parents=True)
        self.port = free_ports(1)[0]
        self.url = f"http://127.0.0.1:{self.port}"
        self.client = Client(self.url, TOKEN, patience_s=60.0)
        self.env = {
            **os.environ,
            "LAXITY_HOME": str(home),
            "LAXITY_URL": self.url,
            "LAXITY_TOKEN": TOKEN,
            "PREFECT_API_URL": prefect_api,
            "OPENBLAS_NUM_THREADS": "1",
        }
        self.flows: dict[str, subprocess.Popen[bytes]] = {}
        self.killed: list[str] = []
        self.start_service()

    def start_service(self) -> None:
        with (self.home / "serve.log").open("ab") as log:
            self.service = subprocess.Popen(
                [str(LAXITY), "serve", "--slots", "3", "--port", str(self.port)],
                env=self.env, stdout=log, stderr=log,
            )  # fmt: skip

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
        with (self.home / f"flow-{name}.log").open("ab") as log:
            self.flows[name] = subprocess.Popen(
                [sys.executable, str(SCRIPT), name, str(self.evidence)],
                env=self.env, stdout=log, stderr=log,
            )  # fmt: skip

    def workers(self) -> list[int]:
        """Processes that train for this home (not the shims that watch them)."""
        found = []
        for process in Path("/proc").iterdir():
            if not process.name.isdigit():
                continue
            try:
                command = (process / "cmdline").read_bytes()
                environment = (process / "environ").read_bytes()
            except OSError:
                continue
            if b"laxity.worker" in command and str(self.home).encode() in environment:
                found.append(int(process.name))
        return found

    def kill(self, kind: str, rng: np.random.Generator) -> bool:
        """Kill one process of that kind with -9, and start service and flows again."""
        if kind == "service":
            self.service.kill()
            self.service.wait()
            self.start_service()
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

    def close(self) -> None:
        for flow in self.flows.values():
            flow.kill()
            flow.wait()
        self.service.kill()
        self.service.wait()
        subprocess.run([str(LAXITY), "down"], env=self.env, check=False, capture_output=True)


@contextmanager
def stage(home: Path, prefect_api: str) -> Iterator[Stage]:
    opened = Stage(home, prefect_api)
    try:
        yield opened
    finally:
        opened.close()
