"""The gate: other names, foreign pages and strangers are turned away, and bodies are bounded."""

import asyncio
import errno
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from starlette.types import Receive, Scope, Send

from laxity_scheduler.http import gate
from laxity_scheduler.http.gate import Gate
from laxity_scheduler.http.tokens import Tokens, worker_token
from laxity_scheduler.store.store import StoreError
from tests.support.builders import SECRET, TOKEN, bearer
from tests.support.memory_world import MemoryWorld
from tests.support.services import Stage, manifest, staged

Json = dict[str, Any]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with staged(tmp_path_factory.mktemp("home"), MemoryWorld(2)) as opened:
        yield opened


@pytest.mark.parametrize(
    ("host", "status"),
    [
        pytest.param("127.0.0.1:8642", 200, id="by address"),
        pytest.param("localhost:8642", 200, id="by name"),
        pytest.param("[::1]:8642", 200, id="by IPv6 address with a port"),
        pytest.param("[::1]", 200, id="by IPv6 address"),
        pytest.param("evil.example:8642", 400, id="a name that was rebound"),
        pytest.param("127.0.0.1.evil.example", 400, id="a name that begins like an address"),
        pytest.param("[", 400, id="half an address"),
        pytest.param("", 400, id="no name"),
    ],
)
def test_a_loopback_service_answers_to_its_own_names_only(
    stage: Stage, host: str, status: int
) -> None:
    answer = stage.http.get("/v1/jobs", headers={"Host": host})
    assert answer.status_code == status


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        pytest.param({}, 200, id="no browser"),
        pytest.param({"Origin": "http://127.0.0.1"}, 200, id="our own page"),
        pytest.param({"Sec-Fetch-Site": "same-origin"}, 200, id="our own page by its browser"),
        pytest.param({"Sec-Fetch-Site": "none"}, 200, id="the user himself"),
        pytest.param({"Origin": "https://evil.example"}, 403, id="a foreign page"),
        pytest.param({"Origin": "http://127.0.0.1:8888"}, 403, id="a page of another port"),
        pytest.param({"Origin": "null"}, 403, id="a page without an origin"),
        pytest.param({"Origin": "http://[::"}, 403, id="an origin that is none"),
        pytest.param({"Sec-Fetch-Site": "cross-site"}, 403, id="another site"),
        pytest.param({"Sec-Fetch-Site": "same-site"}, 403, id="another port by its browser"),
    ],
)
def test_a_page_of_another_origin_changes_nothing(
    stage: Stage, headers: dict[str, str], status: int
) -> None:
    answer = stage.http.post("/v1/release", headers={"Content-Type": "text/plain", **headers})
    assert answer.status_code == status
    assert status == 200 or answer.json()["error"]["code"] == "foreign_origin"


def test_a_page_of_another_origin_may_follow_a_link_here(stage: Stage) -> None:
    answer = stage.http.get("/docs", headers={"Sec-Fetch-Site": "cross-site"})
    assert answer.status_code == 200


def test_a_browser_that_opens_the_address_gets_the_page_with_the_reference(stage: Stage) -> None:
    page = stage.http.get("/", headers={"Authorization": ""})
    reference = stage.http.get("/docs", headers={"Authorization": ""})
    assert (page.status_code, page.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert 'href="docs"' in page.text
    assert "<code>wait_s</code>" in reference.text


def test_the_reference_loads_nothing_and_names_every_call(stage: Stage) -> None:
    page = stage.http.get("/docs", headers={"Authorization": ""})
    paths = stage.http.get("/openapi.json", headers={"Authorization": ""}).json()["paths"]
    assert page.status_code == 200
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]
    assert not any(word in page.text for word in ("<script", "src=", "://"))
    assert all(f"<code>{method.upper()} {path}</code>" in page.text
               for path, methods in paths.items() for method in methods)  # fmt: skip


@pytest.mark.parametrize(
    ("shown", "words"),
    [
        pytest.param({"Authorization": ""}, "does not answer", id="a stranger"),
        pytest.param(bearer(worker_token(SECRET, "u1")), "does not answer", id="a worker"),
        pytest.param(bearer(TOKEN), "host db.example", id="the operator"),
    ],
)
def test_what_is_wrong_with_the_store_is_told_to_those_with_a_token(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, shown: dict[str, str], words: str
) -> None:
    def away() -> None:
        raise StoreError("no connection to host db.example")

    monkeypatch.setattr(stage.service.store, "check_connection", away)
    answer = stage.http.get("/readyz", headers=shown)
    assert answer.status_code == 503
    assert words in answer.json()["store"]


class Sender:
    """A client of the app below uvicorn: what it has sent so far, and the answer."""

    def __init__(self, *parts: bytes, headers: Json | None = None, ends: bool = True) -> None:
        self.parts, self.ends = list(parts), ends
        self.headers = {"host": "127.0.0.1", **(headers or {})}
        self.was_asked = 0
        self.asked_before_answer = 0
        self.status = 0

    async def call(self, app: Any, path: str = "/v1/jobs") -> int:
        headers = [(name.lower().encode(), text.encode()) for name, text in self.headers.items()]
        scope = {"type": "http", "method": "POST", "path": path, "headers": headers}
        await app(scope, self.receive, self.send)
        return self.status

    async def receive(self) -> Json:
        self.was_asked += 1
        if not self.parts:
            await asyncio.Event().wait()
        body = self.parts.pop(0)
        more = bool(self.parts) or not self.ends
        return {"type": "http.request", "body": body, "more_body": more}

    async def send(self, message: Json) -> None:
        if "status" in message:
            self.status, self.asked_before_answer = message["status"], self.was_asked


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """An app that wants its body."""
    message = await receive()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": message["body"]})


GUARDED = Gate(echo, Tokens.for_token(TOKEN, SECRET))


@pytest.mark.asyncio
async def test_without_a_token_the_answer_comes_before_a_byte_of_the_body_is_read() -> None:
    stranger = Sender(b"x" * 100)
    assert await stranger.call(GUARDED) == 401
    assert stranger.asked_before_answer == 0


@pytest.mark.asyncio
async def test_a_body_that_is_said_to_be_too_long_is_answered_before_it_is_read() -> None:
    sender = Sender(b"x", headers={**bearer(), "content-length": str(gate.MAX_BYTES + 1)})
    assert await sender.call(GUARDED) == 413
    assert sender.asked_before_answer == 0


@pytest.mark.asyncio
async def test_a_body_without_an_end_is_answered_at_the_limit() -> None:
    piece = 64 * 1024
    sender = Sender(*[b"x" * piece] * 100, headers=bearer())
    assert await sender.call(GUARDED) == 413
    assert sender.asked_before_answer == gate.MAX_BYTES // piece + 1
    assert not sender.parts  # the sender got rid of all of it, and then saw the answer


@pytest.mark.asyncio
async def test_who_is_turned_away_and_sends_for_ever_is_cut_off() -> None:
    piece = 1024 * 1024
    sender = Sender(*[b"x" * piece] * 100, ends=False)
    assert await sender.call(GUARDED) == 401
    assert sender.was_asked == gate.LINGER_BYTES // piece


@pytest.mark.asyncio
async def test_a_body_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "READ_S", 0.01)
    monkeypatch.setattr(gate, "LINGER_S", 0.01)
    sender = Sender(b"x", headers=bearer(), ends=False)
    assert await sender.call(GUARDED) == 408


@pytest.mark.asyncio
async def test_a_call_that_the_servers_end_cuts_off_is_answered_in_words() -> None:
    begun = asyncio.Event()

    async def endless(*_: Any) -> None:
        begun.set()
        await asyncio.Event().wait()

    sender = Sender(b"{}", headers=bearer())
    call = asyncio.create_task(sender.call(Gate(endless, Tokens.for_token(TOKEN))))
    await begun.wait()
    call.cancel()
    assert await call == 503


def test_a_manifest_too_deep_to_be_read_is_unprocessable(stage: Stage) -> None:
    deep: Any = {}
    for _ in range(900):
        deep = {"a": deep}
    body = manifest("deep")
    body["spec"]["template"]["spec"]["deep"] = deep
    answers = [stage.http.post(path, json=body) for path in ("/v1/jobs", "/v1/whatif")]
    assert [answer.status_code for answer in answers] == [422, 422]
    assert "100 objects or lists deep" in answers[0].json()["error"]["message"]


def test_a_full_disk_is_said_and_may_be_waited_for(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> Json:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(stage.world, "submit", full)
    answer = stage.http.post("/v1/jobs", json=manifest("late"))
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "no_room"
    assert "disk is full" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "error",
    [sqlite3.OperationalError("database is locked"), OSError(errno.ENOSPC, "no space")],
    ids=["database", "disk"],
)
def test_a_refusal_that_was_answered_does_not_reach_the_server_as_an_error(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: object) -> Json:
        raise error

    monkeypatch.setattr(stage.world, "submit", fail)
    raising = TestClient(stage.http.app, "http://127.0.0.1", headers=bearer(TOKEN))

    answer = raising.post("/v1/jobs", json=manifest("late"))

    assert answer.status_code == 503


def test_a_database_that_another_process_writes_to_is_no_full_disk(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    writer = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
    writer.execute("begin immediate")

    def locked(*_: object) -> Json:
        with closing(sqlite3.connect(tmp_path / "a.db", timeout=0.0)) as second:
            second.execute("create table jobs (name)")
        return {}

    monkeypatch.setattr(stage.world, "submit", locked)
    answer = stage.http.post("/v1/jobs", json=manifest("late"))
    writer.close()
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "not_ready")
    assert "another process writes to the service's database" in answer.text


@pytest.mark.parametrize(
    "error", [AttributeError("x"), RecursionError("x"), TypeError("x"), KeyError("x")]
)
def test_what_a_reader_of_manifests_trips_over_is_told_to_the_sender(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def trip(*_: object) -> Json:
        raise error

    monkeypatch.setattr(stage.world, "submit", trip)
    answer = stage.http.post("/v1/jobs", json=manifest("odd"))
    assert answer.status_code == 422
    assert type(error).__name__ in answer.json()["error"]["message"]
