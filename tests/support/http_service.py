"""A small real HTTP server that answers as it is told, and remembers what it was asked."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, Any]


@dataclass
class Asked:
    method: str
    path: str
    body: Any
    token: str  # of its Authorization
    host: str


class JsonServer:
    """Answers each call with a status and JSON, or no body for None, until closed.

    Status 0 breaks the connection off.
    """

    def __init__(self, answer: Callable[[Asked], Answer], *, port: int = 0) -> None:
        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                token = self.headers.get("Authorization") or ""
                asked = Asked(self.command, self.path, body, token, self.headers["Host"])
                status, content = answer(asked)
                if status == 0:
                    self.close_connection = True
                    return
                text = b"" if content is None else json.dumps(content).encode()
                with suppress(OSError):  # who asked may have been killed
                    self.send_response(status)
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Content-Length", str(len(text)))
                    self.end_headers()
                    self.wfile.write(text)

            do_GET = do_POST = do_DELETE = answer  # noqa: N815 - the library's names

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.port = int(self._server.server_address[1])
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@dataclass
class Service:
    """`answers` maps "METHOD /path" (without the query) to a status and JSON, or to a function."""

    url: str = ""
    answers: dict[str, Answer | Callable[[Asked], Answer]] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)

    def answer(self, asked: Asked) -> Answer:
        self.asked.append(asked)
        said = self.answers.get(f"{asked.method} {asked.path.partition('?')[0]}")
        if said is None:
            return 404, {"error": {"code": "unknown", "message": f"no {asked.path}"}}
        return said(asked) if callable(said) else said


@contextmanager
def service() -> Iterator[Service]:
    known = Service()
    server = JsonServer(known.answer)
    known.url = server.url
    try:
        yield known
    finally:
        server.close()


def job(name: str = "train", **changes: Any) -> dict[str, Any]:
    """A job as the service tells it."""
    view: dict[str, Any] = {
        "id": f"default/{name}",
        "uid": "u1",
        "class": "hard",
        "model": "mlp",
        "state": "running",
        "verdict": "promised",
        "reason_code": "fits",
        "reason": "P90 finish 2026-11-21T18:05:00Z",
        "deadline_at": 2_000_000_000.0,
        "submitted_at": 1_999_999_000.0,
        "promised_p90_at": 1_999_999_900.0,
        "p50_at": 1_999_999_800.0,
        "p90_at": 1_999_999_900.0,
        "laxity_s": 100.0,
        "workers": 2,
        "formed": 2,
        "widths": [1, 2, 4],
        "width_history": [[1_999_999_100.0, 2]],
        "epochs": 10,
        "epochs_done": 3,
        "preemptions": 0,
        "pinned": False,
        "attempt": 1,
        "offers": [],
        "held_by": [],
        "expected_start_at": None,
        "finished_at": None,
        "result": None,
        "run_id": "r1",
        "revision": 7,
        "error": "",
    }
    return view | changes
