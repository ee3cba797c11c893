"""Points on their way to MLflow: in the store until MLflow has them, so that a kill loses none.

A row holds what one report handed over, or one prediction. A service that is killed after MLflow took
the points and before their row is gone logs them once more; MLflow keeps one of two points of a series
whose step, time and value are equal.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from uuid import uuid4

import orjson

from laxity_scheduler.job_faults import JobFaults
from laxity_scheduler.notifications.chart_points import readable_points
from laxity_scheduler.notifications.message import Message
from laxity_scheduler.service.views.view_fields import Json
from laxity_scheduler.store.store import Store, StoreError
from laxity_scheduler.store.tables import NewRow, WaitingPointsRow

LOG = logging.getLogger(__name__)


class WaitingPoints:
    """The points of messages that are not delivered yet."""

    def __init__(self, store: Store, faults: JobFaults) -> None:
        self._store, self._faults = store, faults
        self._kept: set[str] = set()  # rows of messages that this process has in its queue

    def keep(self, messages: Sequence[Message]) -> list[Message]:
        """These messages, their points in the store when this returns; StoreError if not."""
        messages = [
            replace(message, rows=(uuid4().hex,)) if message.points else message
            for message in messages
        ]
        rows = [_row_of(message) for message in messages if message.rows]
        if rows:
            self._store.save_rows(rows)
        self._kept |= {row for message in messages for row in message.rows}
        return messages

    def load(self, view_by_uid: Callable[[str], Json | None]) -> list[Message]:
        """What others left waiting in the store, about jobs that are known."""
        messages = []
        for row in self._store.load_rows(WaitingPointsRow):
            if row.id in self._kept:
                continue
            with self._faults.isolate("waiting points", row.uid):
                points, view = readable_points(orjson.loads(row.body)), view_by_uid(row.uid)
                if view is not None:
                    messages.append(Message(view, points=points, points_only=True, rows=(row.id,)))
        return messages

    def drop(self, message: Message) -> None:
        """Forget the points of a message that was delivered."""
        self._kept -= set(message.rows)
        try:
            self._store.drop_waiting_points(message.rows)
        except StoreError as error:
            LOG.warning("points that MLflow has are logged again after a restart: %s", error)


def _row_of(message: Message) -> NewRow:
    body = orjson.dumps([point.to_json() for point in message.points])
    return NewRow(WaitingPointsRow, {"id": message.rows[0], "uid": message.uid, "body": body})
