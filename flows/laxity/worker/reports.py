"""What worker 0 tells the service, and what it is told: each report once, in order, none lost.

Reports are lines of `reports.jsonl` in the training's folder (a later attempt has a file of its own),
on the disk before they are sent, sent until acknowledged. One thread sends, another asks what to do (a long poll, so an order arrives at
once). The service may be away for any time: training goes on and the lines wait. In a pod that
cannot reach it at all, a third thread reads what to do from a file.
"""

import json
import os
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Self

from laxity.api.report_lines import ReportKind
from laxity.api.transport import Request, ServiceError, Transport
from laxity.backoff import Backoff
from laxity.durable_files import append_to_file
from laxity.job.signal import Signal, format_parked_line, read_signal_file
from laxity.stderr import say
from laxity.worker.code.environment import REPORTS, WorkerEnvironment

ALL_REPORTS: Final = "reports*.jsonl"  # of all attempts
POLL_S: Final = 20.0  # how long the service may hold a question
CALL_S: Final = 10.0  # how long an answer may take otherwise
AWAY: Final = Backoff(first_s=0.2, longest_s=10.0)  # between calls that fail
ANSWERED: Final = Backoff(first_s=0.2, longest_s=1.0)  # between questions answered at once
LINES_PER_CALL: Final = 200
ORDERS_S: Final = 1.0
_PASSING: Final = (408, 409, 425, 429)  # answers of the 4xx kind that may change by themselves

ReportLine = dict[str, Any]


class ReportChannel:
    """The reports of one job. Without a `url` they are only written."""

    def __init__(
        self,
        folder: Path,
        *,
        file: str = REPORTS,
        job: str = "",
        uid: str = "",
        url: str = "",
        token: str = "",
        orders: Path | None = None,
    ) -> None:
        self.signal = Signal()
        self.tried = False  # the service has answered, or was found away, at least once
        self.epoch_ended: float | None = None  # the latest of this process, monotonic
        self._path = folder / file
        self._lines = read_lines(self._path, cut=True)
        others = (path for path in folder.glob(ALL_REPORTS) if path != self._path)
        earlier = max((_last_epoch(read_lines(path)) for path in others), default=0)
        # the greatest epoch that was reported, by any attempt, since the training began at 1 last
        self.last_epoch = _last_epoch(self._lines, earlier)
        self.furthest_epoch = _furthest_epoch(self._lines)  # of this Job, however often it began
        self._unwritten: list[ReportLine] = []
        self._acked = 0
        self._changed = threading.Condition()
        self._writing = threading.Lock()  # lines are numbered and written by one thread at a time
        self._refused = False
        self._away = False
        self._problem = ""  # of the last call that failed, until all reports are taken
        self._closed = threading.Event()
        self._path_of_signal, self._uid = f"/v1/jobs/{job}/signal", uid
        self._service: Transport | None = None
        if url and job:
            self._service = Transport(url, lambda: token, timeout_s=CALL_S, patience_s=0.0)
            self._spawn_thread("send", self._send_lines)
            self._spawn_thread("poll", self._poll_signal)
        if orders is not None and orders.exists():
            self._spawn_thread("orders", lambda: self._obey_file(orders))

    @classmethod
    def of(cls, environment: WorkerEnvironment, folder: Path) -> Self:
        """Of the job that this worker was started for, in its training's folder."""
        return cls(
            folder,
            file=environment.reports_file,
            job=environment.job,
            uid=environment.uid,
            url=environment.url,
            token=environment.token,
            orders=environment.orders,
        )

    def lines(self, kind: ReportKind) -> list[ReportLine]:
        """All lines of a kind so far, those of earlier starts too."""
        with self._changed:
            return [line for line in self._lines if line["kind"] == kind]

    def append(self, kind: ReportKind, /, **fields: Any) -> None:
        """Report one thing: durable when this returns."""
        self.append_all([{"kind": kind, "at": time.time(), **fields}])

    def say_parked(self, epoch: int) -> int:
        """Say in the log, where nobody takes reports, that the training waits; told by which signal."""
        generation = self.signal.generation
        if self._away or self._service is None:
            say(format_parked_line(epoch=epoch, generation=generation))
        return generation

    def append_all(self, reports: Sequence[ReportLine]) -> None:
        """Report several things in one write. A full disk delays the file, not the sending."""
        with self._writing:
            with self._changed:
                last = max(self._acked, self._lines[-1]["seq"] if self._lines else 0)
            numbered = [{"seq": last + n, **line} for n, line in enumerate(reports, 1)]
            self._unwritten += numbered
            try:
                append_to_file(self._path, b"".join(map(_encode_line, self._unwritten)))
                self._unwritten = []
            except OSError as error:
                say(f"reports cannot be kept in {self._path} ({error}); they are still sent")
            with self._changed:
                self._lines += numbered
                self.last_epoch = _last_epoch(numbered, self.last_epoch)
                self.furthest_epoch = max(self.furthest_epoch, _furthest_epoch(numbered))
                self._changed.notify_all()

    def append_missing(self, reports: Iterable[ReportLine]) -> None:
        """Report those of epochs that a kill kept from the reports; a checkpoint holds them."""
        missing = [line for line in reports if line["epoch"] > self.last_epoch]
        if missing:
            self.append_all(missing)

    def wait_for_another(self, generation: int, *, at_most_s: float) -> Signal | None:
        """The service's signal once it is another one than this stop; None if it stays so long."""
        other = self.wait_until(
            lambda now: not now.stop or now.generation != generation, at_most_s=at_most_s
        )
        return self.signal if other else None

    def wait_until(self, true: Callable[[Signal], bool], *, at_most_s: float) -> bool:
        """Wait until this holds for the service's signal; whether it does."""
        with self._changed:
            return self._changed.wait_for(lambda: true(self.signal), at_most_s)

    def takes_points(self) -> bool:
        """Whether the service answers, and logs to the job's MLflow run what it is handed.

        It makes that run, if it has not done so yet.
        """
        with self._changed:
            return not self._away and self.signal.logs_points

    def first_answer(self, *, at_most_s: float) -> None:
        """Wait until the service was asked once, with or without an answer."""
        if self._service is not None:
            with self._changed:
                self._changed.wait_for(lambda: self.tried, at_most_s)

    def drain(self, *, at_most_s: float) -> bool:
        """Wait until every line is acknowledged; False if that took too long or was refused."""
        if self._service is None:
            return True
        with self._changed:
            self._changed.wait_for(lambda: self._refused or self._all_acked(), at_most_s)
            return self._all_acked()

    def close(self) -> None:
        """Send and ask no more; what is unsent stays in the file."""
        self._closed.set()
        with self._changed:
            self._changed.notify_all()

    def _spawn_thread(self, name: str, loop: Callable[[], None]) -> None:
        threading.Thread(target=loop, name=f"laxity-{name}", daemon=True).start()

    def _obey_file(self, orders: Path) -> None:
        """Take a signal from the file when it is newer than what the service said last."""
        while not self._closed.wait(ORDERS_S):
            signal = read_signal_file(orders)
            with self._changed:
                if signal is not None and signal.generation > self.signal.generation:
                    self.signal = signal
                    self._changed.notify_all()

    def _all_acked(self) -> bool:
        return not self._lines or self._acked >= self._lines[-1]["seq"]

    def _pending_lines(self) -> list[ReportLine]:
        first = bisect_right(self._lines, self._acked, key=lambda line: int(line["seq"]))
        return self._lines[first : first + LINES_PER_CALL]

    def _send_lines(self) -> None:
        failures = 0
        while not self._closed.is_set():
            with self._changed:
                self._changed.wait_for(lambda: self._closed.is_set() or not self._all_acked())
                pending = self._pending_lines()
            before = self._acked
            self._ask_service(pending, wait_s=0.0)
            if self._acked > before:
                failures = 0
                continue
            failures += 1
            self._closed.wait(AWAY.delay_s(failures))

    def _poll_signal(self) -> None:
        repeats = 0
        wait_s = 0.0
        while not self._closed.is_set():
            began, generation = time.monotonic(), self.signal.generation
            answered = self._ask_service([], wait_s=wait_s)
            wait_s = POLL_S
            news = answered and self.signal.generation != generation
            if news or (answered and time.monotonic() - began > 1.0):
                repeats = 0
                continue
            repeats += 1
            self._closed.wait((ANSWERED if answered else AWAY).delay_s(repeats))

    def _ask_service(self, reports: Sequence[ReportLine], *, wait_s: float) -> bool:
        """One call. Whatever goes wrong is said once and tried again."""
        assert self._service is not None  # noqa: S101 - the threads run only with one
        try:
            answer = self._service.send(self._signal_request(reports, wait_s))
            signal, acked = Signal.from_json(answer), int(answer.get("acked") or 0)
        except (ServiceError, ValueError, TypeError) as error:
            self._note_failure(error)
            return False
        with self._changed:
            if not reports or signal.generation > self.signal.generation:
                self.signal = signal
            self.tried, self._refused, self._away = True, False, False
            self._acked = acked
            self._problem = "" if self._all_acked() else self._problem
            self._changed.notify_all()
        return True

    def _signal_request(self, reports: Sequence[ReportLine], wait_s: float) -> Request:
        body = {
            "uid": self._uid,
            "worker": 0,
            "generation": self.signal.generation,
            "reports": reports,
            "sent_at": time.time(),  # by the clock of `at` in the reports
            "wait_s": wait_s,
        }
        return Request("POST", self._path_of_signal, body=body, answer_s=wait_s)

    def _note_failure(self, error: Exception) -> None:
        status = error.status if isinstance(error, ServiceError) else 0
        problem = _failure_text(error)
        with self._changed:
            is_new = not self._away and problem != self._problem
            self._away, self._problem = True, problem
            self._refused = 400 <= status < 500 and status not in _PASSING
            self.tried = True
            self._changed.notify_all()
        if is_new:
            say(f"the service {problem}; training goes on")


def _failure_text(error: Exception) -> str:
    """What went wrong with a call, in the service's own words where it has said any."""
    if isinstance(error, ServiceError) and error.status:
        return f"answers {error.status} ({error.message})"
    return f"does not answer ({error.__cause__ or error})"


def read_lines(path: Path, *, cut: bool = False) -> list[ReportLine]:
    """The lines of earlier starts. A line torn by a kill is none: `cut` takes it off the file."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    whole = content[: content.rfind(b"\n") + 1]
    if cut and len(whole) < len(content):
        os.truncate(path, len(whole))
    return list(_whole_lines(path, whole.splitlines()))


def _whole_lines(path: Path, texts: Sequence[bytes]) -> Iterator[ReportLine]:
    for number, text in enumerate(texts, 1):
        try:
            line = json.loads(text)
            yield {**line, "seq": int(line["seq"]), "kind": str(line["kind"])}
        except (ValueError, KeyError, TypeError):
            say(f"{path}, line {number} is no report: passed over")


def _last_epoch(lines: Sequence[ReportLine], before: int = 0) -> int:
    """The greatest epoch since workers have formed with none done last; `before` these lines."""
    last = before
    for line in lines:
        if line["kind"] == "epoch":
            last = max(last, int(line["epoch"]))
        elif line["kind"] == "formed" and not line["epoch"]:
            last = 0
    return last


def _furthest_epoch(lines: Sequence[ReportLine]) -> int:
    return max((int(line["epoch"]) for line in lines if line["kind"] == "epoch"), default=0)


def _encode_line(line: ReportLine) -> bytes:
    return json.dumps(line, allow_nan=False).encode() + b"\n"
