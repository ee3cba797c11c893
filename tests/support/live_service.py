"""A real service on this machine, and the command line in front of it."""

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from laxity import names
from laxity.api.client import Client, JobView
from tests.support.processes import ServerProcesses, free_ports, service_environment, stop_marked


class Live:
    """A service of its own, and the command line in front of it."""

    def __init__(self, home: Path, url: str, processes: ServerProcesses) -> None:
        self.home, self.processes = home, processes
        self.client = Client(url, processes.environment[names.ENV_TOKEN], patience_s=30)

    def laxity(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "laxity.cli.main", *arguments],
            env=self.processes.environment,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )

    def json(self, *arguments: str) -> Any:
        return json.loads(self.laxity(*arguments, "--json").stdout)

    def ended(self, name: str) -> JobView:
        return self.until(name, lambda job: job.ended)

    def until(self, name: str, so: Callable[[JobView], bool]) -> JobView:
        job = self.client.job(name)
        while not so(job):
            job = self.client.job(name, wait_s=20, seen=job.revision)
        return job


@contextmanager
def live_service(home: Path, *, slots: int = 2, **environ: str) -> Iterator[Live]:
    """A service with this home, and further variables, until the end; without MLflow and Prefect."""
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    environment = service_environment(home, service_url=url, prefect_url="http://127.0.0.1:9/api")
    environment |= {"MLFLOW_TRACKING_URI": "none", **environ}
    processes = ServerProcesses(home, environment)
    serve = ("serve", "--slots", str(slots), "--port", str(port))
    process = processes.start("service", [sys.executable, "-m", "laxity.cli.main", *serve])
    live = Live(home, url, processes)
    pause = threading.Event()
    try:
        while not live.client.alive():
            assert process.poll() is None, processes.tail("service")
            pause.wait(0.2)
        yield live
    finally:
        processes.stop()
        stop_marked(home)
