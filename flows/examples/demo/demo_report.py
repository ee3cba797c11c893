"""What came of it: promised against actual, for people and as report.json for machines."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from examples.demo.models import EXECUTIONS
from examples.demo.parts import Part
from laxity.api.client import JobView
from laxity.api.job_view import Json
from laxity.api.status_text import state_words
from laxity.cli.render.job_table import VERDICT_STYLES
from laxity.durable_files import replace_file
from laxity.human_time import format_seconds, wall_time
from laxity.worker.mlflow_tracking import ui_command

AGEING_S: Final = 600.0  # the policy's limit for jobs as short as these
UID_LENGTH: Final = 8  # at least so much of a uid stands in the folder's name


@dataclass(frozen=True, slots=True)
class Ended:
    """One job at the end, with what its training itself noted of its epochs."""

    part: Part
    job: JobView
    executions: tuple[int, ...]  # epochs in the order in which they were trained to their end

    @property
    def expected(self) -> int:
        """How many epochs there should have been: a refused job trains none."""
        return 0 if self.job.state == "refused" else self.part.epochs

    @property
    def exactly_once(self) -> bool:
        """Whether every epoch was trained, in order, and none twice."""
        return self.executions == tuple(range(1, self.expected + 1))

    @property
    def waited_s(self) -> float:
        """The longest time without a worker, before its start or between two runs."""
        job = self.job
        if job.submitted_at is None:
            return 0.0
        stopped_at, before, longest_s = job.submitted_at, 0, 0.0
        for since, workers in job.width_history:
            if workers and not before:
                longest_s = max(longest_s, since - stopped_at)
            stopped_at, before = since, workers
        return longest_s

    @property
    def starved(self) -> bool:
        """Whether a best-effort job waited longer than ageing allows."""
        return self.job.service_class == "best_effort" and self.waited_s > AGEING_S

    @property
    def broken_unreported(self) -> bool:
        """A promise missed of which nobody was told."""
        return self.job.broken and not self.job.raw.get("broken")


def executions(folder: Path, job: JobView) -> tuple[int, ...]:
    """What the training wrote for each epoch that it trained to its end."""
    namespace, _, name = job.id.partition("/")
    logs = (folder / "checkpoints" / namespace).glob(f"{name}-{job.uid[:UID_LENGTH]}*/{EXECUTIONS}")
    return tuple(int(line) for path in logs for line in path.read_text().split())


def report_of(ended: Sequence[Ended], *, wall_s: float, refused: int, offer_accepted: str) -> Json:
    """The whole report. Instants are POSIX seconds; what does not exist is null."""
    promised = [row for row in ended if row.job.verdict == "promised"]
    return {
        "wall_s": round(wall_s, 1),
        "promises": len(promised),
        "promises_kept": sum(row.job.kept is True for row in promised),
        "broken_unreported": sum(row.broken_unreported for row in promised),
        "refused": refused,
        "counter_offer_kept": any(
            row.job.id == offer_accepted and row.job.kept is True for row in promised
        ),
        "jobs": [_row_json(row) for row in ended],
    }


def write_report(path: Path, report: Json) -> None:
    replace_file(path, json.dumps(report, indent=2, allow_nan=False) + "\n")


def widths_run(job: JobView) -> list[int]:
    """The widths it ran at, in order; a stop and a start at the same width count once."""
    run: list[int] = []
    for _, workers in job.width_history:
        if workers and (not run or run[-1] != workers):
            run.append(workers)
    return run


def print_report(console: Console, ended: Sequence[Ended], *, folder: Path) -> None:
    """Promised against actual, then how to look further."""
    table = Table(title="Promised and actual", title_justify="left", box=None, pad_edge=False)
    for name in ("JOB", "CLASS", "VERDICT"):
        table.add_column(name, no_wrap=True)
    for name in ("DEADLINE", "PROMISED P90", "FINISHED", "WIDTHS", "STOPS", "EPOCHS"):
        table.add_column(name, no_wrap=True, justify="right")
    table.add_column("OUTCOME", no_wrap=True)
    for row in ended:
        table.add_row(*_row_cells(row))
    mlflow = ui_command(f"sqlite:///{folder / 'mlflow.db'}", program=".venv/bin/mlflow")
    waited = max(
        (row.waited_s for row in ended if row.job.service_class == "best_effort"), default=0.0
    )
    hints = Group(
        Text(),
        Text(
            f"No best-effort job waited longer than {format_seconds(waited)}; ageing allows {format_seconds(AGEING_S)}."
        ),
        Text("Predicted and actual epoch times, promises and outcomes of each run:"),
        Text(f"  {mlflow}", style="bold"),
        Text(f"Report: {folder / 'report.json'}   Logs: {folder / 'logs'}", style="dim"),
    )
    console.print(Group(Text(), table, hints))


def _row_json(row: Ended) -> Json:
    job = row.job
    return {
        "id": job.id,
        "class": job.service_class,
        "verdict": job.verdict,
        "reason": job.reason_code,
        "deadline_at": job.deadline_at,
        "promised_p90_at": job.promised_p90_at,
        "finished_at": job.finished_at,
        "preemptions": job.preemptions,
        "widths": widths_run(job),
        "epochs_expected": row.expected,
        "epochs_seen": len(row.executions),
    }


def _row_cells(row: Ended) -> list[Text]:
    job = row.job
    ended_at = job.finished_at or job.submitted_at or 0.0
    early = (job.promised_p90_at or 0.0) - ended_at
    against = f" ({format_seconds(abs(early))} {'before' if early >= 0 else 'after'})"
    promised = wall_time(job.promised_p90_at, ended_at)
    return [
        Text(row.part.name, style="bold"),
        Text(job.service_class),
        Text(job.verdict, style=VERDICT_STYLES.get(job.verdict, "")),
        Text(wall_time(job.deadline_at, ended_at)),
        Text(promised),
        Text(wall_time(job.finished_at, ended_at) + (against if job.promised_p90_at else "")),
        Text(",".join(map(str, widths_run(job))) or "-"),
        Text(str(job.preemptions or "-")),
        Text(f"{len(row.executions)}/{row.expected}" + ("" if row.exactly_once else " !")),
        Text(state_words(job), style="red" if job.kept is False else "green"),
    ]
