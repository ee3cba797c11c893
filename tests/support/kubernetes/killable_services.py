"""Services that die, or stop as if paused, at a named step of acting: real processes, real kill -9.

Run as `python -m tests.support.kubernetes.killable_services`, this reads all of the service's code once and then forks a
service per line of standard input, so that a start takes a moment and not ten seconds. A step is
"before" or "after" one of: "journal" (the transaction of a cycle that starts, stops or resizes a job),
"patch" (of a Job), "reset" (of its start time), "event"; `nth` counts from 1, from the start of that service. For what stands on
the wire, "before" is later than every check of our own: the next thing is the packet.
"""

import contextlib
import ctypes
import importlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.support.kubernetes.cluster import DIES_WITH_US

ROOT: Final = Path(__file__).parents[3]
PR_SET_PDEATHSIG: Final = 1
CODE: Final = (
    "alembic.command", "kubernetes.aio.client", "kubernetes.aio.config", "psycopg",
    "uvicorn.protocols.http.auto", "uvicorn.protocols.websockets.auto", "laxity.cli.main",
    "laxity_k8s.http.api_cluster", "laxity_profiler.learning.learner", "laxity_scheduler.commands",
    "laxity_scheduler.policies.qos", "laxity_scheduler.process.serve", "laxity_lab.simulate.commands",
)  # fmt: skip
STEPS: Final = tuple(
    f"{when} {what}"
    for what in ("journal", "patch", "reset", "event")
    for when in ("before", "after")
)
WOKEN: Final = "sent after its pause:"  # in the log of one that was stopped and went on


@dataclass(frozen=True, slots=True)
class End:
    """Where a service's life is cut: killed, or stopped until somebody says SIGCONT.

    Steps count from the moment at which there is a file `since`, if one is named.
    """

    step: str = ""
    nth: int = 0
    how: signal.Signals = signal.SIGKILL
    since: str = ""


class ServiceForker:
    """The process that forks services."""

    def __init__(self, log: Path) -> None:
        with log.open("ab") as errors:
            self._mother = subprocess.Popen(
                [*DIES_WITH_US, sys.executable, "-m", "tests.support.kubernetes.killable_services"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, cwd=ROOT, text=True,
            )  # fmt: skip

    def fork(
        self, arguments: Sequence[str], env: Mapping[str, str], log: Path, end: End = End()
    ) -> "Life":
        wish = {
            "arguments": list(arguments), "env": dict(env), "log": str(log),
            "step": end.step, "nth": end.nth, "how": int(end.how), "since": end.since,
        }  # fmt: skip
        assert self._mother.stdin is not None
        assert self._mother.stdout is not None
        self._mother.stdin.write(json.dumps(wish) + "\n")
        self._mother.stdin.flush()
        return Life(int(self._mother.stdout.readline()))

    def close(self) -> None:
        """Its children die with it."""
        self._mother.kill()
        self._mother.communicate()


@dataclass(frozen=True, slots=True)
class Life:
    """One process that was forked; who is dead is gone at once."""

    pid: int

    def state(self) -> str:
        """The kernel's letter: R, S, T (stopped), ...; "" for one that is dead.

        Z is of its first thread alone: the others may still hold its files and locks.
        """
        try:
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return ""

    def send(self, what: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, what)

    def end(self, what: signal.Signals = signal.SIGKILL) -> None:
        """Returns when it is dead."""
        self.send(what)
        for _ in range(12_000):
            if not self.state():
                return
            time.sleep(0.01)  # between looks at the condition
        raise AssertionError(f"process {self.pid} does not end")


def main() -> None:
    """Fork a service per line, forever."""
    for module in CODE:
        importlib.import_module(module)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them, so none stays a zombie
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            _live(json.loads(line))
        sys.stdout.write(f"{child}\n")
        sys.stdout.flush()


def _live(wish: Mapping[str, Any]) -> None:
    """The service, in a child of its own; never returns."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    log = os.open(wish["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for there, here in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(there, here)
    for name in [name for name in os.environ if name.startswith(("LAXITY_", "KUBE"))]:
        del os.environ[name]
    os.environ |= wish["env"]
    from kubernetes.aio.config import kube_config

    kube_config.KUBE_CONFIG_DEFAULT_LOCATION = wish["env"]["KUBECONFIG"]  # it looked at its import
    how = signal.Signals(wish["how"])
    _cut_at(End(wish["step"], wish["nth"], how, wish["since"]))
    from laxity.cli.main import main as laxity

    sys.argv = ["laxity", *wish["arguments"]]
    try:
        laxity()
    except Exception:  # noqa: BLE001 - the log says what it died of
        traceback.print_exc()
    finally:
        os._exit(0)


class _Passing:
    """Counts the steps that a service passes, and cuts its life at one of them."""

    def __init__(self, end: End) -> None:
        self._end, self._passed, self.cut = end, Counter[str](), False

    def __call__(self, step: str) -> None:
        end = self._end
        if end.since and not Path(end.since).exists():
            return
        self._passed[step] += 1
        if (step, self._passed[step]) == (end.step, end.nth):
            self.cut = True
            # Sent to the process, a stop may be taken by another thread while this one goes on.
            signal.pthread_kill(threading.get_ident(), end.how)


def _cut_at(end: End) -> None:
    """Wrap the two doors through which a service acts: the journal's, and the session's."""
    from laxity_k8s.http.session import ApiSession
    from laxity_scheduler.store.store import Store
    from laxity_scheduler.store.tables import CycleRow

    passes = _Passing(end)
    record: Callable[..., None] = Store.write_rows
    once: Callable[..., Any] = ApiSession._send_once

    def journal(store: Store, rows: Any, jobs: Any = ()) -> None:
        new = list(rows)
        acts = any(isinstance(row, CycleRow) and _moves(row.plan) for row in new)
        if acts:
            passes("before journal")
        record(store, new, jobs)
        if acts:
            passes("after journal")

    async def send(api_session: ApiSession, method: str, path: str, **said: Any) -> Any:
        what = _named(method, path)
        if not what:
            return await once(api_session, method, path, **said)
        passes(f"before {what}")
        answer = await once(api_session, method, path, **said)
        if passes.cut:
            sys.stderr.write(f"{WOKEN} {what} {path}: {answer[0]}\n")
        if 200 <= answer[0] < 300:
            passes(f"after {what}")
        return answer

    Store.write_rows = journal  # type: ignore[method-assign, assignment]
    ApiSession._send_once = send  # type: ignore[method-assign, assignment]


def _moves(plan: bytes) -> bool:
    """Whether somebody starts, stops or changes his width."""
    return any(word in plan for word in (b'"Admit"', b'"Preempt"', b'"Resize"'))


def _named(method: str, path: str) -> str:
    if method == "PATCH" and "/jobs/" in path:
        return "reset" if path.endswith("/status") else "patch"
    return "event" if method == "POST" and path.endswith("/events") else ""


if __name__ == "__main__":
    main()
