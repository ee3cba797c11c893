"""Predicted and measured figures of a job, one point per epoch, as MLflow charts them."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final

from laxity import names
from laxity.instants import calendar_instant
from laxity.job.qos import MOST_EPOCHS
from laxity.worker import mlflow_tracking
from laxity_profiler.estimate import Predictor
from laxity_scheduler.model.job import Job
from laxity_scheduler.notifications.message import ChartPoint
from laxity_scheduler.service.promise_outcome import laxity_s
from laxity_scheduler.service.view_cache import ViewChange
from laxity_scheduler.service.view_fields import Json

PREDICTION_FIELDS: Final = ("epochs_done", "workers", "verdict", "promised_p90_at")


def epoch_points(lines: Iterable[object]) -> tuple[ChartPoint, ...]:
    """The measured figures of the epochs among report lines; unreadable lines are skipped."""
    epochs = [line for line in lines if isinstance(line, dict) and line.get("kind") == "epoch"]
    return _readable_points(epochs, mlflow_tracking.EpochMetrics.of)


def points_handed_over(lines: Iterable[object]) -> tuple[ChartPoint, ...]:
    """What workers that ended before they had opened MLflow leave to the service to log."""
    lists = [line.get("points") for line in lines if isinstance(line, dict)]
    points = [point for some in lists if isinstance(some, list) for point in some]
    return _readable_points(
        points[: mlflow_tracking.POINTS_HANDED_OVER], mlflow_tracking.EpochMetrics.from_json
    )


def _readable_points(
    documents: Iterable[Any], read: Callable[[Any], mlflow_tracking.EpochMetrics]
) -> tuple[ChartPoint, ...]:
    points = []
    for document in documents:
        with suppress(ArithmeticError, AttributeError, KeyError, TypeError, ValueError):
            point = read(document)
            values = {
                mlflow_tracking.series_name(str(name)): float(value)
                for name, value in point.values.items()
            }
            if 1 <= point.epoch <= MOST_EPOCHS and calendar_instant(point.at) is not None:
                points.append(ChartPoint(point.epoch, point.at, values))
    return tuple(points)


def points_before_epoch(
    change: ViewChange, row: Job | None, now: float, predictor: Predictor
) -> tuple[ChartPoint, ...]:
    """Predictions made before the next epoch, at that epoch's step; none if nothing changed."""
    view, before = change.after, change.before or {}
    if row is None or view["verdict"] == "none" or view["epochs_done"] >= view["epochs"]:
        return ()
    if all(before.get(name) == view[name] for name in PREDICTION_FIELDS):
        return ()
    return (
        ChartPoint(view["epochs_done"] + 1, now, _prediction_values(view, row, now, predictor)),
    )


def _prediction_values(view: Json, row: Job, now: float, predictor: Predictor) -> dict[str, float]:
    epoch = predictor.epoch_time(row.workload, row.formed or row.workers or min(row.widths))
    began = view["submitted_at"] or 0.0
    steady = bool(row.nodes) and row.formed == row.workers and not row.resize_to
    figures = {
        names.NODES_SERIES: float(len(set(row.nodes))) if steady else None,
        names.EPOCH_P50: epoch.p50_s,
        names.EPOCH_P90: epoch.p90_s,
        names.FINISH_P50: _seconds_since(began, view["p50_at"]),
        names.FINISH_P90: _seconds_since(began, view["p90_at"]),
        names.FINISH_DEADLINE: _seconds_since(began, view["deadline_at"]),
        names.LAXITY_SERIES: laxity_s(view, now),
    }
    return {name: value for name, value in figures.items() if value is not None}


def _seconds_since(began: float, instant: float | None) -> float | None:
    return None if instant is None else instant - began
