"""Who is told what after a cycle: events and figures of the jobs that have changed.

What each listener was told of a job is kept in its view, so the first cycle after a restart tells
what was not told before it, and later ones only what is new.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from laxity import names
from laxity.job.qos import MOST_EPOCHS
from laxity.parsing import calendar_instant
from laxity.worker import mlflow_tracking
from laxity_profiler.estimate import Predictor
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.job import Job
from laxity_scheduler.service.board import Board, News
from laxity_scheduler.service.metrics import Metrics
from laxity_scheduler.service.views import Json, laxity_s
from laxity_scheduler.telling.announce import Courier, Listener, Point, Word, digest, events_between

NEWS_OF_FIGURES = ("epochs_done", "workers", "verdict", "promised_p90_at")


class Teller:
    """Turns news into words for each listener."""

    def __init__(self, board: Board, metrics: Metrics, listeners: Iterable[Listener]) -> None:
        self._board = board
        self._metrics = metrics
        self._couriers = {
            listener.name: Courier(listener, told=self._told(listener.name))
            for listener in listeners
        }
        self._caught_up = False

    def tell(self, news: Sequence[News], state: ClusterState, predictor: Predictor) -> None:
        """Hand the news to the couriers; returns at once."""
        first = not self._caught_up
        if first:
            self._catch_up()
        self._caught_up = True
        for change in news:
            points = self._points(change, state, predictor)
            events = () if first else events_between(change.before, change.after)
            if points or not first:
                self._send(Word(change.after, events, points))
        waiting = sum(courier.waiting for courier in self._couriers.values())
        self._metrics.untold.set(waiting)

    def _points(self, change: News, state: ClusterState, predictor: Predictor) -> tuple[Point, ...]:
        """What is predicted of the job that changed; nothing if that raises: the rest is told."""
        try:
            row = state.by_id.get(change.after["id"])
            return _points(change, row, state.now, predictor)
        except Exception as error:  # noqa: BLE001 - noted with its traceback
            self._metrics.faults.note("figures", change.after["id"], error)
            return ()

    def trained(self, uid: str, lines: Sequence[object]) -> None:
        """Epochs that workers reported, for MLflow, where the service logs them for its workers."""
        view, courier = self._board.by_uid(uid), self._couriers.get("mlflow")
        points = epochs_in(lines) if courier is not None else ()
        if courier is not None and view is not None and points:
            courier.send(Word(view, (), points))

    def problem(self, listener: str) -> str:
        """Why this listener cannot be told now; "" if it can, or there is none."""
        courier = self._couriers.get(listener)
        return courier.problem if courier is not None else ""

    def close(self, *, at_most_s: float = 5.0) -> None:
        for courier in self._couriers.values():
            courier.close(at_most_s=at_most_s)

    def _catch_up(self) -> None:
        """All that is not known to have been told: the service may have ended in between."""
        for view in self._board.all():
            if view["verdict"] != "none":
                for name, courier in self._couriers.items():
                    if (view.get("told") or {}).get(name) != digest(view):
                        courier.send(Word(view, events_between(None, view)))

    def _send(self, word: Word) -> None:
        for name, courier in self._couriers.items():
            if word.points or (word.view.get("told") or {}).get(name) != digest(word.view):
                courier.send(word)

    def _told(self, listener: str) -> Callable[[Word], None]:
        def told(word: Word) -> None:
            uid = word.view["uid"]
            view = self._board.by_uid(uid) or {}
            self._board.mark(uid, told={**(view.get("told") or {}), listener: digest(word.view)})

        return told


def epochs_in(lines: Iterable[object]) -> tuple[Point, ...]:
    """The actual figures of the epochs among report lines; what is no sound line is passed over."""
    found = []
    for line in lines:
        if isinstance(line, dict) and line.get("kind") == "epoch":
            with suppress(ArithmeticError, KeyError, TypeError, ValueError):
                point = mlflow_tracking.Point.of(line)
                values = {str(name): float(value) for name, value in point.values.items()}
                if 1 <= point.epoch <= MOST_EPOCHS and calendar_instant(point.at) is not None:
                    found.append(Point(point.epoch, point.at, values))
    return tuple(found)


def _points(change: News, row: Job | None, now: float, predictor: Predictor) -> tuple[Point, ...]:
    """What is predicted before the next epoch, at that epoch's step."""
    view, before = change.after, change.before or {}
    if row is None or view["verdict"] == "none" or view["epochs_done"] >= view["epochs"]:
        return ()
    if all(before.get(name) == view[name] for name in NEWS_OF_FIGURES):
        return ()
    return (Point(view["epochs_done"] + 1, now, _figures(view, row, now, predictor)),)


def _figures(view: Json, row: Job, now: float, predictor: Predictor) -> dict[str, float]:
    epoch = predictor.epoch_time(row.workload, row.formed or row.workers or min(row.widths))
    began = view["submitted_at"] or 0.0
    steady = bool(row.nodes) and row.formed == row.workers and not row.resize_to
    figures = {
        names.NODES_SERIES: float(len(set(row.nodes))) if steady else None,
        names.EPOCH_P50: epoch.p50_s,
        names.EPOCH_P90: epoch.p90_s,
        names.FINISH_P50: _since(began, view["p50_at"]),
        names.FINISH_P90: _since(began, view["p90_at"]),
        names.FINISH_DEADLINE: _since(began, view["deadline_at"]),
        names.LAXITY_SERIES: laxity_s(view, now),
    }
    return {name: value for name, value in figures.items() if value is not None}


def _since(began: float, at: float | None) -> float | None:
    return None if at is None else at - began
