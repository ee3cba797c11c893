"""`python -m benchmarks ingest`: how fast report lines become history, and what memory that takes.

1,000 jobs hand in their lines, 200 a call as workers do, into a new SQLite file; then one model's
epochs are read and fitted. CPU time counts, so that a busy machine says the same.
"""

import tempfile
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from laxity_profiler.estimate import Workload

if TYPE_CHECKING:
    from benchmarks.results import Metric
    from laxity_profiler.history.history import History

ROWS: Final = 1_000_000
JOBS: Final = 1_000
MODELS: Final = 50
LINES: Final = 200  # per call
AT: Final = 1_700_000_000.0
MIB: Final = 1 << 20


def ingest(
    *,
    rows: Annotated[int, typer.Option(min=JOBS, help="Epochs in all.")] = ROWS,
    json_: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Epochs per second into the history, and its memory."""
    from benchmarks.results import show

    show(measure_ingest(rows), as_json=json_)


def measure_ingest(rows: int) -> "dict[str, Metric]":
    """Rows per CPU second, MiB of memory while doing so and kept, and of the first predictor."""
    from benchmarks.results import figure
    from laxity_profiler.history.history import History
    from laxity_profiler.history.history_database import open_engine
    from laxity_profiler.learning.learner import Learner

    with tempfile.TemporaryDirectory(prefix="laxity-bench-") as folder:
        path = Path(folder) / "laxity.db"
        engine = open_engine(f"sqlite:///{path}")
        history = History(engine)
        spent_s = _time_ingest(history, rows)
        peak, remaining = _measure_memory(history)
        began_s = time.process_time()
        Learner(history).predictor()
        learned_s = time.process_time() - began_s
        engine.dispose()
        return {
            "epochs_per_cpu_s": figure(rows / spent_s, "1/s"),
            "ingest_cpu_s": figure(spent_s, "s"),
            "memory_peak_mib": figure(peak / MIB, "MiB"),
            "memory_kept_mib": figure(remaining / MIB, "MiB"),
            "database_mib": figure(path.stat().st_size / MIB, "MiB"),
            "first_predictor_cpu_s": figure(learned_s, "s"),
        }


def _time_ingest(history: "History", rows: int) -> float:
    spent_s = 0.0
    for job in range(JOBS):
        for lines in _calls_of_lines(rows // JOBS):
            began_s = time.process_time()
            history.ingest(f"u-{job}", f"default/{job}", _job_workload(job), lines)
            spent_s += time.process_time() - began_s
    return spent_s


def _measure_memory(history: "History") -> tuple[int, int]:
    """Peak and remaining bytes while as many more jobs hand in a call each (traced, not timed)."""
    tracemalloc.start()
    for job in range(JOBS, 2 * JOBS):
        history.ingest(
            f"u-{job}", f"default/{job}", _job_workload(job), next(_calls_of_lines(LINES))
        )
    remaining, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak, remaining


def _job_workload(job: int) -> Workload:
    return Workload(f"model-{job % MODELS}", 10_000_000)


def _calls_of_lines(epochs: int) -> Iterator[list[dict[str, Any]]]:
    for first in range(1, epochs + 1, LINES):
        yield [_epoch_line(epoch) for epoch in range(first, min(first + LINES, epochs + 1))]


def _epoch_line(epoch: int) -> dict[str, Any]:
    """Around ten seconds, by a pattern: no two neighbours alike."""
    epoch_s = 10.0 + (epoch * 7919 % 101) / 100.0
    return {
        "seq": epoch,
        "kind": "epoch",
        "at": AT + 10.5 * epoch,
        "epoch": epoch,
        "epoch_s": epoch_s,
        "width": 2,
        "bytes": 1 << 20,
        "warmup": epoch == 1,
        "metrics": {"loss": 1.0 / epoch},
    }
