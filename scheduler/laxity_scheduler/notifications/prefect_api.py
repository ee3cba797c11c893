"""The few calls of Prefect's HTTP API that the service makes, to a server or to Prefect Cloud.

Prefect is no part of the service's image, and its client would cost it 84 MB: these are plain
requests. Credentials are set as for every client of Prefect: PREFECT_API_KEY (Cloud) or
PREFECT_API_AUTH_STRING; a server that asks for CSRF tokens is asked for one.
"""

import base64
import contextlib
import json
import urllib.error
import urllib.request
import uuid
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from laxity.http_login import request_to

TIMEOUT_S: Final = 10.0
MAX_ERROR_LENGTH: Final = 500
# Answers that may be another one later: the key is renewed, the server has room again.
TRANSIENT_STATUSES: Final = frozenset(
    {
        HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.REQUEST_TIMEOUT,
        HTTPStatus.TOO_MANY_REQUESTS,
    }
)  # fmt: skip


def flow_run_of(view: Mapping[str, Any]) -> str:
    """The flow run that this job's Job says it is, as Prefect writes it; "" if it names none.

    Who may label a Job may write anything there, and a call about many runs fails with one such.
    """
    try:
        return str(uuid.UUID(view.get("flow_run") or ""))
    except ValueError:
        return ""


class PrefectError(RuntimeError):
    """Prefect answered no. `is_permanent`: a retry would be refused too."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"Prefect answers {status}: {message}")
        self.is_permanent = 400 <= status < 500 and status not in TRANSIENT_STATUSES


class PrefectApi:
    """One API, such as http://prefect:4200/api. OSError if nobody answers."""

    def __init__(self, url: str, *, key: str = "", auth: str = "") -> None:
        self._url = url.rstrip("/")
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if key or auth:
            basic = base64.b64encode(auth.encode()).decode()
            self._headers["Authorization"] = f"Bearer {key}" if key else f"Basic {basic}"

    @classmethod
    def from_environment(cls, url: str, environ: Mapping[str, str]) -> "PrefectApi":
        """With the credentials that Prefect's own clients would take from this environment."""
        key = environ.get("PREFECT_API_KEY", "")
        return cls(url, key=key, auth=environ.get("PREFECT_API_AUTH_STRING", ""))

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """The answer's JSON, None if it has none; PrefectError if Prefect refuses."""
        try:
            return self._request_once(method, path, body)
        except PrefectError as error:
            if "CSRF" not in str(error):
                raise
        self._take_csrf_token()
        return self._request_once(method, path, body)

    def _request_once(self, method: str, path: str, body: Any) -> Any:
        payload = None if body is None else json.dumps(body).encode()
        request = request_to(self._url + path, data=payload, headers=self._headers, method=method)
        try:
            answer = urllib.request.urlopen(request, timeout=TIMEOUT_S)  # noqa: S310
        except urllib.error.HTTPError as error:
            with contextlib.closing(error):
                body_text = error.read(MAX_ERROR_LENGTH).decode(errors="replace")
            raise PrefectError(error.code, body_text or str(error.reason)) from error
        with contextlib.closing(answer):
            content = answer.read()
        return json.loads(content) if content else None

    def _take_csrf_token(self) -> None:
        client = str(uuid.uuid4())
        token = self._request_once("GET", f"/csrf-token?client={client}", None)
        self._headers |= {"Prefect-Csrf-Token": token["token"], "Prefect-Csrf-Client": client}
