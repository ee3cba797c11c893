"""The store that a command of this floor reads: the one that is named, else that of the home."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlalchemy import Engine


@contextmanager
def opened(store: str) -> Iterator["Engine"]:
    """The database of that URL; CommandError if none is named and the home has none."""
    from laxity.client import home
    from laxity.exits import NOT_FOUND, CommandError
    from laxity_profiler.tables import open_engine

    path = home() / "laxity.db"
    if not store and not path.exists():
        message = f"there is no history at {path}; train something first, or name --store"
        raise CommandError(message, code=NOT_FOUND)
    engine = open_engine(store or f"sqlite:///{path}")
    try:
        yield engine
    finally:
        engine.dispose()
