"""Posts of a script that nobody accompanies, as the report lines that a worker would have written.

In a pod without laxity nobody but the service hears a script. A post becomes the lines that
`laxity run` writes on the script's machine (laxity.worker.script): one per cent is an epoch, and a
script that posts nothing is one epoch, the whole run. What has to be known from one post to the next
stands in the run's state, so that any replica takes any post, also after a restart. Pure.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from laxity import names
from laxity.api.report_lines import ReportKind
from laxity.worker.progress.progress_posts import UNITS, Post, UnitTimes, begins_at_zero
from laxity_profiler.history.report_fold import ReportState

ReportLine = dict[str, Any]
SHORTEST_S: Final = 1e-3  # of an epoch: two posts may come in one instant


@dataclass(frozen=True, slots=True)
class ScriptPod:
    """The pod of a script: when its container began, in POSIX seconds, after how many `restarts`.

    `resumes`: its user says that it goes on from its own checkpoint. `is_told_to_stop`: what it posts
    as it leaves counts by its steps only.
    """

    name: str
    began_at: float
    restarts: int = 0
    width: int = 1
    resumes: bool = False
    is_told_to_stop: bool = False

    @property
    def start(self) -> str:
        """Which start of the script it is."""
        return f"{self.name}/{self.restarts}"


@dataclass(slots=True)
class ScriptStart:
    """What is known of the latest start of a script: `done` units, the last one at `ended_at`.

    It began after `done_before` units. `early` are the posts before it is known where it began; None since then.
    """

    name: str = ""
    done: int = 0
    done_before: int = 0
    ended_at: float = 0.0
    at: float = 0.0
    share: float = 0.0
    largest_gap: float = 0.0
    begins_anew: bool = False
    early: list[list[float]] | None = field(default_factory=list)
    has_posted: bool = False
    metrics: dict[str, float] = field(default_factory=dict)


def lines_of_post(state: ReportState, post: Post, pod: ScriptPod) -> list[ReportLine]:
    """The lines that one post comes to; its time is in POSIX seconds."""
    writer = _Writer(state, pod)
    writer.take(post)
    return writer.lines


def lines_of_end(state: ReportState, pod: ScriptPod, ended_at: float) -> list[ReportLine]:
    """Those of a Job that is complete; none where a worker has reported for itself."""
    if state.finished or (state.newest and not state.script):
        return []
    writer = _Writer(state, pod)
    writer.end(ended_at)
    return writer.lines


class _Writer:
    """Writes lines behind those that there are, and keeps the start in the state."""

    def __init__(self, state: ReportState, pod: ScriptPod) -> None:
        self.lines: list[ReportLine] = []
        self._state, self._pod = state, pod
        self._start = ScriptStart(**state.script)
        if self._start.name != pod.start:
            self._start = ScriptStart(pod.start, metrics=self._start.metrics)
            self._write("started", pod.began_at)
            self._start.done = state.epochs_done if pod.resumes else 0
        state.script = asdict(self._start)

    def take(self, post: Post) -> None:
        start = self._start
        start.metrics |= post.metrics
        if post.share is not None:
            start.has_posted = True
            if start.early is None:
                self._count([post])
            else:
                start.early.append([post.at, post.share, float(post.by_steps)])
                self._enter([Post(at, share, bool(steps)) for at, share, steps in start.early])
        self._state.script = asdict(start)

    def end(self, ended_at: float) -> None:
        start, pod = self._start, self._pod
        if not (start.has_posted or start.done):
            self._declare(1)
            self._form(pod.began_at)
            self._end_unit(ended_at)
        since = {"finishing_s": max(0.0, ended_at - start.ended_at)} if start.ended_at else {}
        progress = round(100 * start.share, 1) if start.has_posted else None
        result = {names.PROGRESS: progress, **start.metrics}
        self._write("finished", ended_at, epochs_done=start.done, result=result, **since)

    def _enter(self, early: Sequence[Post]) -> None:
        """Begin to count, once it is known whether it goes on or begins anew."""
        start = self._start
        if start.done:
            shares = [post.share for post in early if post.share is not None]
            at_zero = begins_at_zero(shares, start.done / UNITS)
            if at_zero is None:
                return
            if at_zero:
                start.begins_anew, start.done = True, 0
        first = early[0]
        is_near = (first.share or 0.0) * UNITS <= start.done + 1
        began_at = first.at if is_near else min(first.at, self._pod.began_at)
        start.early, start.at, start.share = None, began_at, start.done / UNITS
        self._declare(UNITS)
        self._form(began_at)
        self._count(early)

    def _count(self, posts: Sequence[Post]) -> None:
        start = self._start
        stops = self._pod.is_told_to_stop
        times = UnitTimes(UNITS, start.at, start.share, stops, start.largest_gap)
        for post in posts:
            for ended_at in times.take(post):
                self._end_unit(ended_at)
        start.at, start.share, start.largest_gap = times.at, times.share, times.largest_gap

    def _declare(self, epochs: int) -> None:
        if self._state.declared.get("epochs") != epochs:
            self._write("declared", self._pod.began_at, epochs=epochs)

    def _form(self, at: float) -> None:
        self._start.ended_at, self._start.done_before = at, self._start.done
        self._write("formed", at, width=self._pod.width, epoch=self._start.done)

    def _end_unit(self, ended_at: float) -> None:
        start = self._start
        took_s = max(SHORTEST_S, ended_at - start.ended_at)
        start.done, start.ended_at = start.done + 1, ended_at
        self._write(
            "epoch",
            ended_at,
            epoch=start.done,
            epoch_s=took_s,
            width=self._pod.width,
            warmup=start.done == start.done_before + 1,
            holds_state=self._pod.resumes and not start.begins_anew,
            bytes=0,
            metrics=dict(start.metrics),
            again=start.done <= self._state.furthest_epoch,
        )

    def _write(self, kind: ReportKind, at: float, **fields: Any) -> None:
        seq = self._state.newest + len(self.lines) + 1
        self.lines.append({"kind": kind, "seq": seq, "at": at, **fields})
