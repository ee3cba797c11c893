"""A small real HTTP server that plays laxity's service for one job: orders out, reports in."""

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Line = dict[str, Any]
PATIENCE_S = 180.0


class Service:
    """What it was told is in `lines`, each report once; `order` changes what it wants."""

    def __init__(self, *, workers: int = 1, stop: bool = False, port: int = 0) -> None:
        self._changed = threading.Condition()
        self._signal: Line = {"stop": stop, "workers": workers, "run_id": "", "generation": 1}
        self._by_seq: dict[int, Line] = {}
        self._known_generation = 0  # of the orders, as the job's last call has named it
        self.turned_away = 0
        self._unwelcome, self._instead = "", (503, "")
        self._server = ThreadingHTTPServer(("127.0.0.1", port), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def lines(self) -> list[Line]:
        with self._changed:
            return [self._by_seq[seq] for seq in sorted(self._by_seq)]

    def of(self, kind: str) -> list[Line]:
        return [line for line in self.lines if line["kind"] == kind]

    def order(self, **changes: Any) -> None:
        with self._changed:
            generation = int(self._signal["generation"]) + 1
            self._signal = {**self._signal, **changes, "generation": generation}
            self._changed.notify_all()

    def turn_away(self, kind: str = "", *, status: int = 503, words: str = "not now") -> None:
        """Answer so to calls that report this kind, from now on; "" takes everything again."""
        with self._changed:
            self._unwelcome, self._instead = kind, (status, words)

    def until(self, true: Callable[["Service"], object], what: str) -> None:
        """Wait until this holds for what was reported."""
        with self._changed:
            if not self._changed.wait_for(lambda: true(self), PATIENCE_S):
                raise AssertionError(f"{what}: not within {PATIENCE_S} s; {self.lines}")

    def until_reported(self, kind: str, **fields: Any) -> Line:
        """Wait for a report with these fields; the report."""

        def found(service: "Service") -> list[Line]:
            return [line for line in service.of(kind) if fields.items() <= line.items()]

        self.until(found, f"report {kind} {fields}")
        return found(self)[0]

    def until_order_is_known(self) -> None:
        """Wait until the job has named the latest order in a call: it acts on it from now on."""
        self.until(lambda it: it._known_generation >= it._signal["generation"], "the order known")

    def close(self) -> None:
        with self._changed:
            self._signal["generation"] = int(self._signal["generation"]) + 1
            self._changed.notify_all()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _answer(self, asked: Line) -> Line | None:
        with self._changed:
            self._known_generation = max(self._known_generation, asked["generation"])
            if self._unwelcome in [line["kind"] for line in asked["reports"]]:
                self.turned_away += 1
                self._changed.notify_all()
                return None
            self._by_seq |= {line["seq"]: line for line in asked["reports"]}
            self._changed.notify_all()
            if asked["wait_s"]:
                self._changed.wait_for(
                    lambda: self._signal["generation"] != asked["generation"], asked["wait_s"]
                )
            acked = next(n for n in range(len(self._by_seq) + 1) if n + 1 not in self._by_seq)
            return {**self._signal, "acked": acked}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                answer = service._answer(asked)
                status, words = service._instead
                error = {"error": {"code": "unwelcome", "message": words}}
                body = json.dumps(error if answer is None else answer).encode()
                try:
                    self.send_response(status if answer is None else 200)
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)
                except OSError:
                    pass  # the worker was killed meanwhile

            def log_message(self, *_: object) -> None:
                pass

        return Handler
