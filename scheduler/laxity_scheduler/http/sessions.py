"""Signing in with a browser: a cookie instead of the token. It opens reading, and the page's actions.

    cookie = id of the token + "." + POSIX second of its end + "." + HMAC-SHA256(key, both)

It holds no secret of the token, survives a restart of the service, and is good at every replica. It
ends with its time, or when its token is taken out of the service's file. A code opens the page once,
within a minute: `laxity ui` puts it into the address that it opens.
"""

import hashlib
import hmac
import secrets
from typing import Final

from starlette.requests import cookie_parser

from laxity_scheduler.http.tokens import Caller, Tokens
from laxity_scheduler.service_clock import CLOCK

SESSION_S: Final = 7 * 86_400
CODE_S: Final = 60.0
MOST_CODES: Final = 100


class Sessions:
    """Makes and reads cookies for those who have a token; keeps codes in memory."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        secret = tokens.worker_secret or secrets.token_urlsafe(32)
        self._key = hmac.digest(secret.encode(), b"\0cookies of browsers", "sha256")
        # Browsers send a cookie to every port of a host: each service has a name of its own.
        self.cookie_name = f"laxity_{hashlib.sha256(self._key).hexdigest()[:8]}"
        self._codes: dict[str, tuple[str, float]] = {}

    def cookie_for(self, authorization: str) -> str | None:
        """The cookie for `Bearer TOKEN`, or for `Code CODE`, which is used up; None if unknown."""
        scheme, _, word = authorization.partition(" ")
        if scheme.lower() == "code":
            cookie, end_at = self._codes.pop(word.strip(), ("", 0.0))
            return cookie if CLOCK.now() < end_at else None
        token_id = self._tokens.id_of(authorization)
        return None if token_id is None else self._sign(token_id, CLOCK.now() + SESSION_S)

    def new_code(self, cookie: str) -> str:
        """A code that is good for this cookie, once and for a minute."""
        while len(self._codes) >= MOST_CODES:
            del self._codes[next(iter(self._codes))]
        code = secrets.token_urlsafe(32)
        self._codes[code] = (cookie, CLOCK.now() + CODE_S)
        return code

    def caller_of(self, cookie_header: str) -> Caller | None:
        """Who is signed in with one of these cookies; None if nobody that we know."""
        cookie = cookie_parser(cookie_header).get(self.cookie_name, "")
        token_id, _, rest = cookie.partition(".")
        end = rest.partition(".")[0]
        if not end.isascii() or not end.isdigit() or len(end) > 12 or int(end) <= CLOCK.now():
            return None
        if not hmac.compare_digest(cookie.encode(), self._sign(token_id, int(end)).encode()):
            return None
        return self._tokens.caller_by_id(token_id)

    def _sign(self, token_id: str, end_at: float) -> str:
        text = f"{token_id}.{int(end_at)}"
        return f"{text}.{hmac.digest(self._key, text.encode(errors='replace'), 'sha256').hex()}"
