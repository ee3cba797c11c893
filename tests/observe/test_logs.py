"""The service's log: text for people, JSON lines for collectors, one form for all libraries."""

import json
import logging
import os
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from laxity_scheduler.job_faults import JobFaults, ObjectFaults
from laxity_scheduler.process.daemon import is_ready
from laxity_scheduler.process.logs import log_to_stderr
from tests.support.processes import free_ports


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """Loggers are the process's: other tests get theirs back."""
    names = [None, *list(logging.getLogger().manager.loggerDict)]
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    handlers, hook = list(logging.getLogger().handlers), threading.excepthook
    yield
    logging.captureWarnings(capture=False)
    threading.excepthook = hook
    logging.getLogger().handlers = handlers
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


def lines(capture: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capture.readouterr().err.splitlines()]


def test_each_json_line_has_time_level_logger_message(capsys: pytest.CaptureFixture[str]) -> None:
    log_to_stderr("json")
    logging.getLogger("laxity_scheduler.any").info("two\nlines, %d GPUs", 4)
    [line] = lines(capsys)
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "info",
        "logger": "laxity_scheduler.any",
        "message": "two\nlines, 4 GPUs",
    }


def test_an_error_about_a_job_names_the_job_and_has_its_traceback(
    capsys: pytest.CaptureFixture[str],
) -> None:
    log_to_stderr("json")
    try:
        [].pop()
    except IndexError as error:
        JobFaults().record_fault("decision", "research/nightly", error)
    [line] = lines(capsys)
    assert (line["level"], line["job"]) == ("error", "research/nightly")
    assert "IndexError: pop from empty list" in line["exception"]
    assert "Traceback" in line["exception"]


def test_an_error_about_a_node_is_logged_once_and_names_no_job(
    capsys: pytest.CaptureFixture[str],
) -> None:
    log_to_stderr("json")
    faults = ObjectFaults()
    for words in ("no name", "no name", "no size"):
        faults.record_fault("observation", "node a", ValueError(words))
    logged = lines(capsys)
    assert [line["message"] for line in logged] == [
        f"observation of node a: ValueError: {words}; all others are served"
        for words in ("no name", "no size")
    ]
    assert not any("job" in line for line in logged)


def test_threads_and_warnings_of_libraries_are_logged_in_the_same_form(
    capsys: pytest.CaptureFixture[str],
) -> None:
    log_to_stderr("json")
    thread = threading.Thread(target=lambda: 1 // 0, name="teller")
    thread.start()
    thread.join()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("old column", FutureWarning, stacklevel=1)
    died, warned = lines(capsys)
    assert (died["level"], "ZeroDivisionError" in died["exception"]) == ("critical", True)
    assert (warned["logger"], "old column" in warned["message"]) == ("py.warnings", True)


@pytest.mark.parametrize(
    ("level", "own", "libraries"),
    [("debug", 4, 3), ("info", 3, 3), ("warning", 2, 2), ("error", 1, 1)],
)
def test_the_level_opens_no_debug_lines_of_libraries(
    level: str, own: int, libraries: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """At DEBUG, HTTP clients print requests with their tokens."""
    log_to_stderr("text", level)
    for name in ("laxity_k8s.live_cluster", "kubernetes.client.rest"):
        for number in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR):
            logging.getLogger(name).log(number, "a line")
    said = capsys.readouterr().err.splitlines()
    assert sum("laxity_k8s.live_cluster" in line for line in said) == own
    assert sum("kubernetes.client.rest" in line for line in said) == libraries


@pytest.mark.slow
def test_every_line_of_a_service_that_fails_requests_is_json(tmp_path: Path) -> None:
    """From its start to its end, with a request that uvicorn itself complains about."""
    port = free_ports(1)[0]
    env = os.environ | {"LAXITY_LOG_FORMAT": "json", "LAXITY_LOG_LEVEL": "debug"}
    command = [sys.executable, "-m", "laxity_scheduler", "serve", "--home", str(tmp_path / "home")]
    command += ["--port", str(port), "--slots", "1"]
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) as service:
        assert service.stderr is not None
        said = []
        for line in service.stderr:
            said.append(json.loads(line))
            if said[-1]["message"].startswith("serving "):
                try:
                    _send_rubbish(port)
                finally:
                    service.terminate()
    assert {line["logger"] for line in said} >= {
        "laxity_scheduler.process.serve",
        "uvicorn.error",
    }


def _send_rubbish(port: int) -> None:
    """A request that is no HTTP, once the server listens."""
    end = time.monotonic() + 60.0
    while not is_ready(f"http://127.0.0.1:{port}"):
        assert time.monotonic() < end
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(b"\x16\x03\x01 this is no HTTP\r\n\r\n")
        connection.recv(1024)
