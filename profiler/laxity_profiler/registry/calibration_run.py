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
from laxity_profiler.learning.backtest import LIVE_LEVELS, Outcome, calibration, errors
from laxity_profiler.registry.mlflow_errors import answering
from laxity_profiler.registry.registry import TAG_DIGEST, Registry

TAG_VIEW: Final = "laxity.view"
VIEW: Final = "calibration"
NOTE: Final = "mlflow.note.content"
CALIBRATION: Final = "calibration.png"
SCATTER: Final = "predicted_vs_actual.png"
TABLE: Final = "outcomes.csv"
Kinds = dict[str, list[Outcome]]


def refresh(registry: Registry, found: Kinds) -> tuple[str, bool]:
    """The view's run, and whether it was written; `found` holds outcomes by kind, live or backtest."""
    digest = digest_of(found)
    with answering(registry.uri):
        client = registry.client
        asked = f"tags.`{TAG_VIEW}` = '{VIEW}'"
        known = client.search_runs([registry.experiment], asked, max_results=1)
        if known and known[0].data.tags.get(TAG_DIGEST) == digest:
            return str(known[0].info.run_id), False
        run = known[0] if known else _made(registry)
        run_id = str(run.info.run_id)
        curves = {
            f"{kind}, {stage}": calibration(rows)
            for kind, outcomes in found.items()
            for stage, rows in by_stage(outcomes).items()
        }
        everything = [outcome for outcomes in found.values() for outcome in outcomes]
        client.log_figure(run_id, calibration_chart(curves), CALIBRATION)
        client.log_figure(run_id, scatter_chart(everything), SCATTER)
        client.log_text(run_id, table(found), TABLE)
        _log(registry, run_id, found)
        client.set_tag(run_id, NOTE, note(run_id, found))
        client.set_experiment_tag(registry.experiment, NOTE, note(run_id, found))
        client.set_terminated(run_id)
        client.set_tag(run_id, TAG_DIGEST, digest)  # last: what is not marked is written again
        return run_id, True


def by_stage(outcomes: Sequence[Outcome]) -> Kinds:
    found: Kinds = {}
    for outcome in outcomes:
        found.setdefault(outcome.stage, []).append(outcome)
    return dict(sorted(found.items()))


def coverage_of(found: Kinds) -> dict[str, float]:
    """Coverage and errors by kind and stage, as metrics: `coverage/live_start_p90`."""
    metrics: dict[str, float] = {}
    for kind, outcomes in found.items():
        for stage in by_stage(outcomes):
            for name, value in errors(outcomes, stage=stage).items():
                prefix, _, figure = name.partition("/")
                metrics[f"{prefix}/{kind}_{stage}_{figure}"] = value
    return metrics


def digest_of(found: Kinds) -> str:
    rows = [
        (kind, one.model, one.stage, one.predicted_s, one.actual_s, one.quantiles_s)
        for kind, outcomes in sorted(found.items())
        for one in outcomes
    ]
    return sha256(json.dumps(rows).encode()).hexdigest()[:12]


def table(found: Kinds) -> str:
    """All outcomes as CSV, in seconds."""
    lines = ["kind,model,stage,p10_s,p50_s,p90_s,actual_s"]
    for kind, outcomes in sorted(found.items()):
        for one in outcomes:
            at = dict(zip(one.levels, one.quantiles_s, strict=True))
            figures = [f"{at[level]:.6g}" for level in LIVE_LEVELS]
            model = '"' + one.model.replace('"', '""') + '"'
            lines.append(",".join([kind, model, one.stage, *figures, f"{one.actual_s:.6g}"]))
    return "\n".join(lines) + "\n"


def note(run_id: str, found: Kinds) -> str:
    """What the pages show first: coverage in a table, and both pictures."""
    rows = [
        "| predictions | of | in P10 | in P50 | in P90 (95 % interval) | median error |",
        "|---|---|---|---|---|---|",
    ]
    for kind, outcomes in found.items():
        for stage, chosen in by_stage(outcomes).items():
            at = {point.level: point for point in calibration(chosen)}
            low, high = at[0.9].interval
            p10, p50, p90 = (f"{100 * at[level].share:.1f} %" for level in LIVE_LEVELS)
            off = 100 * errors(chosen, stage=stage)["error/median_ape"]
            within = f"{p90} ({100 * low:.1f} to {100 * high:.1f})"
            rows.append(
                f"| {kind}, {stage} | {len(chosen)} | {p10} | {p50} | {within} | {off:.1f} % |"
            )
    pictures = [
        f"![{name}](get-artifact?path={name}&run_uuid={run_id})" for name in (CALIBRATION, SCATTER)
    ]
    return "\n".join([*rows, "", *pictures])


def _made(registry: Registry) -> Any:
    tags = {TAG_VIEW: VIEW}
    return registry.client.create_run(registry.experiment, tags=tags, run_name=VIEW)


def _log(registry: Registry, run_id: str, found: Kinds) -> None:
    from mlflow.entities import Metric

    step = sum(len(outcomes) for outcomes in found.values())
    now_ms = round(1000 * time.time())
    metrics = [Metric(name, value, now_ms, step) for name, value in coverage_of(found).items()]
    registry.client.log_batch(run_id, metrics=metrics)
