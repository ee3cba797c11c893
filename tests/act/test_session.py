"""Calls to an API server that breaks off, is busy or late: what is asked again, and what becomes of it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from laxity.backoff import Backoff
from laxity_k8s.cluster_api import ApiError, Patch
from laxity_k8s.http import session
from laxity_k8s.http.patching import patch_all
from laxity_k8s.http.session import ApiSession
from tests.support.watched_server import _nobody

OK = b'HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n{"a": 1}'
BUSY = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 0.01\r\nContent-Length: 0\r\n\r\n"


class Server:
    """A server that counts connections and requests, and answers each request with the next row."""

    def __init__(self, *answers: bytes) -> None:
        self.answers, self.requests, self.connections = list(answers), 0, 0

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                size = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                await reader.readexactly(size)
                self.requests += 1
                answer = self.answers.pop(0) if self.answers else OK
                writer.write(answer.removesuffix(b"!"))
                await writer.drain()
                if answer.endswith(b"!"):  # and hangs up
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def serving(*answers: bytes) -> AsyncIterator[tuple[Server, ApiSession]]:
    server = Server(*answers)
    listening = await asyncio.start_server(server.talk, "127.0.0.1", 0)
    host = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    async with ApiSession(host, None, _nobody) as api_session:
        yield server, api_session
    listening.close()
    await listening.wait_closed()


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "BACKOFF", Backoff(first_s=0.001, longest_s=0.001))


BROKEN = [
    pytest.param(b"!", id="instead of an answer"),
    pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf!", id="in the middle of one"),
    pytest.param(b"no HTTP at all\r\n\r\n!", id="nonsense"),
    pytest.param(BUSY, id="come again later"),
]


@pytest.mark.asyncio
@pytest.mark.parametrize("broken", BROKEN)
async def test_a_patch_without_an_answer_is_sent_again(broken: bytes) -> None:
    async with serving(broken) as (server, api_session):
        answer = await api_session.call_json("PATCH", "/a", body={})
    assert (answer, server.requests) == ({"a": 1}, 2)


@pytest.mark.asyncio
async def test_a_post_that_may_have_arrived_is_not_sent_again() -> None:
    async with serving(b"!") as (server, api_session):
        with pytest.raises(ApiError, match="does not answer"):
            await api_session.call_json("POST", "/a", body={})
    assert server.requests == 1


@pytest.mark.asyncio
async def test_one_connection_serves_patch_after_patch() -> None:
    async with serving() as (server, api_session):
        for _ in range(5):
            await api_session.call_json("PATCH", "/a", body={})
    assert (server.requests, server.connections) == (5, 1)


@pytest.mark.asyncio
async def test_a_patch_is_not_sent_again_by_who_may_no_longer_act() -> None:
    leads = [True, False]
    async with serving(b"!") as (server, api_session):
        with pytest.raises(ApiError, match="does not lead"):
            await api_session.call_json("PATCH", "/a", body={}, allowed=lambda: leads.pop(0))
    assert server.requests == 1


@pytest.mark.asyncio
async def test_a_patch_whose_answer_is_no_json_counts_as_lost() -> None:
    html = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>"
    async with serving(html, OK) as (_, api_session):
        patches = [Patch("jobs", f"default/{name}", {}) for name in ("a", "b")]
        outcomes = await patch_all(api_session, patches, lambda: True, in_flight=1)
    assert [outcome.may_have_landed for outcome in outcomes] == [True, False]


@pytest.mark.asyncio
async def test_patches_of_one_object_go_in_turn_and_outcomes_in_their_order() -> None:
    answers = [b'HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n{"a": %d}' % one for one in range(3)]
    async with serving(*answers) as (_, api_session):
        patches = [Patch("jobs", "default/a", {"turn": turn}) for turn in range(3)]
        outcomes = await patch_all(api_session, patches, lambda: True, in_flight=32)
    assert [outcome.patch.body["turn"] for outcome in outcomes] == [0, 1, 2]
    assert [(outcome.object or {})["a"] for outcome in outcomes] == [0, 1, 2]
