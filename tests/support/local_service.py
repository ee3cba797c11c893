"""A real service on this machine, and the command line in front of it."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx

from laxity import names
from laxity.api.client import Client, JobView
from tests.support.builders import bearer
from tests.support.processes import (
    ServerProcesses,
    free_ports,
    pids_with_home,
    run_command,
    service_environment,
)
from tests.support.waiting import until

NO_PREFECT: Final = "http://127.0.0.1:9/api"


class LocalService:
    """`laxity serve` on a home of its own, with further `options` and variables.

    `program` is what Python runs instead of the command line of laxity.
    """

    patience_s = 240.0

    def __init__(
        self,
        home: Path,
        *,
        slots: int = 2,
        prefect_api: str = NO_PREFECT,
        tracking_uri: str = "none",
        options: Sequence[str] = (),
        program: Sequence[str] = ("-m", "laxity.cli.main"),
        **env: str,
    ) -> None:
        (self.port,) = free_ports(1)
        self.home, self.url = home, f"http://127.0.0.1:{self.port}"
        own = service_environment(home, service_url=self.url, prefect_url=prefect_api)
        self.environment = own | {"MLFLOW_TRACKING_URI": tracking_uri} | env
        self.processes = ServerProcesses(home, {**self.environment, "STORE_PASSWORD": "hidden"})
        self.client = Client(self.url, self.environment[names.ENV_TOKEN], patience_s=60)
        serve = ("serve", "--slots", str(slots), "--port", str(self.port))
        self._command = [sys.executable, *program, *serve, *options]

    def start(self) -> None:
        """Returns when it answers."""
        process = self.processes.start("service", self._command)
        until(lambda: self.client.alive() or process.poll() is not None, "the service", limit_s=180)
        assert process.poll() is None, self.processes.tail("service")

    def kill(self) -> None:
        self.processes.running["service"].kill()
        self.processes.running["service"].wait()

    def laxity(
        self, *arguments: str, cwd: Path | None = None, **env: str
    ) -> "subprocess.CompletedProcess[str]":
        return run_command(
            Path(sys.executable).with_name("laxity"),
            *arguments,
            env={**self.environment, **env},
            cwd=cwd,
            timeout=180,
        )

    def json(self, *arguments: str) -> Any:
        return json.loads(self.laxity(*arguments, "--json").stdout)

    def ask(self, method: str, path: str, body: Any = None) -> httpx.Response:
        """What it answers whoever shows the token."""
        shown = bearer(self.environment[names.ENV_TOKEN])
        return httpx.request(method, self.url + path, json=body, headers=shown, timeout=60.0)

    def until(self, job: str, so: Callable[[JobView], bool]) -> JobView:
        """The job once it is so."""
        end_at, view = time.monotonic() + self.patience_s, self.client.job(job)
        while not so(view):
            assert time.monotonic() < end_at, f"{view}\n{self.processes.tail('service')}"
            view = self.client.job(job, wait_s=10, seen=view.revision)
        return view

    def ended(self, job: str) -> JobView:
        return self.until(job, lambda view: view.ended)

    def workers(self) -> list[int]:
        """Processes that train for this home (not the shims that watch them)."""
        found = []
        for number in pids_with_home(self.home):
            try:
                command = Path(f"/proc/{number}/cmdline").read_bytes()
            except OSError:
                continue
            if b"laxity.worker" in command.split(b"\0"):
                found.append(number)
        return found

    def lines(self, job: str, kind: str = "epoch") -> dict[str, list[Any]]:
        """By file, the lines of a kind that were reported in the folder of a training."""
        namespace, _, name = job.rpartition("/")
        (place,) = (self.home / "checkpoints" / (namespace or "default")).glob(f"{name}-????????")
        return {
            path.name: [
                line
                for line in map(json.loads, path.read_text().splitlines())
                if line["kind"] == kind
            ]
            for path in place.glob("reports*.jsonl")
        }

    def reported_epochs(self, job: str) -> dict[str, list[int]]:
        """By file, the numbers of these epochs."""
        return {file: [line["epoch"] for line in lines] for file, lines in self.lines(job).items()}


@contextmanager
def local_service(home: Path, **given: Any) -> Iterator[LocalService]:
    """A service until the end, at which nothing is left that it has started."""
    made = LocalService(home, **given)
    try:
        made.start()
        yield made
    finally:
        made.processes.stop()
