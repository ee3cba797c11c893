"""What the demo plays on: one Prefect API, one service with a local cluster, one MLflow store.

All three start side by side, because a fresh Prefect database alone takes ten seconds and more.
"""

import os
import random
import secrets
import shutil
import socket
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from examples.demo.processes import DemoProcesses, stop_marked
from laxity import names
from laxity.api.client import Client
from laxity.cli.exit_codes import USAGE, CommandError

START_S: Final = 180.0
MARK: Final = "made-by-laxity-demo"
# The tables of an MLflow store take seconds to make; workers that all began with it would wait.
MIGRATE: Final = (
    "import sys; from laxity.worker.mlflow_tracking import write_ahead; from mlflow import MlflowClient; "
    "MlflowClient(sys.argv[1]).search_experiments(); write_ahead(sys.argv[1])"
)
POLL_S: Final = 0.2
PORTS: Final = range(20_000, 32_768)  # below those of outgoing connections, by default
QUIET: Final = {
    "DO_NOT_TRACK": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "NO_PROXY": "127.0.0.1,localhost",
    "no_proxy": "127.0.0.1,localhost",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_LOGGING_LEVEL": "WARNING",
    "PREFECT_LOGGING_TO_API_ENABLED": "false",
    "PYTHONUNBUFFERED": "1",
}
# One worker, one core: the demo's slots are worth the same, and two workers are twice as fast.
ONE_CORE: Final = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1"
)
FOREIGN: Final = ("PREFECT_", "MLFLOW_", "LAXITY_")  # a user's own servers are none of its business


@dataclass(slots=True)
class Stage:
    """Everything that runs beside the trainings. `open` starts it, `close` leaves nothing."""

    folder: Path
    slots: int
    processes: DemoProcesses
    client: Client
    prefect_url: str
    serve: Sequence[str]  # the service's command

    def ready(self, tell: Callable[[str], None]) -> float:
        """Seconds until service and Prefect API answer; CommandError with the log's end if not."""
        waits: dict[str, Callable[[], bool]] = {
            "mlflow": self._tables_made,
            "service": lambda: "service" in self.processes.running and self.client.alive(),
            "prefect": lambda: _is_answering(f"{self.prefect_url}/health"),
        }
        began = time.monotonic()
        shown: set[str] = set()
        while len(shown) < len(waits):
            for name, answers in waits.items():
                if name not in shown and answers():
                    shown.add(name)
                    tell(f"{name} answers after {time.monotonic() - began:.0f} s")
                if name not in shown:
                    self.check_alive(name)
            if time.monotonic() - began > START_S:
                missing = ", ".join(name for name in waits if name not in shown)
                raise CommandError(
                    f"{missing}: no answer within {START_S:.0f} s; see {self.folder}/logs"
                )
            time.sleep(POLL_S)
        return time.monotonic() - began

    def _tables_made(self) -> bool:
        """Then the service starts: two that make an MLflow store's tables trip over each other."""
        made = self.processes.running["mlflow"].poll() == 0
        if made:
            self.processes.start("service", self.serve)
        return made

    def check_alive(self, name: str) -> None:
        """CommandError, with the end of its log, if that process has ended."""
        process = self.processes.running.get(name)
        if process is not None and process.poll() is not None:
            log_tail = self.processes.tail(name)
            raise CommandError(f"{name} ended with status {process.returncode}:\n{log_tail}")

    def close(self) -> None:
        self.processes.stop(last=("prefect",))


def open_stage(folder: Path, *, slots: int) -> Stage:
    """Wipe the folder, end what an earlier run left, and start all servers."""
    empty_folder(folder)
    service_port, prefect_port = free_ports(2)
    service_url = f"http://127.0.0.1:{service_port}"
    prefect_url = f"http://127.0.0.1:{prefect_port}/api"
    environment = demo_environment(folder, service_url=service_url, prefect_url=prefect_url)
    processes = DemoProcesses(folder, environment)
    python = (sys.executable, "-P")  # nothing is imported from the current folder
    serve = [*python, "-m", "laxity.cli.main", "serve"]
    serve += ["--slots", str(slots), "--port", str(service_port)]
    client = Client(service_url, environment[names.ENV_TOKEN], patience_s=20.0)
    stage = Stage(folder, slots, processes, client, prefect_url, serve)
    processes.start("mlflow", [*python, "-c", MIGRATE, f"sqlite:///{folder / 'mlflow.db'}"])
    processes.start(
        "prefect",
        [
            *("nice", "-n", "10", *python, "-m", "prefect", "server", "start", "--no-services"),
            *("--host", "127.0.0.1", "--port", str(prefect_port)),
        ],
    )
    return stage


def empty_folder(folder: Path) -> None:
    """An empty folder, and no process of an earlier demo in it.

    Only what a demo made is wiped: CommandError for a folder that holds anything else.
    """
    mark = folder / MARK
    if folder.exists() and any(folder.iterdir()) and not mark.exists():
        message = f"{folder} is not empty and no demo made it: name another --home"
        raise CommandError(message, code=USAGE)
    stop_marked(folder)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    mark.touch()


def demo_environment(folder: Path, *, service_url: str, prefect_url: str) -> dict[str, str]:
    """The environment of everything in the demo: its own servers, one core a worker, no noise."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    return {
        **inherited,
        **QUIET,
        **ONE_CORE,
        names.ENV_HOME: str(folder),
        names.ENV_URL: service_url,
        names.ENV_TOKEN: secrets.token_urlsafe(32),
        names.ENV_TRACKED_BY: "service",  # or each of the short trainings would import MLflow
        "MLFLOW_TRACKING_URI": f"sqlite:///{folder / 'mlflow.db'}",
        "PREFECT_API_URL": prefect_url,
        "PREFECT_HOME": str(folder / "prefect"),
        "MPLCONFIGDIR": str(folder / "matplotlib"),
    }


def free_ports(number: int) -> list[int]:
    """Ports that nobody listens on now, all different.

    None that the system gives to outgoing connections: a server takes seconds to start, and may
    find that one has gone meanwhile.
    """
    anywhere, ports = random.SystemRandom(), list[int]()
    with ExitStack() as held:
        while len(ports) < number:
            listener = held.enter_context(socket.socket())
            with suppress(OSError):  # taken
                listener.bind(("127.0.0.1", anywhere.choice(PORTS)))
                ports.append(listener.getsockname()[1])
    return ports


def _is_answering(url: str) -> bool:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=2.0) as answer:
            return bool(answer.status < 400)
    except (OSError, urllib.error.URLError):
        return False
