"""A deadline flow under torchrun or `accelerate launch` is one job: rank 0 submits it, the others wait.

Each process of such a launch runs the same script, and would submit a job of its own. Rank 0 tells the
others what came of its call, through the store of the launch at MASTER_ADDR:MASTER_PORT: where
torchrun's agent holds one that is it, else rank 0 opens it. The workers of the job are elsewhere, and
are told nothing of this launch.
"""

import os
import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from typing import Any, Final

from laxity import names
from laxity.flow.signature import ENV_ALONE
from laxity.job.qos import QoSError
from laxity.stderr import say

LOOK: Final = timedelta(seconds=60)  # of one wait; a training takes as long as it takes
TAKEN: Final = timedelta(seconds=30)  # until the others have what came of it
WHERE: Final = ("MASTER_ADDR", "MASTER_PORT")


@dataclass(slots=True)
class TorchLaunch:
    """The launch that this process is one of; its calls are counted, alike in all ranks."""

    rank: int
    ranks: int
    _calls: "count[int]" = field(default_factory=count)
    _store: Any = None

    def call(self, name: str, run: Callable[[], Any]) -> Any:
        """What `run` returns or raises in rank 0, in every rank; only rank 0 calls it."""
        key, store = f"laxity/{next(self._calls)}", self._open_store(name)
        if self.rank:
            return self._await_outcome(name, store, key)
        try:
            outcome: tuple[bool, Any] = (True, run())
        except Exception as error:  # noqa: BLE001 - raised again, here and elsewhere
            outcome = (False, error)
        store.set(key, _pack(outcome))
        self._wait_for_others(store, key)
        return _unpack(outcome)

    def _await_outcome(self, name: str, store: Any, key: str) -> Any:
        say(f"{name}: rank {self.rank} of {self.ranks} waits for rank 0, which submits the job")
        while not store.check([key]):
            _wait(store, [key], LOOK)
        outcome = pickle.loads(store.get(key))  # noqa: S301 - of a process of this very launch
        store.set(f"{key}/{self.rank}", "1")
        return _unpack(outcome)

    def _wait_for_others(self, store: Any, key: str) -> None:
        """The store may be this process's own, and end with it."""
        _wait(store, [f"{key}/{rank}" for rank in range(1, self.ranks)], TAKEN)

    def _open_store(self, name: str) -> Any:
        if self._store is None:
            host, port = (os.environ.get(variable, "") for variable in WHERE)
            try:
                from torch.distributed import TCPStore
            except ImportError as error:
                raise QoSError("RANK", f"{name}: {NO_STORE}") from error
            if not (host and port.isdecimal()):
                raise QoSError("RANK", f"{name}: {NO_STORE}")
            opens = self.rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
            self._store = TCPStore(host, int(port), None, opens, wait_for_workers=False)
        return self._store


NO_STORE: Final = (
    "RANK and WORLD_SIZE say that this is one of several processes of a launch, but there is no "
    "MASTER_ADDR with MASTER_PORT, or no PyTorch, to ask rank 0 by; start the flow as one process, and "
    'let laxity start the workers: workers=2, launcher="torch"'
)
_LAUNCHES: Final[dict[tuple[int, int], TorchLaunch]] = {}


def launch_of_process() -> TorchLaunch | None:
    """The launch of several processes that this one is part of; None for a process of its own.

    Neither in a worker of laxity nor where a training runs alone.
    """
    rank, ranks = (os.environ.get(name, "") for name in ("RANK", "WORLD_SIZE"))
    if not (rank.isdecimal() and ranks.isdecimal()) or int(ranks) < 2:
        return None
    if os.environ.get(names.ENV_JOB) or os.environ.get(ENV_ALONE):
        return None
    return _LAUNCHES.setdefault((int(rank), int(ranks)), TorchLaunch(int(rank), int(ranks)))


def _wait(store: Any, keys: list[str], at_most: timedelta) -> None:
    """Until these keys are there, or for so long."""
    try:
        store.wait(keys, at_most)
    except RuntimeError as error:  # torch's DistStoreError; a lost connection is one, too
        if "onnection" in str(error):
            raise ConnectionError(f"rank 0 of this launch is gone ({error})") from error


def _pack(outcome: tuple[bool, Any]) -> bytes:
    try:
        return pickle.dumps(outcome)
    except Exception:  # noqa: BLE001 - whatever a user's class does
        good, value = outcome
        return pickle.dumps((good, str(value)) if good else (good, RuntimeError(str(value))))


def _unpack(outcome: tuple[bool, Any]) -> Any:
    good, value = outcome
    if good:
        return value
    raise value
