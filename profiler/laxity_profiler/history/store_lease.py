"""One at a time, over all processes and machines that share a store: a lease with an end.

Taken by compare-and-swap on one row, so two that try at once cannot both have it. A holder that
died on this machine is found out; one that died elsewhere is waited for until its lease ends.
"""

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from laxity_profiler.history import history_database

if TYPE_CHECKING:
    from sqlalchemy import Engine

LEASE_S: Final = 900.0


class LeaseHeldError(RuntimeError):
    """Somebody else is at it; the message says who, and until when at most."""


@dataclass(slots=True)
class StoreLease:
    """What is held. `renew` it before `LEASE_S` have gone by since the last time."""

    engine: "Engine"
    source: str
    position: str

    def renew(self) -> None:
        """LeaseHeldError if it was lost in between."""
        after = _new_position()
        with history_database.open_transaction(self.engine) as connection:
            is_renewed = history_database.swap_setting(
                connection, self.source, self.position, after
            )
        if not is_renewed:
            raise LeaseHeldError(f"{self.source} was taken over by another process")
        self.position = after


@contextmanager
def hold_lease(engine: "Engine", name: str) -> Iterator[StoreLease]:
    """Hold the lease of this name; LeaseHeldError if another process does."""
    source = f"lease:{name}"
    with history_database.open_transaction(engine) as connection:
        before = history_database.read_setting(connection, source)
    if before and _is_alive(before):
        host, pid, until = before.rsplit(" ", 2)
        left_s = float(until) - time.time()
        raise LeaseHeldError(f"process {pid} on {host} is at it, for {left_s:.0f} s more at most")
    after = _new_position()
    with history_database.open_transaction(engine) as connection:
        if not history_database.swap_setting(connection, source, before, after):
            raise LeaseHeldError(f"another process took {source} at the same moment")
    lease = StoreLease(engine, source, after)
    try:
        yield lease
    finally:
        with history_database.open_transaction(engine) as connection:
            history_database.swap_setting(connection, source, lease.position, "")


def _new_position() -> str:
    return f"{socket.gethostname()} {os.getpid()} {time.time() + LEASE_S:.3f}"


def _is_alive(position: str) -> bool:
    """Whether the lease goes on and its holder, as far as can be seen, is there."""
    host, pid, until = position.rsplit(" ", 2)
    if float(until) <= time.time():
        return False
    if host != socket.gethostname():
        return True
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
