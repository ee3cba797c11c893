"""A small real HTTP service that holds jobs and tells of them what a test has planned.

It answers what a follower needs: submit, long poll, cancel. Each question with the newest revision
in `seen` is answered by the next planned step, so a story is told without clocks or sleeps.
"""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.support.http_service import Answer, Asked, JsonServer

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
        self._server: JsonServer | None = None
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
        self._server = JsonServer(self._answer, port=self._port)
        self._port = self._server.port

    def stop(self) -> None:
        """Be away; what is known stays known."""
        if self._server is not None:
            self._server.close()
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

    def _answer(self, asked: Asked) -> Answer:
        parts = urlsplit(asked.path)
        job_id = parts.path.removeprefix("/v1/jobs/")
        if asked.method == "GET":
            return (200, {}) if parts.path == "/healthz" else self._answer_poll(job_id, parts.query)
        with self.changed:
            if asked.method == "POST":
                answer: Answer = self.submit(asked.body)
            else:
                self.cancel(job_id)
                answer = 200, {}
            self.changed.notify_all()
        return answer

    def _answer_poll(self, job_id: str, words: str) -> Answer:
        query = parse_qs(words)
        if self.errors:
            return self.errors.pop(0), {"error": {"code": "x", "message": "x"}}
        seen, wait_s = query.get("seen", [None])[0], float(query.get("wait_s", ["0"])[0])
        job = self.poll(job_id, seen, wait_s)
        with self.changed:
            self.changed.notify_all()
        if job is None:
            return 404, {"error": {"code": "not_found", "message": "no such job"}}
        return 200, job

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


def story_of(epochs: int, *, result: Any = None, **verdict: Any) -> Sequence[Json]:
    """Promised, started, epoch by epoch to the end."""
    said = {"verdict": "promised", "reason_code": "fits", "reason": "P90 finish in time", **verdict}
    return (
        said,
        {"state": "running", "workers": 2},
        *({"epochs_done": done} for done in range(1, epochs + 1)),
        {"state": "finished", "workers": 0, "finished_at": 90.0, "result": result},
    )
