"""Jobs as rows for people: the same table in `ls`, `top` and the demo."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from laxity.api.job_view import JobView
from laxity.human_time import NONE, as_of, format_seconds, relative_text, wall_time
from laxity.safe_text import printable

PIPE_COLUMNS: Final = 200
COLUMNS: Final[Mapping[str, Literal["left", "right"]]] = {
    "JOB": "left",
    "CLASS": "left",
    "STATE": "left",
    "VERDICT": "left",
    "DEADLINE": "right",
    "P50": "right",
    "P90": "right",
    "LAXITY": "right",
    "WORKERS": "right",
    "EPOCH": "right",
    "REASON": "left",
}
DROPPED: Final = (
    "P50",
    "CLASS",
    "REASON",
    "WORKERS",
    "LAXITY",
)  # on a narrow screen, in this order
OVERDUE: Final = "now"
REASON_CELLS: Final = 24  # fewer say nothing
LEAST_NAME_CELLS: Final = 16  # of a long name on a narrow screen
GAP_CELLS: Final = 2
RUNS_WELL: Final = {"due_first", "fits", "forecast", "promise_moved", "shortest_first"}
STATE_STYLES: Final = {
    "running": "green",
    "stopping": "yellow",
    "suspended": "yellow",
    "refused": "red",
    "failed": "red",
    "finished": "dim",
    "cancelled": "dim",
}
VERDICT_STYLES: Final = {"promised": "bold green", "refused": "bold red", "forecast": "cyan"}


class SafeConsole(Console):
    """A console that prints no control characters but its own."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))

    def print(self, *objects: Any, **options: Any) -> None:
        """Into a pipe or file no line ends in the blanks that fill a table's last column."""
        if self.is_terminal:
            super().print(*objects, **options)
            return
        with self.capture() as capture:
            super().print(*objects, **options)
        self.file.write("\n".join(line.rstrip(" ") for line in capture.get().split("\n")))
        self.file.flush()


def console() -> Console:
    """A console; into a pipe or file lines are wide, so that no column is cut."""
    made = SafeConsole(highlight=False)
    if made.is_terminal:
        return made
    return SafeConsole(highlight=False, width=max(made.width, PIPE_COLUMNS))


@dataclass(frozen=True, slots=True)
class JobTable:
    """One row per job: what it was promised, what is expected, where it is, and why.

    On a narrow screen the columns that say least go first, and the reason gives way.
    """

    jobs: Sequence[JobView]
    now: float

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table]:
        rows = [dict(zip(COLUMNS, job_cells(job, self.now), strict=True)) for job in self.jobs]
        shown = _fitting_columns(rows, options.max_width)
        table = Table(box=None, pad_edge=False, expand=False)
        for name, cells in shown.items():
            most_cells = cells - GAP_CELLS if name == "JOB" else None
            table.add_column(
                name, no_wrap=name != "REASON", justify=COLUMNS[name], max_width=most_cells
            )
        for row in rows:
            table.add_row(*(row[name] for name in shown))
        yield table


def _fitting_columns(rows: Sequence[Mapping[str, Text]], max_width: int) -> dict[str, int]:
    """The columns that fit beside one another, and their widths with the gap, in cells.

    A long name gives way last: a beginning of it still names the job.
    """
    shown = {
        name: max([len(name), *(row[name].cell_len for row in rows)]) + GAP_CELLS
        for name in COLUMNS
    }
    shown["REASON"] = min(shown["REASON"], REASON_CELLS + GAP_CELLS)
    for name in DROPPED:
        if sum(shown.values()) - GAP_CELLS > max_width:
            del shown[name]
    excess = max(0, sum(shown.values()) - GAP_CELLS - max_width)
    shown["JOB"] = max(min(shown["JOB"], LEAST_NAME_CELLS + GAP_CELLS), shown["JOB"] - excess)
    return shown


def job_table(jobs: Iterable[JobView], *, now: float) -> JobTable:
    return JobTable(tuple(jobs), now)


def job_cells(job: JobView, now: float) -> list[Text]:
    """A job's row, in the order of `job_table`'s columns."""
    return [
        Text(short_id(job.id), style="bold"),
        Text(job.service_class),
        Text(state_text(job), style=STATE_STYLES.get(job.state, "")),
        Text(job.verdict, style=VERDICT_STYLES.get(job.verdict, "dim")),
        Text(wall_time(job.deadline_at, now)),
        Text(format_expected_end(job, job.p50_at, now)),
        Text(format_expected_end(job, job.p90_at, now)),
        _slack_text(job),
        Text(width_text(job)),
        Text(epochs_text(job)),
        Text(_reason_text(job, now), no_wrap=True, overflow="ellipsis"),
    ]


def state_text(job: JobView) -> str:
    """What it does, and whether laxity leaves it alone."""
    return f"{job.state}, pinned" if job.pinned and not job.ended else job.state


def outcome_text(job: JobView) -> str:
    """How an ended job stands to its deadline, in words; nothing while it is not finished."""
    if job.finished_at is None or job.deadline_at is None or job.state != "finished":
        return ""
    apart = format_seconds(abs(job.deadline_at - job.finished_at))
    return f"kept, {apart} early" if job.kept else f"missed by {apart}"


def width_text(job: JobView) -> str:
    """Workers now, and the width it is about to have if they differ: "2", "1->2"."""
    if job.state != "running" or not job.formed or job.formed == job.workers:
        return str(job.workers) if job.workers else NONE
    return f"{job.formed}->{job.workers}"


def epochs_text(job: JobView) -> str:
    """Epochs done of all; "-" for a finished Job whose container reports none."""
    if job.state == "finished" and not job.epochs_done:
        return NONE
    return f"{job.epochs_done}/{job.epochs}" if job.epochs else str(job.epochs_done)


def short_id(job_id: str) -> str:
    """The id without the namespace `default`."""
    return job_id.removeprefix("default/")


def fact_table(facts: Sequence[tuple[str, str]]) -> Table:
    """Names and values, one pair a line."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts:
        table.add_row(name, Text(value))
    return table


def format_expected_end(job: JobView, at: float | None, now: float) -> str:
    """When it ended, or is expected to. "now": the end of a running job is due any moment.

    What was expected of a job that does not run, such as a refused one, says nothing afterwards; nor
    does the end of one that was cancelled or failed: nobody predicted that.
    """
    if job.finished_at is not None:
        return wall_time(job.finished_at, now) if job.state == "finished" else NONE
    if at is not None and at <= now:
        return OVERDUE if job.workers else NONE
    return relative_text(at, now)


def _reason_text(job: JobView, now: float) -> str:
    """How it ended, what it failed of, or what is to be known of it now.

    A reason stands as long as it was not said anew: of a job that runs as it should, has finished
    or was cancelled, it is old.
    """
    runs_well = job.state == "running" and job.reason_code in RUNS_WELL
    is_old = runs_well or job.state in {"finished", "cancelled"}
    return outcome_text(job) or job.error or ("" if is_old else as_of(now, job.reason))


def _slack_text(job: JobView) -> Text:
    """Slack in words, red when there is none left."""
    if job.laxity_s is None or job.ended:
        return Text(NONE, style="dim")
    return Text(format_seconds(job.laxity_s), style="red" if job.laxity_s < 0 else "")
