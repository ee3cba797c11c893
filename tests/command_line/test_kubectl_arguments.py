"""kubectl laxity reads flags where kubectl's users write them, and says a service's error in words."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from laxity.cli import kubectl_plugin

SAYS = "deadline: '2hh' is no duration"


class Service(BaseHTTPRequestHandler):
    """Answers every call as laxity answers a Job that cannot be read."""

    def do_POST(self) -> None:
        body = json.dumps({"error": {"code": "invalid", "message": SAYS}}).encode()
        self.send_response(422)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Write nothing."""


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A kubectl that notes its arguments in this file and prints one promised Job."""
    kubectl, noted = tmp_path / "kubectl", tmp_path / "asked"
    table = "NAME VERDICT\\nfirst promised\\n"
    kubectl.write_text(
        f"#!/bin/sh\nprintf '%s\\n' \"$@\" > {noted}\n"
        f"case $1 in get) printf '{table}';; *) echo '{{}}';; esac\n"
    )
    kubectl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return noted


@pytest.fixture
def service() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Service) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(("get", "-n", "team", "first"), id="before the name"),
        pytest.param(("get", "first", "-n", "team"), id="after the name"),
        pytest.param(("-n", "team", "get", "first"), id="before the command"),
    ],
)
def test_a_namespace_may_stand_anywhere(arguments: tuple[str, ...], asked: Path) -> None:
    assert kubectl_plugin.main(arguments) == 0
    words = asked.read_text().split()
    assert words[:3] == ["get", "jobs", "first"]
    assert words[-2:] == ["-n", "team"]


def test_whatif_says_the_error_of_the_service_without_its_wrapping(
    asked: Path, service: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LAXITY_URL", service)
    monkeypatch.setenv("LAXITY_TOKEN", "x" * 20)
    assert kubectl_plugin.main(["whatif", "job.yaml"]) == 1
    assert capsys.readouterr().err == f"error: {SAYS}\n"


def test_control_c_while_kubectl_answers_ends_it_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupt(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setitem(kubectl_plugin.COMMANDS, "get", interrupt)

    assert kubectl_plugin.main(["get"]) == 130
