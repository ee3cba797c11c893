"""Where worker 0 can be reached: one small file in the job's folder, replaced as a whole.

A new leader has a new generation and a new token, so workers of the old one cannot mix in.
"""

import json
import secrets
import socket
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from laxity.durable_files import replace_file

PLACE: Final = "rendezvous.json"


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """`ended` says that the training is over: who comes late has nothing left to do."""

    host: str
    port: int
    token: str
    generation: int
    uid: str = ""  # of the Job: a folder used again says nothing about a new one
    ended: bool = False

    @classmethod
    def read(cls, folder: Path) -> "Rendezvous | None":
        try:
            return cls(**json.loads((folder / PLACE).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    def write(self, folder: Path) -> None:
        """Readable by this user alone: it holds the token."""
        replace_file(folder / PLACE, json.dumps(asdict(self)), mode=0o600)


def open_listener(host: str) -> socket.socket:
    """A listening socket on this host; without one, for processes of this machine only."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host or "127.0.0.1", 0), family=family, backlog=512)


def next_one(folder: Path, *, uid: str, host: str, port: int) -> Rendezvous:
    """The rendezvous of the next generation in this folder."""
    before = Rendezvous.read(folder)
    generation = before.generation + 1 if before else 1
    return Rendezvous(host or "127.0.0.1", port, secrets.token_hex(16), generation, uid)
