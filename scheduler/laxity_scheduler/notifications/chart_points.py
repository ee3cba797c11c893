"""Predicted and measured figures of a job, one point per epoch, as MLflow charts them."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final

from laxity import names
from laxity.instants import calendar_instant
from laxity.job.qos import MOST_EPOCHS
from laxity.worker.mlflow_tracking import POINTS_HANDED_OVER, EpochMetrics, series_name
from laxity_profiler.estimate import Predictor
from laxity_scheduler.model.job import Job
from laxity_scheduler.service.views.promise_outcome import laxity_s
from laxity_scheduler.service.views.view_cache import ViewChange
from laxity_scheduler.service.views.view_fields import Json

PREDICTION_FIELDS: Final = ("epochs_done", "workers", "verdict", "promised_p90_at")


def epoch_points(lines: Iterable[object]) -> tuple[EpochMetrics, ...]:
    """The measured figures of the epochs among report lines; unreadable lines are skipped.

    So are epochs that were trained once more: MLflow has a point at each of their steps.
    """
    told = [line for line in lines if isinstance(line, dict) and line.get("kind") == "epoch"]
    epochs = [line for line in told if line.get("again") is not True]
    return readable_points(epochs, EpochMetrics.of)


def points_handed_over(lines: Iterable[object]) -> tuple[EpochMetrics, ...]:
    """What workers that ended leave to the service to log: they had not opened MLflow, or it failed."""
    lists = [line.get("points") for line in lines if isinstance(line, dict)]
    points = [point for some in lists if isinstance(some, list) for point in some]
    return readable_points(points[:POINTS_HANDED_OVER])


def readable_points(
    documents: Iterable[Any], read: Callable[[Any], EpochMetrics] = EpochMetrics.from_json
) -> tuple[EpochMetrics, ...]:
    """The points that can be read and shown in a chart; the others are skipped."""
    points = []
    for document in documents:
        with suppress(ArithmeticError, AttributeError, KeyError, TypeError, ValueError):
            point = read(document)
            values = {series_name(str(name)): float(value) for name, value in point.values.items()}
            if 1 <= point.epoch <= MOST_EPOCHS and calendar_instant(point.at) is not None:
                points.append(EpochMetrics(point.epoch, point.at, values))
    return tuple(points)


def points_before_epoch(
    change: ViewChange, row: Job | None, now: float, predictor: Predictor
) -> tuple[EpochMetrics, ...]:
    """Predictions made before the next epoch, at that epoch's step; none if nothing changed."""
    view, before = change.after, change.before or {}
    if row is None or view["verdict"] == "none" or view["epochs_done"] >= view["epochs"]:
        return ()
    if all(before.get(name) == view[name] for name in PREDICTION_FIELDS):
        return ()
    return (
        EpochMetrics(view["epochs_done"] + 1, now, _prediction_values(view, row, now, predictor)),
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
