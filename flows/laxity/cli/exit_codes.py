"""How a command ends: the exit codes that scripts may rely on, and errors as sentences."""

import errno
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Final, NoReturn

import typer

from laxity.cli.optional_packages import install_advice
from laxity.safe_text import without_secrets

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
REFUSED: Final = 3
NOT_FOUND: Final = 4
AWAY: Final = 5
BROKEN: Final = 6
UNFINISHED: Final = 7
INTERRUPTED: Final = 130  # as a shell shows what SIGINT ended
TERMINATED: Final = 143  # ... and SIGTERM

MEANINGS: Final = {
    OK: "done, promised or kept",
    FAILED: "failed",
    USAGE: "wrong usage",
    REFUSED: "the deadline was refused",
    NOT_FOUND: "no such job",
    AWAY: "no service answers",
    BROKEN: "a promise was broken",
    UNFINISHED: "not ended within --timeout, or no verdict yet",
}

_OUTPUT_ERRORS: Final = frozenset({errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EFBIG})
_USAGE_STATUS: Final = frozenset({400, 401, 403, 409, 413, 422})
_NOT_FOUND_STATUS: Final = 404


class CommandError(RuntimeError):
    """What a command cannot do: the sentence says what is wrong, where, and what to do."""

    def __init__(self, message: str, *, code: int = FAILED) -> None:
        super().__init__(message)
        self.code = code


class _Terminated(KeyboardInterrupt):
    pass


@contextmanager
def interrupt_on_sigterm() -> Iterator[None]:
    """Inside, SIGTERM is a KeyboardInterrupt; the command then ends with TERMINATED."""

    def interrupt(number: int, _: object) -> None:
        signal.signal(number, signal.SIG_DFL)  # a second one ends it without a word
        raise _Terminated

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    except _Terminated as termination:
        raise typer.Exit(TERMINATED) from termination
    finally:
        signal.signal(signal.SIGTERM, before)


def run_app(app: Callable[[], object]) -> NoReturn:
    """Run a Typer app; an error becomes one line on stderr and its exit code."""
    sys.excepthook = _print_traceback
    try:
        app()
    except CommandError as error:
        _print_error(str(error))
        sys.exit(error.code)
    except KeyboardInterrupt:
        with suppress(ValueError):  # another thread may not say so
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # a second one ends it without a word
        sys.exit(INTERRUPTED)
    except ModuleNotFoundError as error:
        message = install_advice(error)
        if message is None:
            raise
        _print_error(message)
        sys.exit(FAILED)
    except Exception as error:
        code = _service_code(error)
        if code is not None:
            _print_error(str(error))
            sys.exit(code)
        if not isinstance(error, OSError):
            raise
        if error.filename is None and error.errno not in _OUTPUT_ERRORS:
            raise
        _print_error(f"{error.filename or 'what is printed cannot be written'}: {error.strerror}")
        sys.exit(FAILED)
    sys.exit(OK)


def _service_code(error: Exception) -> int | None:
    """The exit code of an error of the service; None if the error is something else."""
    from laxity.api.transport import BAD_ADDRESS, STRANGER, ServiceAwayError, ServiceError

    if isinstance(error, ServiceAwayError):
        return AWAY
    if not isinstance(error, ServiceError):
        return None
    if error.code in {BAD_ADDRESS, STRANGER}:
        return USAGE
    if error.status == _NOT_FOUND_STATUS:
        return NOT_FOUND
    return USAGE if error.status in _USAGE_STATUS else FAILED


def _print_traceback(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """As Python does, but for logins in addresses."""
    sys.stderr.write(without_secrets("".join(traceback.format_exception(kind, error, trace))))


def _print_error(message: str) -> None:
    message = without_secrets(message)
    typer.secho("error: ", fg=typer.colors.RED, bold=True, err=True, nl=False)
    typer.echo(message, err=True)
    if os.environ.get("GITHUB_ACTIONS") == "true":
        from laxity.cli.github import print_annotation

        print_annotation("error", message)
