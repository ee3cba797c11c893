"""Jobs as rows for people: the same table in `ls`, `top` and the demo."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from laxity.api.job_view import JobView
from laxity.api.status_text import (
    ENDANGERED,
    deadline_status,
    finished_text,
    part_text,
    state_words,
)
from laxity.human_time import NONE, as_of, format_seconds, instant_text, relative_text, wall_time
from laxity.safe_text import printable

PIPE_COLUMNS: Final = 200
COLUMNS: Final[Mapping[str, Literal["left", "right"]]] = {
    "JOB": "left",
    "CLASS": "left",
    "STATE": "left",
    "DEADLINE": "right",
    "P50": "right",
    "P90": "right",
    "LAXITY": "right",
    "WORKERS": "right",
    "EPOCH": "right",
    "REASON": "left",
}
DROPPED: Final = ("P50", "CLASS", "WORKERS", "LAXITY", "DEADLINE")  # in this order
OVERDUE: Final = "now"
MOST_HOLDERS: Final = 3  # named of those that hold what a job waits for
REASON_CELLS: Final = 24  # fewer say nothing
LEAST_NAME_CELLS: Final = 16  # of a long name on a narrow screen
GAPS: Final = (2, 1)  # cells between columns; one where that saves a column
REASONS_BELOW_FROM: Final = 90  # cells of a screen on which a reason has a line of its own
FORECASTS: Final = {
    "fits", "forecast", "forecast_late", "no_try_in_time", "promise_in_danger", "promise_moved",
}  # fmt: skip
RUNS_WELL: Final = {
    "due_first", "fits", "forecast", "its_turn", "promise_moved", "shortest_first",
}  # fmt: skip
STATE_STYLES: Final = {
    "running": "green",
    "stopping": "yellow",
    "suspended": "yellow",
    "refused": "red",
    "failed": "red",
    "finished": "dim",
    "cancelled": "dim",
}
VERDICT_STYLES: Final = {
    "promised": "bold green", "endangered": "bold red", "broken": "bold red", "late": "bold red",
    "refused": "bold red", "forecast": "cyan",
}  # fmt: skip


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
    """One row per job: what it does, when it is due and expected, where it is, and why.

    On a narrow screen the reason goes below its row, and on a very narrow one the columns that say
    least go.
    """

    jobs: Sequence[JobView]
    now: float

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        rows = [dict(zip(COLUMNS, job_cells(job, self.now), strict=True)) for job in self.jobs]
        runs = Counter(job.id for job in self.jobs)
        for row, job in zip(rows, self.jobs, strict=True):
            if runs[job.id] > 1:  # several of one name: tell them apart
                row["JOB"].append(f" {wall_time(job.submitted_at, self.now)}", style="not bold dim")
        layout = _choose_layout(rows, options.max_width)
        below = "REASON" not in layout.cells and options.max_width >= REASONS_BELOW_FROM
        yield _table_line({name: Text(name, style="bold") for name in COLUMNS}, layout)
        for row in rows:
            yield _table_line(row, layout)
            if below and row["REASON"].plain:
                reason = row["REASON"].plain
                yield Text(f"  {reason}", style="dim", no_wrap=True, overflow="ellipsis")


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns that fit beside one another with their widths, and the gap between two, in cells."""

    cells: Mapping[str, int]
    gap: int

    @property
    def width(self) -> int:
        return sum(self.cells.values()) + self.gap * (len(self.cells) - 1)


def _table_line(row: Mapping[str, Text], layout: Layout) -> Text:
    """A line of the table. rich's own takes four times as long, which thousands of jobs make felt."""
    line = Text(no_wrap=True, overflow="ellipsis")
    last = list(layout.cells)[-1]
    for name, width in layout.cells.items():
        cell = row[name].copy()
        cell.truncate(width, overflow="ellipsis")
        blanks = " " * (width - cell.cell_len)
        if COLUMNS[name] == "right":
            line.append(blanks)
        line.append_text(cell)
        if name != last:
            line.append(" " * layout.gap if COLUMNS[name] == "right" else blanks + " " * layout.gap)
    return line


def _choose_layout(rows: Sequence[Mapping[str, Text]], max_width: int) -> Layout:
    """All columns if they fit, else the reason goes, then a cell of each gap, then columns.

    A long name gives way first, to its beginning, and takes what is left at the end.
    """
    whole = {name: max([len(name), *(row[name].cell_len for row in rows)]) for name in COLUMNS}
    short = whole | {"JOB": min(whole["JOB"], LEAST_NAME_CELLS)}
    beside = short | {"REASON": min(short["REASON"], REASON_CELLS)}
    below = {name: cells for name, cells in short.items() if name != "REASON"}
    choices = [Layout(beside, GAPS[0]), *(Layout(below, gap) for gap in GAPS)]
    for dropped in range(1, len(DROPPED) + 1):
        kept = {name: cells for name, cells in below.items() if name not in DROPPED[:dropped]}
        choices.append(Layout(kept, GAPS[0]))
    layout = next((choice for choice in choices if choice.width <= max_width), choices[-1])
    left = max(0, max_width - layout.width)
    name_cells = min(whole["JOB"], layout.cells["JOB"] + left)
    left -= name_cells - layout.cells["JOB"]
    cells = {**layout.cells, "JOB": name_cells}
    if "REASON" in cells:
        cells["REASON"] += left
    return Layout(cells, layout.gap)


def job_table(jobs: Iterable[JobView], *, now: float) -> JobTable:
    return JobTable(tuple(jobs), now)


def job_cells(job: JobView, now: float) -> list[Text]:
    """A job's row, in the order of `job_table`'s columns."""
    return [
        _name_text(job),
        Text(job.service_class),
        Text(_state_cell(job), style=_state_style(job)),
        Text(wall_time(job.deadline_at, now)),
        Text(format_expected_end(job, job.p50_at, now)),
        Text(format_expected_end(job, job.p90_at, now)),
        _slack_text(job),
        Text(width_text(job)),
        Text(epochs_text(job)),
        Text(_reason_cell(job, now), no_wrap=True, overflow="ellipsis"),
    ]


def _name_text(job: JobView) -> Text:
    """Its name, and its group and step where it has them."""
    name = Text(short_id(job.id), style="bold")
    if job.group:
        name.append(f" {job.group}/{job.step}", style="not bold dim")
    return name


def _state_cell(job: JobView) -> str:
    """The words of its state. How many epochs one that finished early took stands beside them."""
    if job.finished_early and job.kept is None:
        return "finished early"
    return state_words(replace(job, finished_early=False))


def _state_style(job: JobView) -> str:
    if job.broken or job.state in {"refused", "failed"} or deadline_status(job) == ENDANGERED:
        return "red"
    return "green" if job.kept else STATE_STYLES.get(job.state, "")


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
    if job.state == "refused":  # the finish of what it asked for; its offers have their own
        return NONE
    if at is not None and at <= now:
        return OVERDUE if job.workers else NONE
    return relative_text(at, now)


def reason_text(job: JobView, now: float) -> str:
    """Why it is where it is. Of a job that runs, figures of a forecast are those of now.

    A decision's own would be those of its instant, and after a while a finish in the past.
    """
    if job.state != "running" or job.reason_code not in FORECASTS or job.p90_at is None:
        return as_of(now, job.reason)
    finish = f"P90 finish {instant_text(max(job.p90_at, now), now)}"
    if job.deadline_at is None:
        return finish
    apart = format_seconds(abs(job.deadline_at - job.p90_at))
    return (
        f"{finish}, {apart} {'before' if job.p90_at <= job.deadline_at else 'after'} the deadline"
    )


def _reason_cell(job: JobView, now: float) -> str:
    """What it failed of, or what is to be known of it now.

    A reason stands as long as it was not said anew: of a job that runs as it should, has finished
    or was cancelled, it is old.
    """
    runs_well = job.state == "running" and job.reason_code in RUNS_WELL
    is_old = runs_well or job.state in {"finished", "cancelled"}
    if job.finished_early and not job.error:
        return finished_text(job)
    reason = "" if is_old else reason_text(job, now)
    return job.error or "; ".join(
        filter(None, (part_text(job, now), reason, _held_text(job), _start_text(job, now)))
    )


def _held_text(job: JobView) -> str:
    """Who holds what it waits for, unless its reason names them."""
    is_named = any(name in job.reason for name in job.held_by)
    if not job.held_by or job.workers or job.ended or is_named:
        return ""
    more = " and more" if len(job.held_by) > MOST_HOLDERS else ""
    return f"held by {', '.join(job.held_by[:MOST_HOLDERS])}{more}"


def _start_text(job: JobView, now: float) -> str:
    """Until when it waits, where that can be foreseen."""
    if job.workers or job.ended or (job.expected_start_at or 0.0) <= now:
        return ""
    return f"may start {relative_text(job.expected_start_at, now)}"


def _slack_text(job: JobView) -> Text:
    """Slack in words, red when there is none left."""
    if job.laxity_s is None or job.ended or job.state == "refused":
        return Text(NONE, style="dim")
    return Text(format_seconds(job.laxity_s), style="red" if job.laxity_s < 0 else "")
