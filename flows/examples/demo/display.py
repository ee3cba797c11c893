"""What is seen of the demo: a live table on a terminal, or a line for each thing that happens.

Into a pipe or a CI log no table is drawn: there a line is written when a job's state, verdict or
width changes, and one that sums up every ten seconds.
"""

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final, Self

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from examples.demo.job_poller import Jobs
from laxity.api.job_view import JobView
from laxity.api.status_text import state_words
from laxity.cli.render.job_table import VERDICT_STYLES, job_table, short_id
from laxity.cli.render.top import in_order
from laxity.human_time import count_noun, format_seconds, wall_time

SUM_UP_S: Final = 10.0


@dataclass(slots=True)
class Screen:
    """Say what happens, and show how things stand."""

    console: Console
    began: float = field(default_factory=time.monotonic)
    act: str = ""
    labels: dict[str, str] = field(default_factory=dict)  # short names of jobs, by id
    _jobs: Jobs = field(default_factory=dict)
    _live: Live | None = None
    _summed_up_at: float = 0.0
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._live = Live(
                self._draw_picture(), console=self.console, auto_refresh=False, transient=True
            )
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def play(self, act: str) -> None:
        """A new act of the story begins."""
        self.act = act
        self.say(f"== {act}", style="bold cyan")

    def say(self, words_: str, *, style: str = "") -> None:
        """One line of the story."""
        line = Text(f"{time.monotonic() - self.began:6.1f}s  ", style="dim")
        line.append(words_, style=style or "not dim")
        with self._lock:
            self.console.print(line)  # above the table, if there is one

    def show_change(self, before: JobView | None, job: JobView) -> None:
        """A job has changed: say what a reader would want to know of it."""
        for words_, style in job_news(before, job):
            self.say(f"{self.labels.get(job.id, short_id(job.id))}: {words_}", style=style)

    def look(self, jobs: Jobs) -> None:
        """Draw the table anew, or sum up now and then."""
        jobs = {name: replace(job, id=self.labels.get(name, name)) for name, job in jobs.items()}
        with self._lock:
            self._jobs = jobs
            if self._live is not None:
                self._live.update(self._draw_picture(), refresh=True)
                return
        now = time.monotonic()
        if now - self._summed_up_at >= SUM_UP_S and jobs:
            self._summed_up_at = now
            self.say(jobs_summary(jobs.values()), style="dim")

    def _draw_picture(self) -> Group:
        elapsed = format_seconds(time.monotonic() - self.began)
        title = Text(f"laxity demo  {elapsed}  {self.act}", style="bold")
        now = time.time()
        table = job_table(in_order(self._jobs.values(), now), now=now)
        return Group(Text(), title, table)


def job_news(before: JobView | None, job: JobView) -> Iterable[tuple[str, str]]:
    """What changed between two views, in words with a style: verdict, width, state."""
    now = time.time()
    old = before or JobView(job.id)
    asked_anew = job.verdict == "promised" and job.deadline_at != old.deadline_at
    if job.verdict != "none" and (job.verdict != old.verdict or asked_anew):
        due = f" for {wall_time(job.deadline_at, now)}" if job.deadline_at else ""
        code = f" [{job.reason_code}]" if job.reason_code else ""
        yield f"{job.verdict}{due}{code}: {job.reason}", VERDICT_STYLES.get(job.verdict, "")
    if job.workers != old.workers and not job.ended:
        yield width_change(old.workers, job), ""
    if job.state == "stopping" != old.state and job.workers:
        yield f"asked to stop at the end of epoch {job.epochs_done + 1}", "yellow"
    if job.ended and not old.ended:
        yield (
            f"{state_words(job)}{f', {job.error}' if job.error else ''}",
            "green" if job.kept is not False else "red",
        )


def jobs_summary(jobs: Iterable[JobView]) -> str:
    """All that runs or waits, in one line."""
    shown = [
        f"{short_id(job.id)} {job.epochs_done}/{job.epochs} on {job.workers}"
        if job.workers
        else f"{short_id(job.id)} waits"
        for job in in_order(jobs, time.time())
        if not job.ended and job.state != "refused"
    ]
    return "   ".join(shown) or "nothing runs"


def width_change(before: int, job: JobView) -> str:
    """From one width to another; 0 is a stop."""
    if not job.workers:
        return f"stopped after epoch {job.epochs_done}, saved: {job.reason}"
    if not before:
        again = "resumes" if job.epochs_done else "starts"
        return f"{again} on {count_noun(job.workers, 'worker')} after epoch {job.epochs_done}"
    verb = "grows" if job.workers > before else "shrinks"
    return f"{verb} from {before} to {count_noun(job.workers, 'worker')}: {job.reason}"
