"""One row of a study: labels that name it, and figures that are a pure function of them.

Only figures that are the same on every machine are kept, to six digits: no times of this one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from laxity_lab.simulate.bound import compute_bound
from laxity_lab.simulate.report import report
from laxity_lab.simulate.run import Setting, simulate
from laxity_lab.traces.cases import Case
from laxity_lab.world.outcome import Run

Cell = str | int | float | None
Row = dict[str, Cell]
LABELS: Final = (
    "part",
    "trace",
    "gpus",
    "policy",
    "variant",
    "admission",
    "packing",
    "cost_model",
    "restart_s",
    "error",
    "seed",
)
FIGURES: Final = (
    "jobs",
    "finished",
    "refused",
    "deadlines",
    "deadlines_met",
    "deadline_met_ratio",
    "promises",
    "promised_ratio",
    "promises_broken",
    "avg_jct_s",
    "avg_wait_s",
    "p95_wait_s",
    "makespan_s",
    "gpu_utilisation",
    "lost_share",
    "preemptions",
    "resizes",
)


@dataclass(frozen=True, slots=True)
class Trial:
    """`compute` is picklable and takes nothing, so that it may run in another process."""

    labels: Mapping[str, Cell]
    compute: Callable[[], Row]

    @property
    def key(self) -> tuple[str, ...]:
        return row_key(self.labels)

    def row(self) -> Row:
        return {**self.labels, **self.compute()}


def row_key(row: Mapping[str, Cell]) -> tuple[str, ...]:
    """What names a row: its labels, as they are written."""
    return tuple(cell_text(row.get(name)) for name in LABELS)


def cell_text(cell: Cell) -> str:
    """A cell as a file has it."""
    if cell is None:
        return ""
    return f"{cell:.6g}" if isinstance(cell, float) else str(cell)


def simulation_trial(
    case: Case,
    setting: Setting,
    *,
    part: str,
    trace: str,
    figures: Sequence[str] = FIGURES,
    **labels: Cell,
) -> Trial:
    """A trial that simulates one setting and keeps these figures; `labels` are further ones."""
    named = labels_of(setting, part=part, trace=trace) | labels
    return Trial(named, partial(simulation_row, case, setting, figures))


def linear_program_trial(
    case: Case, *, gpus: int, part: str, trace: str, seed: int | None = None
) -> Trial:
    """A trial that solves the linear program: no schedule meets a greater share of deadlines."""
    labels: Row = {"part": part, "trace": trace, "gpus": gpus, "policy": "bound", "seed": seed}
    return Trial(labels, partial(_linear_program_row, case, gpus))


def labels_of(setting: Setting, *, part: str, trace: str) -> Row:
    """`admission` is empty for a policy's own rule."""
    return {
        "part": part,
        "trace": trace,
        "gpus": setting.gpus,
        "policy": setting.policy,
        "admission": setting.admission,
        "packing": setting.packing,
        "cost_model": setting.cost_model,
        "restart_s": setting.restart_s if setting.cost_model == "flat" else None,
        "error": setting.error,
        "seed": setting.seed,
    }


def simulation_row(case: Case, setting: Setting, names: Sequence[str]) -> Row:
    return figures_row(simulate(case.load(), setting), names)


def figures_row(run: Run, names: Sequence[str]) -> Row:
    """What is kept of a run."""
    figures = report(run)
    return {name: figures[name] for name in names}


def _linear_program_row(case: Case, gpus: int) -> Row:
    trace = case.load()
    share, _ = compute_bound(trace, gpus=gpus) or (None, "")
    return {"jobs": len(trace.jobs), "deadline_met_ratio": share}
