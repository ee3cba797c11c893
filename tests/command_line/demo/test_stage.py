import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from examples.demo.processes import DemoProcesses
from examples.demo.servers import Stage, demo_environment, empty_folder, free_ports
from laxity import names
from laxity.api.client import Client
from laxity.cli.exit_codes import USAGE, CommandError


def test_a_folder_that_no_demo_made_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")

    with pytest.raises(CommandError, match="is not empty") as caught:
        empty_folder(tmp_path)

    assert caught.value.code == USAGE
    assert (tmp_path / "thesis.tex").exists()


def test_what_an_earlier_demo_made_is_wiped(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    empty_folder(folder)
    (folder / "report.json").write_text("{}")

    empty_folder(folder)

    assert not (folder / "report.json").exists()


def test_a_users_own_servers_are_none_of_the_demos_business(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "https://cloud.example")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://mlflow.example")
    monkeypatch.setenv("LAXITY_TOKEN", "secret")

    found = demo_environment(tmp_path, service_url="http://a", prefect_url="http://b/api")

    assert found["PREFECT_API_URL"] == "http://b/api"
    assert found["MLFLOW_TRACKING_URI"] == f"sqlite:///{tmp_path}/mlflow.db"
    assert found["LAXITY_TOKEN"] not in ("", "secret")
    assert found[names.ENV_HOME] == str(tmp_path)


def staged(folder: Path, **programs: str) -> Stage:
    """The other servers as these programs; `service` starts when the stage starts it."""
    processes = DemoProcesses(folder, {})
    serve = [sys.executable, "-c", programs.pop("service")]
    for name, program in programs.items():
        processes.start(name, [sys.executable, "-c", program]).wait(20)
    client = Client("http://127.0.0.1:9", "")
    return Stage(folder, 3, processes, client, "http://127.0.0.1:9/api", serve)


def ends(name: str) -> str:
    return f"print('{name} has no port'); raise SystemExit(3)"


@pytest.mark.parametrize("bad", ["mlflow", "service", "prefect"])
def test_a_server_that_ends_is_told_with_its_last_words(tmp_path: Path, bad: str) -> None:
    stays = "import time; time.sleep(60)"
    programs = {"service": stays, "mlflow": "pass", "prefect": "pass"} | {bad: ends(bad)}
    if bad != "prefect":
        del programs["prefect"]
    stage = staged(tmp_path, **programs)
    try:
        with pytest.raises(CommandError, match=rf"{bad} ended with status 3:\n{bad} has no port"):
            stage.ready(lambda _: None)
    finally:
        stage.close()


def test_the_service_starts_when_the_tables_of_the_store_are_made(tmp_path: Path) -> None:
    stage = staged(tmp_path, service=ends("service"), mlflow=ends("mlflow"))
    with pytest.raises(CommandError, match="mlflow ended"):
        stage.ready(lambda _: None)
    assert "service" not in stage.processes.running


class Fine(BaseHTTPRequestHandler):
    """A server that is well, whatever it is asked."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


def test_a_stage_that_is_ready_says_how_long_that_took(tmp_path: Path) -> None:
    told: list[str] = []
    with ThreadingHTTPServer(("127.0.0.1", 0), Fine) as server:
        threading.Thread(target=server.serve_forever).start()
        stage = staged(tmp_path, service="import time; time.sleep(60)", mlflow="pass")
        stage.prefect_url = f"http://127.0.0.1:{server.server_port}"
        stage.client = Client(stage.prefect_url, "")
        try:
            took_s = stage.ready(told.append)
        finally:
            stage.close()
            server.shutdown()

    assert took_s > 0.0
    assert {words.split()[0] for words in told} == {"mlflow", "service", "prefect"}


def test_free_ports_are_free_and_different() -> None:
    ports = free_ports(3)

    assert len(set(ports)) == 3
    outgoing = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    assert max(ports) < int(outgoing[0]), "or a connection may take one before a server does"
    for port in ports:
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", port))
