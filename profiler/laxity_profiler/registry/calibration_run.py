"""One run in MLflow that shows how far predictions can be trusted: its pictures, and coverage in time.

The run is found again by its tag. Its metrics have the number of outcomes as their step, so that a
chart shows how coverage went; nothing is written while no outcome is new.
"""

import json
import time
from collections.abc import Sequence
from hashlib import sha256
from typing import Any, Final

from laxity_profiler.charts import calibration_chart, scatter_chart
from laxity_profiler.learning.backtest import (
    LIVE_LEVELS,
    PredictionOutcome,
    calibration_curve,
    error_metrics,
)
from laxity_profiler.registry.mlflow_errors import translate_mlflow_errors
from laxity_profiler.registry.mlflow_registry import TAG_DIGEST, Registry

TAG_VIEW: Final = "laxity.view"
VIEW: Final = "calibration"
NOTE: Final = "mlflow.note.content"
CALIBRATION: Final = "calibration.png"
SCATTER: Final = "predicted_vs_actual.png"
TABLE: Final = "outcomes.csv"
Kinds = dict[str, list[PredictionOutcome]]


def refresh_calibration(registry: Registry, outcomes_by_kind: Kinds) -> tuple[str, bool]:
    """The view's run, and whether it was written; `found` holds outcomes by kind, live or backtest."""
    digest = digest_of(outcomes_by_kind)
    with translate_mlflow_errors(registry.uri):
        client = registry.client
        condition = f"tags.`{TAG_VIEW}` = '{VIEW}'"
        runs = client.search_runs([registry.experiment], condition, max_results=1)
        if runs and runs[0].data.tags.get(TAG_DIGEST) == digest:
            return str(runs[0].info.run_id), False
        run = runs[0] if runs else _create_run(registry)
        run_id = str(run.info.run_id)
        curves = {
            f"{kind}, {stage}": calibration_curve(rows)
            for kind, outcomes in outcomes_by_kind.items()
            for stage, rows in group_by_stage(outcomes).items()
        }
        everything = [outcome for outcomes in outcomes_by_kind.values() for outcome in outcomes]
        client.log_figure(run_id, calibration_chart(curves), CALIBRATION)
        client.log_figure(run_id, scatter_chart(everything), SCATTER)
        client.log_text(run_id, outcomes_csv(outcomes_by_kind), TABLE)
        _log_metrics(registry, run_id, outcomes_by_kind)
        client.set_tag(run_id, NOTE, markdown_note(run_id, outcomes_by_kind))
        client.set_experiment_tag(
            registry.experiment, NOTE, markdown_note(run_id, outcomes_by_kind)
        )
        client.set_terminated(run_id)
        client.set_tag(run_id, TAG_DIGEST, digest)  # last: what is not marked is written again
        return run_id, True


def group_by_stage(outcomes: Sequence[PredictionOutcome]) -> Kinds:
    outcomes_by_kind: Kinds = {}
    for outcome in outcomes:
        outcomes_by_kind.setdefault(outcome.stage, []).append(outcome)
    return dict(sorted(outcomes_by_kind.items()))


def coverage_of(outcomes_by_kind: Kinds) -> dict[str, float]:
    """Coverage and errors by kind and stage, as metrics: `coverage/live_start_p90`."""
    metrics: dict[str, float] = {}
    for kind, outcomes in outcomes_by_kind.items():
        for stage in group_by_stage(outcomes):
            for name, value in error_metrics(outcomes, stage=stage).items():
                prefix, _, figure = name.partition("/")
                metrics[f"{prefix}/{kind}_{stage}_{figure}"] = value
    return metrics


def digest_of(outcomes_by_kind: Kinds) -> str:
    rows = [
        (
            kind,
            outcome.model,
            outcome.stage,
            outcome.predicted_s,
            outcome.actual_s,
            outcome.quantiles_s,
        )
        for kind, outcomes in sorted(outcomes_by_kind.items())
        for outcome in outcomes
    ]
    return sha256(json.dumps(rows).encode()).hexdigest()[:12]


def outcomes_csv(outcomes_by_kind: Kinds) -> str:
    """All outcomes as CSV, in seconds."""
    lines = ["kind,model,stage,p10_s,p50_s,p90_s,actual_s"]
    for kind, outcomes in sorted(outcomes_by_kind.items()):
        for outcome in outcomes:
            quantiles_s = dict(zip(outcome.levels, outcome.quantiles_s, strict=True))
            figures = [f"{quantiles_s[level]:.6g}" for level in LIVE_LEVELS]
            model = '"' + outcome.model.replace('"', '""') + '"'
            lines.append(
                ",".join([kind, model, outcome.stage, *figures, f"{outcome.actual_s:.6g}"])
            )
    return "\n".join(lines) + "\n"


def markdown_note(run_id: str, outcomes_by_kind: Kinds) -> str:
    """What the pages show first: coverage in a table, and both pictures."""
    rows = [
        "| predictions | of | in P10 | in P50 | in P90 (95 % interval) | median error |",
        "|---|---|---|---|---|---|",
    ]
    for kind, outcomes in outcomes_by_kind.items():
        for stage, chosen in group_by_stage(outcomes).items():
            points = {point.level: point for point in calibration_curve(chosen)}
            low, high = points[0.9].interval
            p10, p50, p90 = (f"{100 * points[level].share:.1f} %" for level in LIVE_LEVELS)
            off = 100 * error_metrics(chosen, stage=stage)["error/median_ape"]
            within = f"{p90} ({100 * low:.1f} to {100 * high:.1f})"
            rows.append(
                f"| {kind}, {stage} | {len(chosen)} | {p10} | {p50} | {within} | {off:.1f} % |"
            )
    pictures = [
        f"![{name}](get-artifact?path={name}&run_uuid={run_id})" for name in (CALIBRATION, SCATTER)
    ]
    return "\n".join([*rows, "", *pictures])


def _create_run(registry: Registry) -> Any:
    tags = {TAG_VIEW: VIEW}
    return registry.client.create_run(registry.experiment, tags=tags, run_name=VIEW)


def _log_metrics(registry: Registry, run_id: str, outcomes_by_kind: Kinds) -> None:
    from mlflow.entities import Metric

    step = sum(len(outcomes) for outcomes in outcomes_by_kind.values())
    now_ms = round(1000 * time.time())
    metrics = [
        Metric(name, value, now_ms, step) for name, value in coverage_of(outcomes_by_kind).items()
    ]
    registry.client.log_batch(run_id, metrics=metrics)
