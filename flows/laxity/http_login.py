"""Requests to addresses that hold a login: urllib takes `user:password@` for a part of the host."""

import base64
import urllib.request
from typing import Any, Final
from urllib.parse import unquote, urlsplit, urlunsplit

NO_PORT: Final = "its port is no number; write / ? # and @ of a password as %2F %3F %23 and %40"


def request_to(url: str, **fields: Any) -> urllib.request.Request:
    """The request, with the login of `http://user:password@host` in its header.

    `fields` are those of urllib's Request. A header `Authorization` among them counts. A redirect
    takes the login nowhere else. ValueError if the URL is none; it quotes nothing of it.
    """
    parts = urlsplit(url)
    try:
        _ = parts.port
    except ValueError:
        raise ValueError(NO_PORT) from None
    login, at, place = parts.netloc.rpartition("@")
    request = urllib.request.Request(urlunsplit(parts._replace(netloc=place)), **fields)  # noqa: S310
    if at and not request.has_header("Authorization"):
        user, _, password = login.partition(":")
        basic = base64.b64encode(f"{unquote(user)}:{unquote(password)}".encode()).decode()
        request.add_unredirected_header("Authorization", f"Basic {basic}")
    return request
