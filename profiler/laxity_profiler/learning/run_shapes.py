"""From the observed runs of a model to the shapes of its runs, by number of epochs."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from laxity_profiler.model.run_shape import LEAST_EPOCHS, ShapeRuns

if TYPE_CHECKING:
    from laxity_profiler.history.history import TrainingRun


def collect_shapes(runs: "Sequence[TrainingRun]") -> Mapping[int, ShapeRuns]:
    """By number of epochs, what runs showed that trained all of theirs in one place."""
    whole: dict[int, list[tuple[str, list[float]]]] = {}
    for run in runs:
        if _is_whole(run):
            usual = [epoch.epoch_s for epoch in run.epochs if not epoch.warmup]
            mean_s = sum(usual) / len(usual)
            ratios = [
                epoch.epoch_s / mean_s if not epoch.warmup or not place else np.nan
                for place, epoch in enumerate(run.epochs)
            ]
            whole.setdefault(run.workload.epochs, []).append((run.uid, ratios))
    return {
        epochs: ShapeRuns([uid for uid, _ in rows], np.array([ratios for _, ratios in rows]))
        for epochs, rows in whole.items()
    }


def _is_whole(run: "TrainingRun") -> bool:
    numbers = [epoch.epoch for epoch in run.epochs]
    epochs = run.workload.epochs
    places = {(epoch.width, epoch.nodes, epoch.gpu_type) for epoch in run.epochs}
    warm = sum(not epoch.warmup for epoch in run.epochs[1:])
    return (
        epochs >= LEAST_EPOCHS
        and numbers == list(range(1, epochs + 1))
        and len(places) == 1
        and 2 * warm >= epochs
    )
