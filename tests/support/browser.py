"""A page in Debian's chromium, without a window, driven over its debugging protocol."""

import base64
import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.request import urlopen

import pytest
from websockets.sync.client import connect
from websockets.sync.connection import Connection

PATIENCE_S: Final = 90.0
POLL_S: Final = 0.25
FLAGS: Final = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
    "--no-first-run", "--disable-extensions", "--disable-background-networking",
    "--remote-debugging-port=0", "--window-size=1500,1400",
)  # fmt: skip


class Page:
    """One page. `wait_for` polls an expression of JavaScript until it is true."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._number = 0

    def ask(self, method: str, **params: Any) -> Any:
        self._number += 1
        self._connection.send(json.dumps({"id": self._number, "method": method, "params": params}))
        while True:
            answer = json.loads(self._connection.recv(timeout=PATIENCE_S))
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]

    def open(self, url: str) -> None:
        self.ask("Page.navigate", url=url)

    def value(self, expression: str) -> Any:
        """What the expression is now; None if it throws."""
        found = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        return None if "exceptionDetails" in found else found["result"].get("value")

    def wait_for(self, expression: str, *, at_most_s: float = PATIENCE_S) -> None:
        end = time.monotonic() + at_most_s
        while not self.value(expression):
            shown = self.value("document.body.innerText") or ""
            assert time.monotonic() < end, (
                f"never true: {expression}\nthe page says: {shown[:3000]}"
            )
            time.sleep(POLL_S)

    def shows(self, *texts: str) -> None:
        """Wait until all these texts can be read on the page."""
        for text in texts:
            self.wait_for(f"document.body.innerText.includes({json.dumps(text)})")

    def picture(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.ask("Page.captureScreenshot")["data"]))


@contextmanager
def browser(folder: Path) -> Iterator[Page]:
    """A page with a profile of its own; skipped where there is no chromium."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("no chromium on this machine")
    profile = folder / "chromium"
    command = [program, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            with connect(_address(profile), max_size=None, open_timeout=PATIENCE_S) as connection:
                yield Page(connection)
        finally:
            process.terminate()
            process.wait(timeout=120)


def _address(profile: Path) -> str:
    """Where the first page listens, once the browser has written its port."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        try:
            port = int((profile / "DevToolsActivePort").read_text().splitlines()[0])
            with urlopen(f"http://127.0.0.1:{port}/json/list", timeout=10) as answer:
                pages = [row for row in json.load(answer) if row["type"] == "page"]
            return str(pages[0]["webSocketDebuggerUrl"])
        except (OSError, ValueError, IndexError):
            time.sleep(POLL_S)
    raise AssertionError("chromium did not start")
