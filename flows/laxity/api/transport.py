"""One JSON request to the service, tried again while the service is absent.

A service is restarted, a node is drained, a laptop sleeps: who waits for a training of hours should
not notice. What may be repeated without harm is repeated with growing, random pauses until the
caller's patience ends; everything else only while nothing can have reached the service.
"""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from itertools import count
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

from laxity.api.job_view import Json
from laxity.backoff import Backoff
from laxity.safe_text import printable, without_secrets
from laxity.worded_error import WordedError

LOOPBACK_HOSTS: Final = ("127.0.0.1", "::1", "localhost")
AWAY_STATUS: Final = frozenset(
    {HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT}
)
BACKOFF: Final = Backoff(first_s=0.1, longest_s=5.0, spread=0.5)
BAD_ADDRESS: Final = "bad_address"
STRANGER: Final = "no_laxity"
ANSWER_LIMIT_BYTES: Final = 256 * 1024 * 1024


class ServiceError(WordedError, RuntimeError):
    """The service answered that it will not do this: `code` for machines, the message for people."""

    def __init__(self, code: str, message: str, *, status: int = 0, field: str = "") -> None:
        self.message = printable(without_secrets(message))
        super().__init__(self.message)
        self.code = code
        self.status = status
        self.field = field

    def __str__(self) -> str:
        has_field = not self.field or self.message.startswith(f"{self.field}:")
        return self.message if has_field else f"{self.message} (field {self.field})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Prefect keeps a failed run's exception as a pickle."""
        return partial(ServiceError, status=self.status, field=self.field), (
            self.code,
            self.message,
        )


class ServiceAwayError(ServiceError, ConnectionError):
    """Nobody answered in time: the service is down, restarting, or somewhere else."""

    def __init__(self, message: str, *, status: int = 0) -> None:
        super().__init__("service_away", message, status=status)

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(ServiceAwayError, status=self.status), (self.message,)


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked. `repeatable`: asking twice is the same as asking once."""

    method: str
    path: str
    query: Mapping[str, str | float | int | None] = field(default_factory=dict)
    body: Any = None
    repeatable: bool = True
    answer_s: float = 0.0  # the service may take so long on purpose (a long poll)

    @property
    def target(self) -> str:
        query = {name: value for name, value in self.query.items() if value is not None}
        return quote(self.path) + (f"?{urlencode(query)}" if query else "")


@dataclass(frozen=True, slots=True)
class Transport:
    """Where the service is, and how patient its caller. Opens a connection for each request."""

    url: str
    token: Callable[[], str] = str
    timeout_s: float = 30.0
    patience_s: float = 60.0
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def send(self, request: Request) -> Any:
        """The answer's JSON (text if it is none); ServiceError, or ServiceAwayError after a while."""
        give_up_at = self.clock() + self.patience_s
        for failures in count(1):
            try:
                return self._send_once(request)
            except _UnsentError as error:
                away = ServiceAwayError(self._absence_text(error))
                away.__cause__ = error
            except ServiceAwayError as error:
                if not request.repeatable:
                    raise
                away = error
            pause_s = BACKOFF.delay_s(failures)
            if self.clock() + pause_s >= give_up_at:
                raise away
            self.sleep(pause_s)
        raise AssertionError  # the pauses never end

    def _send_once(self, request: Request) -> Any:
        connection = self._new_connection(request.answer_s)
        try:
            try:
                connection.connect()
            except OSError as error:
                raise _UnsentError(str(error)) from error
            return self._exchange_messages(connection, request)
        except (OSError, HTTPException) as error:
            if isinstance(error, ServiceAwayError | _UnsentError):
                raise
            raise ServiceAwayError(self._absence_text(error)) from error
        finally:
            connection.close()

    def _exchange_messages(self, connection: HTTPConnection, request: Request) -> Any:
        headers = {"Accept": "application/json"}
        if token := self.token():
            headers["Authorization"] = f"Bearer {token}"
        payload = None
        if request.body is not None:
            payload = json.dumps(request.body, allow_nan=False).encode()
            headers["Content-Type"] = "application/json"
        connection.request(
            request.method, urlsplit(self.url).path.rstrip("/") + request.target, payload, headers
        )
        answer = connection.getresponse()
        content = answer.read(ANSWER_LIMIT_BYTES)
        if answer.status in AWAY_STATUS:
            answer_message = answer_error(answer.status, answer.reason, content, self.url).message
            message = f"the service at {self.url} cannot answer now: {answer_message}"
            raise ServiceAwayError(message, status=answer.status)
        if answer.status >= HTTPStatus.BAD_REQUEST:
            raise answer_error(answer.status, answer.reason, content, self.url)
        return parse_body(content, answer.getheader("Content-Type") or "")

    def _new_connection(self, answer_s: float) -> HTTPConnection:
        scheme, host, port = _split_address(self.url)
        kind = HTTPSConnection if scheme == "https" else HTTPConnection
        return kind(host, port, timeout=self.timeout_s + answer_s)

    def _absence_text(self, why: object) -> str:
        return f"no laxity service answers at {self.url} ({why}); {self._absence_cure()}"

    def _absence_cure(self) -> str:
        """`laxity up` starts a service here: it is no cure for an address elsewhere."""
        host = _split_address(self.url)[1]
        if host in LOOPBACK_HOSTS:
            return "start one with: laxity up"
        return "is the address right (LAXITY_URL, --url), and is it reached from here?"


class _UnsentError(OSError):
    """No connection: the request cannot have reached the service."""


def _split_address(url: str) -> tuple[str, str, int | None]:
    """Scheme, host and port of an address; ServiceError if it is none."""
    try:
        parts = urlsplit(url)
        scheme, host, port = parts.scheme, parts.hostname, parts.port
    except ValueError:
        scheme, host, port = "", None, None
    if scheme not in {"http", "https"} or not host:
        message = f"{url!r} is no address of a service: it looks like http://HOST:PORT"
        raise ServiceError(BAD_ADDRESS, message)
    return scheme, host, port


def parse_body(content: bytes, kind: str) -> Any:
    if "json" not in kind:
        return content.decode(errors="replace")
    return json.loads(content) if content else None


def answer_error(status: int, phrase: str, content: bytes, url: str) -> ServiceError:
    """The error of an answer: {"error": {"code", "message", "field"?}}, or that it is a stranger's."""
    try:
        error: Json = json.loads(content)["error"]
        return ServiceError(
            str(error.get("code", status)),
            str(error.get("message", phrase)),
            status=status,
            field=str(error.get("field") or ""),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        lines = content.decode(errors="replace").split("\n")
        first_line = next((line.strip()[:200] for line in lines if line.strip()), phrase)
        status_line = f"HTTP {status}: {first_line}"
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR and status != HTTPStatus.NOT_IMPLEMENTED:
            return ServiceError(f"http_{status}", status_line, status=status)
        message = f"what answers at {url} is no laxity service ({status_line})"
        return ServiceError(STRANGER, message, status=status)
