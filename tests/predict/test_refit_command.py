"""`laxity refit` says what it did, and at once what it cannot do."""

import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner

from laxity.cli.exit_codes import AWAY, NOT_FOUND, USAGE, CommandError
from tests.support.refitting import Place, app, command

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_the_command_says_what_it_did(place: Place) -> None:
    said = json.loads(command(place, "--json").stdout)

    assert (said["models"], said["new_versions"], said["view_is_new"]) == (2, [], False)
    again = command(place)
    assert "2 models, new versions: none" in again.stdout
    assert "Downloading" not in again.stderr


def test_without_mlflow_the_command_says_so_at_once(place: Place) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        uri = f"http://127.0.0.1:{free.getsockname()[1]}"

    error = command(place, "--tracking-uri", uri).exception

    assert isinstance(error, CommandError)
    assert error.code == AWAY
    assert f"MLflow at {uri} does not answer" in str(error)


def test_an_address_where_something_else_speaks_is_said(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        uri = f"http://127.0.0.1:{other.getsockname()[1]}"

        def greet() -> None:
            peer, _ = other.accept()
            with peer:
                peer.recv(1000)
                peer.sendall(b"220 mail.example ready\r\n")

        threading.Thread(target=greet, daemon=True).start()
        error = command(place, "--tracking-uri", uri).exception

    assert isinstance(error, CommandError)
    assert error.code == AWAY
    assert f"MLflow at {uri} does not answer: 220 mail.example ready" in str(error)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        pytest.param(("--tracking-uri", "sqlite:////no/such/folder/x.db"), AWAY, "no folder", id="no folder"),
        pytest.param(("--store", "postgresql://x@127.0.0.1:1/x"), AWAY, "did not do it", id="no database"),
        pytest.param(("--every", "soon"), USAGE, "--every soon", id="no duration"),
        pytest.param(("--every", "0.2s"), USAGE, "at least 1 s", id="too often"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_said(words: tuple[str, ...], code: int, said: str, place: Place) -> None:
    error = command(place, *words).exception

    assert isinstance(error, CommandError)
    assert (error.code, said in str(error)) == (code, True)


def test_a_home_without_history_is_said(tmp_path: Path) -> None:
    error = CliRunner().invoke(app(), ["refit"], env={"LAXITY_HOME": str(tmp_path)}).exception

    assert isinstance(error, CommandError)
    assert error.code == NOT_FOUND


def test_on_a_schedule_it_outlives_an_mlflow_that_is_away(place: Place) -> None:
    uri = "http://127.0.0.1:1"
    asked = ("refit", "--every", "1s", "--tracking-uri", uri)
    with subprocess.Popen(
        [sys.executable, "-m", "laxity_profiler", *asked],
        env=os.environ | {"LAXITY_HOME": str(place.folder)},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        lines = [process.stderr.readline() for _ in range(2)]
        process.terminate()

    assert all("does not answer" in line and "again in 1s" in line for line in lines)
