"""kubectl laxity reads flags where kubectl's users write them, and says a service's error in words."""

from pathlib import Path

import pytest

from laxity.cli import kubectl_plugin
from tests.support.http_service import service

SAYS = "deadline: '2hh' is no duration"


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
    asked: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LAXITY_TOKEN", "x" * 20)
    with service() as laxity:
        laxity.answers["POST /v1/whatif"] = 422, {"error": {"code": "invalid", "message": SAYS}}
        monkeypatch.setenv("LAXITY_URL", laxity.url)
        assert kubectl_plugin.main(["whatif", "job.yaml"]) == 1
    assert capsys.readouterr().err == f"error: {SAYS}\n"


def test_control_c_while_kubectl_answers_ends_it_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupt(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setitem(kubectl_plugin.COMMANDS, "get", interrupt)

    assert kubectl_plugin.main(["get"]) == 130
