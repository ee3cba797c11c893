"""A small real HTTP service that holds jobs and tells of them what a test has planned.

It answers what a follower needs: submit, long poll, cancel. Each question with the newest revision
in `seen` is answered by the next planned step, so a story is told without clocks or sleeps.
"""

import json
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

Json = dict[str, Any]
ANNOTATION = "laxity.dev/"


class StandIn:
    """The service: its jobs by id, what was asked of it, and what each submission will live through."""

    def __init__(self) -> None:
        self.jobs: dict[str, Json] = {}
        self.manifests: list[Json] = []
        self.cancelled: list[str] = []
        self.polls = 0
        self.stories: list[list[Json]] = []
        self.errors: list[int] = []  # the next questions for a job are answered with these
        self.changed = threading.Condition()
        self._steps: dict[str, list[Json]] = {}
        self._server: ThreadingHTTPServer | None = None
        self._thread: threading.Thread | None = None
        self._port = 0
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def will(self, *steps: Json) -> None:
        """The next new job goes through these; the last one without a state is `finished`."""
        self.stories.append([*steps])

    def start(self) -> None:
        """Listen, on the same port as before if there was one."""
        handler = type("Bound", (Handler,), {"service": self})
        self._server = Server(("127.0.0.1", self._port), handler)
        self._port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def stop(self) -> None:
        """Be away; what is known stays known."""
        if self._server is None or self._thread is None:
            return
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._server = None

    def wait_until(self, condition: Callable[[], bool], *, timeout_s: float = 120.0) -> None:
        with self.changed:
            assert self.changed.wait_for(condition, timeout_s), "it never happened"

    def submit(self, manifest: Json) -> tuple[int, Json]:
        said = manifest["metadata"]["annotations"]
        key = said.get(f"{ANNOTATION}idempotency-key")
        self.manifests.append(manifest)
        attempts = [job for job in self.jobs.values() if job["key"] == key]
        if attempts and attempts[-1]["state"] not in {"failed", "cancelled"}:
            return 200, attempts[-1]
        job = self._new(manifest, key=key, attempt=len(attempts) + 1)
        self.jobs[job["id"]] = job
        self._steps[job["id"]] = self.stories.pop(0) if self.stories else [{"state": "finished"}]
        return 201, job

    def poll(self, job_id: str, seen: str | None, wait_s: float) -> Json | None:
        self.polls += 1
        job = self.jobs.get(job_id)
        if job is None or seen is None or str(job["revision"]) != seen:
            return job
        if self._steps.get(job_id):
            self.update(job_id, **self._steps[job_id].pop(0))
        else:
            time.sleep(min(wait_s, 0.02))
        return job

    def update(self, job_id: str, **fields: Any) -> None:
        job = self.jobs[job_id]
        job.update(fields)
        job["revision"] += 1

    def cancel(self, job_id: str) -> None:
        self.cancelled.append(job_id)
        if job_id in self.jobs:
            self.update(job_id, state="cancelled")

    def _new(self, manifest: Json, *, key: str | None, attempt: int) -> Json:
        meta, said = manifest["metadata"], manifest["metadata"]["annotations"]
        suffix = f"-a{attempt}" if attempt > 1 else ""
        return {
            "id": f"{meta['namespace']}/{meta['name']}{suffix}",
            "uid": f"uid-{len(self.jobs)}",
            "key": key,
            "class": said[f"{ANNOTATION}class"],
            "model": said[f"{ANNOTATION}model"],
            "epochs": int(said[f"{ANNOTATION}epochs"]),
            "epochs_done": 0,
            "attempt": attempt,
            "state": "queued",
            "verdict": "none",
            "revision": 1,
        }


class Server(ThreadingHTTPServer):
    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False


class Handler(BaseHTTPRequestHandler):
    service: StandIn

    def do_POST(self) -> None:
        manifest = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.service.changed:
            status, job = self.service.submit(manifest)
            self.service.changed.notify_all()
        self._answer(status, job)

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        if parts.path == "/healthz":
            return self._answer(200, {})
        query = parse_qs(parts.query)
        if self.service.errors:
            return self._answer(
                self.service.errors.pop(0), {"error": {"code": "x", "message": "x"}}
            )
        seen, wait_s = query.get("seen", [None])[0], float(query.get("wait_s", ["0"])[0])
        job = self.service.poll(parts.path.removeprefix("/v1/jobs/"), seen, wait_s)
        with self.service.changed:
            self.service.changed.notify_all()
        if job is None:
            return self._answer(404, {"error": {"code": "not_found", "message": "no such job"}})
        return self._answer(200, job)

    def do_DELETE(self) -> None:
        with self.service.changed:
            self.service.cancel(self.path.removeprefix("/v1/jobs/"))
            self.service.changed.notify_all()
        self._answer(200, {})

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        pass

    def _answer(self, status: int, body: Json) -> None:
        content = json.dumps(body).encode()
        with suppress(ConnectionError):  # who asked may have been killed
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)


def story_of(epochs: int, *, result: Any = None, **verdict: Any) -> Sequence[Json]:
    """Promised, started, epoch by epoch to the end."""
    said = {"verdict": "promised", "reason_code": "fits", "reason": "P90 finish in time", **verdict}
    return (
        said,
        {"state": "running", "workers": 2},
        *({"epochs_done": done} for done in range(1, epochs + 1)),
        {"state": "finished", "workers": 0, "finished_at": 90.0, "result": result},
    )
