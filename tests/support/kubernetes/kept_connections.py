"""Connections to an API server that are kept: a handshake costs both sides more than an answer."""

import ssl
from collections.abc import Mapping
from http.client import HTTPSConnection


class KeptConnections:
    """As many as threads that ask at a time. `close` leaves none open."""

    def __init__(self, port: int, trust: ssl.SSLContext) -> None:
        self._port, self._trust = port, trust
        self._idle: list[HTTPSConnection] = []

    def ask(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> tuple[int, bytes]:
        """The status and the text; OSError or HTTPException without an answer."""
        try:
            kept = self._idle.pop()
        except IndexError:
            return self._ask_by(self._connection(), method, path, body, headers)
        try:
            return self._ask_by(kept, method, path, body, headers)
        except (ConnectionError, ssl.SSLError):  # the server closed it, or has been started anew
            return self._ask_by(self._connection(), method, path, body, headers)

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def _connection(self) -> HTTPSConnection:
        return HTTPSConnection("127.0.0.1", self._port, timeout=60, context=self._trust)

    def _ask_by(
        self,
        connection: HTTPSConnection,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
    ) -> tuple[int, bytes]:
        try:
            connection.request(method, path, body, headers)
            reply = connection.getresponse()
            text = reply.read()
        except BaseException:
            connection.close()
            raise
        self._idle.append(connection)
        return reply.status, text
