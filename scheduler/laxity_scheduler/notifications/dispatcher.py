"""Which messages go to which sink after a cycle: events and figures of the jobs that changed.

What each sink was sent last about a job is kept in the job's view (`told`). So the first cycle after
a restart sends what was not delivered before it, and later cycles send only what is new. Points for
MLflow wait in the store, too: what workers hand over is there before they are answered.
"""

import logging
from collections.abc import Callable, Iterable, Sequence

from laxity.worker.mlflow_tracking import EpochMetrics
from laxity_profiler.estimate import Predictor
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.notifications.chart_points import (
    epoch_points,
    points_before_epoch,
    points_handed_over,
)
from laxity_scheduler.notifications.message import (
    Message,
    events_between,
    message_digest,
)
from laxity_scheduler.notifications.outbox import Outbox, Sink
from laxity_scheduler.notifications.waiting_points import WaitingPoints
from laxity_scheduler.service.exported.metrics import Metrics
from laxity_scheduler.service.views.view_cache import ViewCache, ViewChange
from laxity_scheduler.service.views.view_fields import Json
from laxity_scheduler.store.store import Store, StoreError

LOG = logging.getLogger(__name__)


class Dispatcher:
    """Turns changed views into messages, and queues them for each sink."""

    def __init__(
        self, view_cache: ViewCache, metrics: Metrics, sinks: Iterable[Sink], store: Store
    ) -> None:
        self._view_cache = view_cache
        self._metrics = metrics
        self._outboxes = {
            sink.name: Outbox(sink, on_delivered=self._recorder_for(sink.name)) for sink in sinks
        }
        self._waiting_points = WaitingPoints(store, metrics.faults)
        self._has_caught_up = False

    def dispatch(
        self, changes: Sequence[ViewChange], state: ClusterState, predictor: Predictor
    ) -> None:
        """Queue messages about these changes; returns at once."""
        is_first = not self._has_caught_up
        if is_first:
            self._catch_up()
        self._has_caught_up = True
        messages = [
            Message(
                change.after,
                () if is_first else events_between(change.before, change.after),
                self._predict_points(change, state, predictor),
            )
            for change in changes
        ]
        for message in self._keep_predictions(messages):
            if message.points or not is_first:
                self._send_to_all(message)
        self._metrics.untold.set(sum(outbox.waiting for outbox in self._outboxes.values()))

    def _predict_points(
        self, change: ViewChange, state: ClusterState, predictor: Predictor
    ) -> tuple[EpochMetrics, ...]:
        """Predictions for the job that changed; none if that raises, and the rest is still sent."""
        job, points = change.after["id"], list[EpochMetrics]()
        with self._metrics.faults.isolate("figures", job):
            points += points_before_epoch(change, state.by_id.get(job), state.now, predictor)
        return tuple(points)

    def _keep_predictions(self, messages: list[Message]) -> list[Message]:
        try:
            return self._waiting_points.keep(messages) if self.logs_points else messages
        except StoreError as error:
            LOG.warning("a kill of the service now would lose predictions for MLflow: %s", error)
            return messages

    @property
    def logs_points(self) -> bool:
        """Whether there is an MLflow to which workers' points can go."""
        return "mlflow" in self._outboxes

    def send_points(self, uid: str, lines: Sequence[object], *, all_epochs: bool) -> None:
        """Queue for MLflow what a last report hands over; with `all_epochs` every reported epoch.

        The points are in the store when this returns. StoreError if not: the report comes again.
        """
        view, outbox = self._view_cache.view_by_uid(uid), self._outboxes.get("mlflow")
        if outbox is not None and view is not None:
            points = points_handed_over(lines) + (epoch_points(lines) if all_epochs else ())
            if points:
                for message in self._waiting_points.keep(
                    [Message(view, (), points, points_only=True)]
                ):
                    outbox.send(message)

    def delivery_problem(self, sink: str) -> str:
        """Why the last message to this sink failed; "" if it did not, or there is no such sink."""
        outbox = self._outboxes.get(sink)
        return outbox.problem if outbox is not None else ""

    def close(self, *, at_most_s: float = 5.0) -> None:
        for outbox in self._outboxes.values():
            outbox.close(at_most_s=at_most_s)

    def _catch_up(self) -> None:
        """Send all that is not known to be delivered: the service may have ended in between.

        Points first: a run that has ended is whole.
        """
        if "mlflow" in self._outboxes:
            for message in self._waiting_points.load(self._view_cache.view_by_uid):
                self._outboxes["mlflow"].send(message)
        for view in self._view_cache.all():
            if view["verdict"] != "none":
                for sink, outbox in self._outboxes.items():
                    if _last_sent(view, sink) != message_digest(view):
                        outbox.send(Message(view, events_between(None, view)))

    def _send_to_all(self, message: Message) -> None:
        for sink, outbox in self._outboxes.items():
            if message.points or _last_sent(message.view, sink) != message_digest(message.view):
                outbox.send(message)

    def _recorder_for(self, sink: str) -> Callable[[Message], None]:
        def record_delivery(message: Message) -> None:
            if sink == "mlflow" and message.rows:
                self._waiting_points.drop(message)
            if message.points_only:
                return
            view = self._view_cache.view_by_uid(message.uid) or {}
            digests = {**(view.get("told") or {}), sink: message_digest(message.view)}
            self._view_cache.remember_fields(message.uid, told=digests)

        return record_delivery


def _last_sent(view: Json, sink: str) -> str | None:
    """The digest of the last message about this job that was delivered to this sink."""
    digest: str | None = (view.get("told") or {}).get(sink)
    return digest
