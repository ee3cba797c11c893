"""The service in the foreground: folder locked, socket open, world and loop running, until a signal.

The socket is bound before anything else is opened. So workers can be given the address, and a port
that is taken is an error before the cluster is touched.
"""

import ctypes
import logging
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from laxity import names
from laxity_scheduler.http.app import create_app
from laxity_scheduler.http.tokens import (
    ENV_WORKER_SECRET,
    MIN_LENGTH,
    Tokens,
    TokensError,
    own_token,
    read_tokens,
    worker_secret,
    worker_token,
)
from laxity_scheduler.process.instance_dir import InstanceDir
from laxity_scheduler.process.logs import log_to_stderr
from laxity_scheduler.process.start import open_service
from laxity_scheduler.service.settings import Settings, SettingsError
from laxity_scheduler.store.store import StoreError

M_ARENA_MAX: Final = -8  # of malloc.h

LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServiceTokens:
    """Accepted tokens, and the one for clients on this machine ("": they must have their own)."""

    tokens: Tokens
    own: str = ""

    def of_worker(self, uid: str) -> str:
        """The token of the workers of the Job with this uid."""
        return worker_token(self.tokens.worker_secret, uid)


def serve_forever(settings: Settings, tokens_file: Path | None = None) -> None:
    """Serve until SIGTERM or SIGINT. InstanceDirError if the folder is another user's, or busy."""
    from laxity_scheduler.http.connections import LimitedServer

    _share_heap()
    log_to_stderr(settings.log_format, settings.log_level)
    _exit_on_signals()
    home = InstanceDir(settings.home)
    if settings.world == "local":  # elsewhere the folder is a volume of the pod
        home.make_private()
    home.lock_for_process()
    try:
        keys = load_tokens(home, tokens_file)
        for name in (names.ENV_TOKEN, ENV_WORKER_SECRET):  # workers inherit the environment
            os.environ.pop(name, None)
        with _open_socket(settings, home.last_port()) as listening:
            port = listening.getsockname()[1]
            home.keep_port(port)
            url = settings.service_url(port)
            # The workers of the local world inherit it; without a store they log nothing.
            os.environ["MLFLOW_TRACKING_URI"] = settings.tracking_url
            with ExitStack() as stack:
                with as_store_error(settings):
                    parts = stack.enter_context(
                        open_service(settings, url=url, worker_token=keys.of_worker)
                    )
                app = create_app(parts.service, parts.job_service, keys.tokens)
                home.publish_address(url, keys.own)
                LOG.info("serving %s with policy %s", url, settings.policy)

                def stop() -> None:
                    home.withdraw_address()
                    parts.service.notifier.close()

                server = LimitedServer(app, on_stop=stop)
                parts.service.on_end = server.end
                server.run(sockets=[listening])
    finally:
        home.release_lock()


def _share_heap() -> None:
    """Let all threads share one heap of the C library.

    By default glibc gives threads heaps of their own, and each keeps its largest cycle: 700 MB were
    held for 2,000 waiting Jobs in place of 350. Threads here wait for Python's lock, not for the heap's.
    """
    with suppress(AttributeError, OSError):  # another C library
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)


@contextmanager
def as_store_error(settings: Settings) -> Iterator[None]:
    """Turn any error while reading kept data into a StoreError that says what to do."""
    try:
        yield
    except SettingsError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise StoreError(
            f"what is kept in {settings.home} cannot be read ({type(error).__name__}: {error}); "
            "move it aside to begin anew, or restore a copy"
        ) from error


def _exit_on_signals() -> None:
    """Exit on SIGTERM and SIGINT by SystemExit, so that whatever is open is closed."""

    def end(*_: object) -> None:
        raise SystemExit(0)

    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, end)


def load_tokens(home: InstanceDir, file: Path | None) -> ServiceTokens:
    """The accepted tokens: LAXITY_TOKEN, else those of the file, which is created if none is named."""
    token = os.environ.get(names.ENV_TOKEN, "")
    if file is not None and not file.exists():
        raise SettingsError(f"there is no file of tokens {file}")
    secret = worker_secret(home.path / "worker-secret")
    if file is None and token:
        if len(token) < MIN_LENGTH:
            raise TokensError(
                f"{names.ENV_TOKEN} has {len(token)} characters; {MIN_LENGTH} are the least"
            )
        return ServiceTokens(Tokens.for_token(token, secret), token)
    path = file or home.tokens_file
    own = own_token(path)
    LOG.info("tokens are in %s", path)
    return ServiceTokens(Tokens(read_tokens(path), secret), own)


def _open_socket(settings: Settings, last_port: int) -> socket.socket:
    """A socket for listening; SettingsError if the port is taken.

    Port 0 takes the port of the last service if it is still free: its workers know that address.
    """
    ports = [last_port, 0] if settings.port == 0 and last_port else [settings.port]
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    for port in ports:
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((settings.host, port))
        except OSError as error:
            listening.close()
            cause = error.strerror
        else:
            return listening
    where = f"{settings.host}:{settings.port}"
    raise SettingsError(f"cannot listen on {where}: {cause}; try --port 0")
