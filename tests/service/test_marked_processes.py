import socket
import subprocess
import sys
from pathlib import Path

from laxity import names
from tests.support.processes import ServerProcesses, free_ports, pids_with_home, stop_marked

WAITS = "import signal; signal.pause()"
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); signal.pause()"


def waiting(home: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", WAITS], env={names.ENV_HOME: str(home)})


def test_what_an_earlier_run_left_is_found_by_its_home_and_stopped(tmp_path: Path) -> None:
    left, stranger = waiting(tmp_path / "demo"), waiting(tmp_path / "other")

    stopped = stop_marked(tmp_path / "demo", grace_s=0.5)

    assert stopped == 1
    assert left.wait(10) != 0
    assert stranger.poll() is None
    stranger.kill()
    stranger.wait()


def test_a_process_that_does_not_listen_is_killed(tmp_path: Path) -> None:
    deaf = subprocess.Popen(
        [sys.executable, "-c", DEAF],
        env={names.ENV_HOME: str(tmp_path)},
        stdout=subprocess.PIPE,
    )
    assert deaf.stdout is not None
    with deaf.stdout:
        deaf.stdout.readline()

        stop_marked(tmp_path, grace_s=0.2)

        assert deaf.wait(10) == -9


def test_stopping_leaves_nothing_of_what_was_started(tmp_path: Path) -> None:
    processes = ServerProcesses(tmp_path, {names.ENV_HOME: str(tmp_path)})
    first = processes.start("first", [sys.executable, "-c", WAITS])
    second = processes.start("second", [sys.executable, "-c", "print('hello')"])
    second.wait(10)

    processes.stop(last=("first",))

    assert first.poll() is not None
    assert pids_with_home(tmp_path) == []
    assert processes.tail("second") == "hello"


def test_free_ports_are_free_and_different() -> None:
    ports = free_ports(3)

    assert len(set(ports)) == 3
    outgoing = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    assert max(ports) < int(outgoing[0]), "or a connection may take one before a server does"
    for port in ports:
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", port))
