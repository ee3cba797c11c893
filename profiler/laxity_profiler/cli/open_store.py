"""The store that a command of this floor reads: the one that is named, else that of the home."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlalchemy import Engine


@contextmanager
def open_store(store: str, *, may_make: bool = False) -> Iterator["Engine"]:
    """The database of that URL; CommandError if there is none, or if it does not do its work.

    `may_make`: one that is named and not there is made.
    """
    from laxity.api.client import home_folder
    from laxity.cli.exit_codes import AWAY, CommandError
    from laxity_profiler.history.history_database import HistoryError, open_engine

    url = store or f"sqlite:///{home_folder() / 'laxity.db'}"
    if not (store and may_make):
        _check_exists(url)
    try:
        engine = open_engine(url)
        try:
            yield engine
        finally:
            engine.dispose()
    except HistoryError as error:
        raise CommandError(str(error), code=AWAY) from error


def _check_exists(url: str) -> None:
    """A command that only reads does not make an empty file of a misspelt name."""
    from laxity.cli.exit_codes import NOT_FOUND, CommandError

    path = Path(url.removeprefix("sqlite:///"))
    if url.startswith("sqlite:///") and not path.exists():
        message = (
            f"there is no history at {path}: no service has run with that home. Start one with "
            "laxity up, or name the store of yours with --store"
        )
        raise CommandError(message, code=NOT_FOUND)
