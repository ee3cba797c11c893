"""The local cluster's objects: rows of JSON in SQLite, each with a revision that only grows.

The problem is to have what an API server gives, compare-and-set and a gapless watch, on one file
that survives `kill -9`. Every change writes the object and one line of a change log in a single
transaction; a watcher asks for the lines after the revision it has seen.
"""

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Condition, RLock
from typing import Any

import orjson

from laxity.json_tree import labels_of, object_id
from laxity.private_files import private_file
from laxity_k8s.cluster_api import ApiError, Change, Json, Kind, Listing

KEPT_CHANGES = 20_000
SCHEMA = """
CREATE TABLE IF NOT EXISTS objects (
  kind TEXT NOT NULL, id TEXT NOT NULL, revision INTEGER NOT NULL, body TEXT NOT NULL,
  PRIMARY KEY (kind, id)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS changes (
  revision INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, type TEXT NOT NULL,
  body TEXT NOT NULL
);
"""


class ObjectStore:
    """One SQLite file; safe for the threads of one process."""

    def __init__(self, path: Path) -> None:
        self._lock = RLock()
        self.changed = Condition(self._lock)
        self.listeners: list[Callable[[], None]] = []
        self._depth = 0
        self._sql = sqlite3.connect(
            private_file(path), check_same_thread=False, isolation_level=None
        )
        self._sql.execute("PRAGMA journal_mode=WAL")
        self._sql.execute("PRAGMA synchronous=NORMAL")
        self._sql.execute("PRAGMA busy_timeout=10000")
        self._sql.executescript(SCHEMA)

    @contextmanager
    def write_together(self) -> Iterator[None]:
        """All or nothing: what is written inside is one transaction, and one look for watchers."""
        with self._lock:
            if self._depth == 0:
                self._sql.execute("BEGIN IMMEDIATE")
            self._depth += 1
            try:
                yield
            except BaseException:
                self._depth -= 1
                if self._depth == 0:
                    self._sql.execute("ROLLBACK")
                raise
            self._depth -= 1
            if self._depth == 0:
                self._sql.execute("COMMIT")
                self.changed.notify_all()
                for listener in self.listeners:
                    listener()

    @property
    def revision(self) -> int:
        with self._lock:
            row = self._sql.execute("SELECT max(revision) FROM changes").fetchone()
        return int(row[0] or 0)

    def find(self, kind: Kind, object_id: str) -> Json | None:
        with self._lock:
            row = self._sql.execute(
                "SELECT body FROM objects WHERE kind = ? AND id = ?", (kind, object_id)
            ).fetchone()
        return None if row is None else _read_body(row[0])

    def get(self, kind: Kind, object_id: str) -> Json:
        item = self.find(kind, object_id)
        if item is None:
            raise ApiError(f'{kind} "{object_id}" not found', status=404)
        return item

    def list_objects(self, kind: Kind, selector: str = "") -> Listing:
        with self._lock:
            rows = self._sql.execute(
                "SELECT body FROM objects WHERE kind = ? ORDER BY id", (kind,)
            ).fetchall()
            revision = self.revision
        items = (_read_body(body) for (body,) in rows)
        return Listing(
            tuple(thing for thing in items if is_selected(selector, labels_of(thing))),
            str(revision),
        )

    def put(self, kind: Kind, thing: Mapping[str, Any]) -> Json:
        """Write an object as it is, with a new resourceVersion; nothing happens if it is equal."""
        key = object_id(thing)
        with self.write_together():
            before = self.find(kind, key)
            if before is not None and before == thing:
                return before
            written = json.loads(json.dumps(thing))
            revision = self._log_change(kind, "ADDED" if before is None else "MODIFIED")
            written["metadata"]["resourceVersion"] = str(revision)
            body = json.dumps(written)
            self._sql.execute("UPDATE changes SET body = ? WHERE revision = ?", (body, revision))
            self._sql.execute(
                "INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?)", (kind, key, revision, body)
            )
        return _read_body(body)

    def remove(self, kind: Kind, object_id: str) -> None:
        """The object is gone; a missing one is no error."""
        with self.write_together():
            gone = self.find(kind, object_id)
            if gone is None:
                return
            revision = self._log_change(kind, "DELETED")
            gone["metadata"]["resourceVersion"] = str(revision)
            self._sql.execute(
                "UPDATE changes SET body = ? WHERE revision = ?", (json.dumps(gone), revision)
            )
            self._sql.execute("DELETE FROM objects WHERE kind = ? AND id = ?", (kind, object_id))

    def changes(self, kind: Kind | None, since: int) -> tuple[list[tuple[str, Change]], int]:
        """What changed after a revision, oldest first with its kind, and the latest revision.

        ApiError 410 if lines after that revision have been dropped.
        """
        with self._lock:
            floor = self._sql.execute("SELECT min(revision) FROM changes").fetchone()[0]
            if floor is not None and since + 1 < floor:
                raise ApiError(f"revision {since} is too old, the first is {floor}", status=410)
            rows = self._sql.execute(
                "SELECT kind, type, body FROM changes WHERE revision > ? "
                "AND (? IS NULL OR kind = ?) ORDER BY revision",
                (since, kind, kind),
            ).fetchall()
            latest = self.revision
        return [
            (name, Change(type=change, object=_read_body(body))) for name, change, body in rows
        ], latest

    def compact(self) -> None:
        """Drop the oldest lines of the change log."""
        with self.write_together():
            self._sql.execute(
                "DELETE FROM changes WHERE revision <= ?", (self.revision - KEPT_CHANGES,)
            )

    def close(self) -> None:
        with self._lock:
            self._sql.close()

    def _log_change(self, kind: Kind, change: str) -> int:
        row = self._sql.execute(
            "INSERT INTO changes (kind, type, body) VALUES (?, ?, '')", (kind, change)
        )
        return int(row.lastrowid or 0)


def is_selected(selector: str, found: Mapping[str, str]) -> bool:
    """Does "label=value" or "label" select an object with these labels? Empty selects all."""
    if not selector:
        return True
    label, equals, value = selector.partition("=")
    return found.get(label) == value if equals else label in found


def _read_body(body: str) -> Json:
    try:
        thing: Json = orjson.loads(body)  # names of fields are shared: objects take half the memory
    except orjson.JSONDecodeError:  # a number or a text beyond the standard
        thing = json.loads(body)
    return thing
