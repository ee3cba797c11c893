"""The address to which a training script posts its progress: this machine's loopback, with a token.

It is the address of Kubeflow's KEP-2779, so a script that reports there reports here. Any nonsense is
answered with a status of the 4xx kind and changes nothing.
"""

import hmac
import secrets
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import TCPServer
from threading import Thread
from typing import Any, Final, Self

from laxity import names
from laxity.private_files import private_file
from laxity.worker.progress.progress_posts import Post, PostError, read_post

HOST: Final = "127.0.0.1"
LONGEST_BODY: Final = 65_536
SILENT_S: Final = 5.0  # a connection that sends nothing for so long is closed


class ProgressServer(ThreadingHTTPServer):
    """Serves from a thread while the context lasts. `take` gets each post before its answer."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, folder: Path, take: Callable[[Post], None]) -> None:
        self.take = take
        self.token = secrets.token_urlsafe(32)
        self._token_file = private_file(folder / "token")
        self._token_file.write_text(self.token)
        super().__init__((HOST, 0), _Handler)

    def server_bind(self) -> None:
        """Bind, and ask no name server who this is."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = HOST, int(self.server_address[1])

    @property
    def variables(self) -> dict[str, str]:
        """What the script finds in its environment."""
        return {
            names.ENV_PROGRESS_URL: f"http://{HOST}:{self.server_port}/",
            names.ENV_PROGRESS_TOKEN: str(self._token_file),
        }

    def __enter__(self) -> Self:
        Thread(target=self.serve_forever, name="laxity-progress", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A script that closes its connection early is no news."""


class _Handler(BaseHTTPRequestHandler):
    timeout = SILENT_S
    server: ProgressServer

    def do_POST(self) -> None:
        given = self.headers.get("Authorization", "").encode()
        if not hmac.compare_digest(given, f"Bearer {self.server.token}".encode()):
            self._answer(
                HTTPStatus.UNAUTHORIZED, f"the token is in the file of {names.ENV_PROGRESS_TOKEN}"
            )
            return
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal():
            self._answer(HTTPStatus.LENGTH_REQUIRED, "Content-Length is missing")
            return
        if len(length) > len(str(LONGEST_BODY)) or int(length) > LONGEST_BODY:
            self._answer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"at most {LONGEST_BODY} bytes")
            return
        try:
            self.server.take(read_post(self.rfile.read(int(length)), time.monotonic()))
        except PostError as error:
            self._answer(HTTPStatus.BAD_REQUEST, str(error))
        else:
            self._answer(HTTPStatus.OK, "")

    def do_GET(self) -> None:
        self._answer(HTTPStatus.METHOD_NOT_ALLOWED, "POST the progress here")

    def _answer(self, status: HTTPStatus, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """The log is the script's."""
