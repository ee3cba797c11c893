"""A real service on this machine, and the means to attack it: sockets, floods, a look at its memory."""

import json
import os
import resource
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path

import psutil

from laxity_scheduler.process.instance_dir import InstanceDir
from tests.support.processes import run_command

MEGABYTE = 1024 * 1024


@dataclass(frozen=True)
class Attacked:
    """One service: where it listens, its token, its process."""

    home: Path
    host: str
    port: int
    token: str
    process: psutil.Process

    def ask(
        self, method: str, path: str, body: bytes | None = None, **headers: str
    ) -> tuple[int, bytes, float]:
        """Status, body and seconds of one call, with the token unless another one is given."""
        shown = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        connection = HTTPConnection(self.host, self.port, timeout=60)
        began = time.monotonic()
        try:
            connection.request(method, path, body, shown | headers)
            answer = connection.getresponse()
            return answer.status, answer.read(), time.monotonic() - began
        finally:
            connection.close()

    def megabytes(self) -> float:
        """The memory that it holds."""
        return float(self.process.memory_info().rss) / MEGABYTE

    def connections(self) -> int:
        """Connections that it holds open."""
        found = self.process.net_connections(kind="tcp")
        return sum(one.status == psutil.CONN_ESTABLISHED for one in found)

    @contextmanager
    def half_open(self, number: int, sent: bytes) -> Iterator[list[socket.socket]]:
        """So many connections that have sent this much of a request and fall silent."""
        with ExitStack() as stack, more_files(2 * number + 200):
            yield [stack.enter_context(self.opened(sent)) for _ in range(number)]

    def opened(self, sent: bytes) -> socket.socket:
        """One connection that has sent this."""
        made = socket.create_connection((self.host, self.port), timeout=60)
        made.sendall(sent)
        return made


@contextmanager
def more_files(number: int) -> Iterator[None]:
    """Let this process have so many files open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, number), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def laxity(home: Path, *arguments: str) -> str:
    """Run a command on this home; what it printed."""
    env = {name: text for name, text in os.environ.items() if not name.startswith("LAXITY_")}
    done = run_command(
        sys.executable,
        "-m",
        "laxity.cli.main",
        *arguments,
        env=env | {"LAXITY_HOME": str(home), "MLFLOW_TRACKING_URI": "none"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@contextmanager
def attacked(home: Path, *, host: str = "127.0.0.1") -> Iterator[Attacked]:
    """`laxity up` on this home, and `laxity down` at the end."""
    arguments = ("--host", host, "--port", "0", "--slots", "2", "--tracking-uri", "none")
    laxity(home, "up", *arguments)
    try:
        running = InstanceDir(home).running_service()
        assert running is not None
        said = json.loads((home / "service.json").read_text())
        port = int(said["url"].rpartition(":")[2])
        yield Attacked(home, host, port, said["token"], psutil.Process(running.pid))
    finally:
        laxity(home, "down")
