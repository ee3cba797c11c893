"""Who may call the service: a token opens some namespaces, or all of them.

A token is needed whenever anybody but this machine can reach the service. Tokens stand in a file
that only its owner may read, one a line: the token, then the namespaces that it opens (`*`: all).
Workers run their users' code, so they are given a token of their own, which opens the signal call
and nothing else. Replicas have to be given the same one, as a worker's call may reach any of them.
"""

import hashlib
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

EVERYTHING: Final = "*"
LEAST_LENGTH: Final = 16
ENV_WORKER_TOKEN: Final = "LAXITY_WORKER_TOKEN"  # noqa: S105 - the variable's name, not a token


class TokensError(ValueError):
    """A token, or a file of them, cannot be used: which one, and what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Caller:
    """What one request may see: these namespaces, or with None everything.

    A worker may make the signal call of any job, and no other call.
    """

    namespaces: frozenset[str] | None = None
    is_worker: bool = False

    def may(self, namespace: str) -> bool:
        return self.namespaces is None or namespace in self.namespaces


ANYBODY: Final = Caller()
WORKER: Final = Caller(frozenset(), is_worker=True)


@dataclass(frozen=True, slots=True)
class Tokens:
    """Callers by the hash of their token; no callers at all means that no token is asked for."""

    callers: Mapping[bytes, Caller] = field(default_factory=dict)

    def caller(self, authorization: str) -> Caller | None:
        """Who sent this Authorization header; None if nobody that we know."""
        if not self.callers:
            return ANYBODY
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer":
            return None
        return self.callers.get(_hash(token.strip()))

    def having(self, token: str, caller: Caller) -> "Tokens":
        """These, and one more. TokensError if it opens something else already."""
        if self.callers.get(_hash(token), caller) != caller:
            raise TokensError("a worker's token has to differ from all others: it opens less")
        return Tokens({**self.callers, _hash(token): caller})


def read_tokens(path: Path) -> Tokens:
    """Tokens of a file; TokensError names the line."""
    callers: dict[bytes, Caller] = {}
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        token, *namespaces = line.split()[:1000] or ("",)
        if not token or token.startswith("#"):
            continue
        if len(token) < LEAST_LENGTH:
            raise TokensError(
                f"{path}, line {number}: a token has {LEAST_LENGTH} or more characters"
            )
        if not namespaces:
            raise TokensError(f"{path}, line {number}: no namespace after the token (* means all)")
        known = None if EVERYTHING in namespaces else frozenset(namespaces)
        callers[_hash(token)] = Caller(known)
    if not callers:
        raise TokensError(f"{path} holds no token")
    return Tokens(callers)


def made_token(path: Path, *, opens: str = EVERYTHING) -> str:
    """The token of a file that opens this; a new file with one if there is no file."""
    if path.exists():
        for line in path.read_text().splitlines():
            token, *namespaces = line.split() or ("",)
            if opens in namespaces:
                return token
        return ""
    token = secrets.token_urlsafe(32)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(f"{token} {opens}\n")
    return token


def worker_token(path: Path) -> str:
    """The one that was given to all replicas, else the one of a file, which is made if need be."""
    given = os.environ.get(ENV_WORKER_TOKEN, "")
    if given and len(given) < LEAST_LENGTH:
        message = f"{ENV_WORKER_TOKEN} has {len(given)} characters; {LEAST_LENGTH} are the least"
        raise TokensError(message)
    return given or made_token(path, opens="@signal")


def _hash(token: str) -> bytes:
    """Looked up by hash, so that how long a look takes says nothing about a token."""
    return hashlib.sha256(token.encode(errors="replace")).digest()
