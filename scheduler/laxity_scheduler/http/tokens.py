"""Who may call the service: a token opens some namespaces, or all of them.

Tokens stand in a file that only its owner may read, one a line: the token, then the namespaces that
it opens (`*`: all). Workers run their users' code, so each Job has a token of its own:

    token = uid + "." + base64url(HMAC-SHA256(secret, uid))

It opens the signal call and the progress of the Job with that uid, and nothing else. Replicas share the secret, as a
worker's call may reach any of them.
"""

import base64
import hashlib
import hmac
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ALL_NAMESPACES: Final = "*"
MIN_LENGTH: Final = 16
ENV_WORKER_SECRET: Final = "LAXITY_WORKER_SECRET"  # noqa: S105 - seals verdicts, signs workers' tokens


class TokensError(ValueError):
    """A token, a secret, or a file of them, cannot be used: which one, and what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Caller:
    """What one request may see: these namespaces, or with None everything.

    A worker may report on the Job with its `uid`, and call for nothing else.
    """

    namespaces: frozenset[str] | None = None
    uid: str = ""

    @property
    def is_worker(self) -> bool:
        return bool(self.uid)

    def may(self, namespace: str) -> bool:
        return self.namespaces is None or namespace in self.namespaces


FULL_ACCESS: Final = Caller()


@dataclass(frozen=True, slots=True)
class Tokens:
    """Callers by the hash of their token, and the secret that workers' tokens are made of."""

    callers: Mapping[bytes, Caller] = field(default_factory=dict)
    worker_secret: str = ""

    @classmethod
    def for_token(cls, token: str, worker_secret: str = "") -> "Tokens":
        """One token, which opens everything."""
        return cls({_hash_token(token): FULL_ACCESS}, worker_secret)

    def caller_of(self, authorization: str) -> Caller | None:
        """Who sent this Authorization header; None if nobody that we know."""
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer":
            return None
        token = token.strip()
        return self.callers.get(_hash_token(token)) or self._worker_caller(token)

    def id_of(self, authorization: str) -> str | None:
        """What names the token in this Authorization header; None if it is a worker's or unknown."""
        scheme, _, token = authorization.partition(" ")
        digest = _hash_token(token.strip())
        return digest.hex() if scheme.lower() == "bearer" and digest in self.callers else None

    def caller_by_id(self, token_id: str) -> Caller | None:
        """The caller whose token has this id (`id_of`)."""
        return self.callers.get(bytes.fromhex(token_id))

    def _worker_caller(self, token: str) -> Caller | None:
        uid = token.rpartition(".")[0]
        if not uid or not self.worker_secret:
            return None
        is_genuine = hmac.compare_digest(
            token.encode(errors="replace"), worker_token(self.worker_secret, uid).encode()
        )
        return Caller(frozenset(), uid) if is_genuine else None


def worker_token(secret: str, uid: str) -> str:
    """The token of the workers of the Job with this uid."""
    code = hmac.digest(secret.encode(), uid.encode(errors="replace"), "sha256")
    return f"{uid}.{base64.urlsafe_b64encode(code).decode().rstrip('=')}"


def read_tokens(path: Path) -> Mapping[bytes, Caller]:
    """Callers by the hash of their token, of a file; TokensError names the line."""
    callers: dict[bytes, Caller] = {}
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        token, *namespaces = line.split()[:1000] or ("",)
        if not token or token.startswith("#"):
            continue
        if len(token) < MIN_LENGTH:
            raise TokensError(f"{path}, line {number}: a token has {MIN_LENGTH} or more characters")
        if not namespaces:
            raise TokensError(f"{path}, line {number}: no namespace after the token (* means all)")
        opened = None if ALL_NAMESPACES in namespaces else frozenset(namespaces)
        callers[_hash_token(token)] = Caller(opened)
    if not callers:
        raise TokensError(f"{path} holds no token")
    return callers


def own_token(path: Path) -> str:
    """The token in a file that opens everything, "" if none does. Creates the file if it is missing."""
    if not path.exists():
        token = secrets.token_urlsafe(32)
        _write_private(path, f"{token} {ALL_NAMESPACES}\n")
        return token
    for line in path.read_text().splitlines():
        token, *namespaces = line.split() or ("",)
        if ALL_NAMESPACES in namespaces and not token.startswith("#"):
            return token
    return ""


def worker_secret(path: Path) -> str:
    """The secret that all replicas share by environment, else that of a file, which is created."""
    shared_secret = os.environ.get(ENV_WORKER_SECRET, "")
    if shared_secret and len(shared_secret) < MIN_LENGTH:
        raise TokensError(
            f"{ENV_WORKER_SECRET} has {len(shared_secret)} characters; {MIN_LENGTH} are the least"
        )
    if not shared_secret and not path.exists():
        _write_private(path, secrets.token_urlsafe(32) + "\n")
    return shared_secret or path.read_text().strip()


def _write_private(path: Path, text: str) -> None:
    """Write a new file that only its owner can read."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)


def _hash_token(token: str) -> bytes:
    """Looked up by hash, so that how long a look takes says nothing about a token."""
    return hashlib.sha256(token.encode(errors="replace")).digest()
