"""A small real HTTP server that plays laxity's service for one job: orders out, reports in."""

import threading
from collections.abc import Callable
from typing import Any

from tests.support.http_service import Answer, Asked, JsonServer

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
        self._server = JsonServer(self._answer, port=port)
        self.port, self.url = self._server.port, self._server.url

    @property
    def lines(self) -> list[Line]:
        with self._changed:
            return [self._by_seq[seq] for seq in sorted(self._by_seq)]

    def of(self, kind: str) -> list[Line]:
        return [line for line in self.lines if line["kind"] == kind]

    def epochs(self) -> list[tuple[int, int]]:
        """Number and width of each that was reported."""
        return [(line["epoch"], line["width"]) for line in self.of("epoch")]

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

    def tell(self, **changes: Any) -> None:
        """Order this, and wait until the job has named it in a call: it acts on it from now on."""
        self.order(**changes)
        self.until(lambda it: it._known_generation >= it._signal["generation"], "the order known")

    def close(self) -> None:
        with self._changed:
            self._signal["generation"] = int(self._signal["generation"]) + 1
            self._changed.notify_all()
        self._server.close()

    def _answer(self, call: Asked) -> Answer:
        asked: Line = call.body
        with self._changed:
            self._known_generation = max(self._known_generation, asked["generation"])
            if self._unwelcome in [line["kind"] for line in asked["reports"]]:
                self.turned_away += 1
                self._changed.notify_all()
                status, words = self._instead
                return status, {"error": {"code": "unwelcome", "message": words}}
            self._by_seq |= {line["seq"]: line for line in asked["reports"]}
            self._changed.notify_all()
            if asked["wait_s"]:
                self._changed.wait_for(
                    lambda: self._signal["generation"] != asked["generation"], asked["wait_s"]
                )
            acked = next(n for n in range(len(self._by_seq) + 1) if n + 1 not in self._by_seq)
            return 200, {**self._signal, "acked": acked}
