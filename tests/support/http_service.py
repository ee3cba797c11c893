"""A small real HTTP server that answers as it is told, and remembers what it was asked."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, Any]


@dataclass
class Asked:
    method: str
    path: str
    body: Any
    token: str


@dataclass
class Service:
    """`answers` maps "METHOD /path" (without the query) to a status and JSON, or to a function."""

    url: str
    answers: dict[str, Answer | Callable[[Asked], Answer]] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)


@contextmanager
def service() -> Iterator[Service]:
    known = Service("")

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            asked = Asked(self.command, self.path, body, self.headers.get("Authorization") or "")
            known.asked.append(asked)
            said = known.answers.get(f"{self.command} {self.path.partition('?')[0]}")
            if said is None:
                error = {"code": "unknown", "message": f"no {self.path}"}
                said = (404, {"error": error})
            status, content = said(asked) if callable(said) else said
            if status == 0:
                self.close_connection = True  # the connection breaks without an answer
                return
            text = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_DELETE = answer  # noqa: N815 - the library's names

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    known.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield known
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


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
