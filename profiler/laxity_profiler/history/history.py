"""Everything that was ever observed of trainings: each epoch and each stop once, however reported.

`ingest` takes the report lines of one job and says up to which line it has them; `report` says how
a job stands now. Both are called for every job in every cycle, so the state of each job is kept in
memory, and in one row beside its epochs so that a restart (or another replica) goes on from there.
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from threading import RLock
from typing import TYPE_CHECKING, Any, Final

from laxity.parsing import finite_number
from laxity_profiler.estimate import Workload
from laxity_profiler.history import history_database
from laxity_profiler.history.faults import OnFault, log_fault
from laxity_profiler.history.first_epoch import FirstEpochReading
from laxity_profiler.history.history_database import HistoryError, open_transaction
from laxity_profiler.history.observations import Epoch, ObservedStop, Stop
from laxity_profiler.history.report_fold import (
    LONGEST_STOP_S,
    NO_REPORT,
    FoldResult,
    Report,
    ReportState,
)
from laxity_profiler.history.report_values import LONGEST_S, clean_text

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

__all__ = ["Epoch", "History", "HistoryError", "ObservedStop", "Report", "Stop", "TrainingRun"]

LONGEST_CLOSING_S: Final = 600.0  # from the result until the Job is complete
EPOCHS_READ: Final = 50_000  # of one model: the latest
STOPS_READ: Final = 20_000
ASIDES_KEPT: Final = 1_000  # per job and service life
RUNS_KEPT: Final = 20_000  # in memory
CLOCKS_APART_S: Final = 60.0  # of two replicas
LineMaker = Callable[[ReportState], Sequence[object]]


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """The epochs of one job, in order of training."""

    uid: str
    workload: Workload
    epochs: tuple[Epoch, ...]
    epochs_trained: int | None = None  # when its function returned; None: unknown

    @property
    def is_early(self) -> bool:
        """Whether its function returned with epochs left."""
        return self.epochs_trained is not None and self.epochs_trained < self.workload.epochs


@dataclass(slots=True)
class _CachedReport:
    state: ReportState
    folds: int
    report: Report
    workload: Workload | None = None  # as its workers' reports came with it


class History:
    """Safe to call from several threads, and from several replicas on one database.

    `on_fault` records errors about one run, which all others are served in spite of.
    """

    def __init__(self, engine: "Engine", on_fault: OnFault = log_fault) -> None:
        history_database.create_tables(engine)
        self.engine, self.on_fault = engine, on_fault
        self._reports: dict[str, _CachedReport] = {}
        self._silent: set[str] = set()  # runs that nobody had said anything of when asked
        self._rejected_counts: dict[str, int] = {}
        self._first: dict[str, FirstEpochReading] = {}
        self.first_changes = 0  # so often what jobs read in their first epochs has changed
        self._lock = RLock()
        self._refreshed_at = time.time() - CLOCKS_APART_S

    def ingest(
        self,
        uid: str,
        job: str,
        workload: Workload,
        lines: Sequence[object] | LineMaker,
        *,
        received_at: float | None = None,
        behind_s: float | None = None,
        nodes: Sequence[str] = (),
        since: float = 0.0,
    ) -> int:
        """Take report lines; the seq up to which all lines were taken, for the worker to forget.

        No line raises: what cannot be believed is set aside with a reason. HistoryError if the
        database does not answer; then nothing was taken and the lines will come again. `behind_s` is
        how far the worker's clock is behind this one; None: as last heard. `nodes` are those of
        the worker indexes now, which they have been on `since` then. A `LineMaker` makes the lines of what the
        run has come to, and nobody else adds any meanwhile.
        """
        now = time.time() if received_at is None else received_at
        with self._lock:
            cached = self._reports.get(uid)
            if not lines and cached is not None:
                return cached.state.acked
            with open_transaction(self.engine) as connection:
                row = history_database.lock_run(connection, uid, job=job, model=workload.model)
                fresh = cached is not None and cached.folds == row.folds
                state = self._restore_state(
                    uid, cached.state.to_json() if cached and fresh else row.said
                )
                _note_product(state, workload.gpu_type)
                if callable(lines):
                    lines = lines(state)
                folded = state.fold(
                    lines, epochs=workload.epochs, received_at=now, behind_s=behind_s
                )
                product = workload.gpu_type
                folded.epochs = [
                    _with_nodes(epoch, nodes, since, product) for epoch in folded.epochs
                ]
                workload = state.report().refine(workload)
                self._write_fold(connection, uid, workload.model, folded, now)
                history_database.write_run(
                    connection, uid, _run_row(job, workload, state, row.folds + 1)
                )
            self._cache_report(uid, state, row.folds + 1).workload = workload
            self._note_reading(uid, workload, state)
            return state.acked

    def add_epochs(self, uid: str, job: str, workload: Workload, epochs: Sequence[Epoch]) -> None:
        """Epochs known from elsewhere (MLflow). Those of a job that reports itself count once."""
        with self._lock, open_transaction(self.engine) as connection:
            row = history_database.lock_run(connection, uid, job=job, model=workload.model)
            if row.folds == 0:
                values = {"workload": _workload_json(workload), "model": workload.model}
                history_database.write_run(connection, uid, values)
            self._write_fold(
                connection, uid, workload.model, FoldResult(epochs=list(epochs)), time.time()
            )

    def report(self, uid: str) -> Report:
        """How a job stands, from memory where it can; zeros before its workers said anything."""
        cached = self._reports.get(uid)
        if cached is not None:
            return cached.report
        if uid in self._silent:
            return NO_REPORT
        with self._lock:
            with open_transaction(self.engine) as connection:
                row = history_database.read_run(connection, uid)
            if row is None:
                if len(self._silent) >= RUNS_KEPT:
                    self._silent.clear()
                self._silent.add(uid)  # until it is heard here, or `refresh` sees it elsewhere
                return NO_REPORT
            return self._load_report(row).report

    def refresh(self) -> None:
        """See what other replicas were told since the last time. Not needed with one."""
        with self._lock:
            asked_at = time.time()
            with open_transaction(self.engine) as connection:
                rows = history_database.runs_since(connection, self._refreshed_at - CLOCKS_APART_S)
            for row in rows:
                cached = self._reports.get(row.uid)
                if cached is None or cached.folds < row.folds:
                    self._load_report(row)
            self._refreshed_at = asked_at

    def observe_stop(
        self,
        uid: str,
        workload: Workload,
        *,
        kind: str,
        workers: int,
        seconds: float,
        at: float,
        size_bytes: int | None = None,
    ) -> None:
        """Take what only the service sees; the same (uid, kind, at) counts once.

        `suspend`: from the parked report until all pods are gone; `resume`: from the patch that
        starts the pods to the `formed` report.
        """
        most_s = LONGEST_S if kind == "finishing" else LONGEST_STOP_S
        took_s = finite_number(seconds, least=0.0, most=most_s)
        if took_s is None or finite_number(at) is None:
            self.reject(uid, f"{kind} of {seconds} s at {at} is not believed", "", at=time.time())
            return
        with self._lock, open_transaction(self.engine) as connection:
            stops = [Stop(kind, max(1, workers), took_s, float(at), size_bytes)]
            self._write_fold(connection, uid, workload.model, FoldResult(stops=stops), at)

    def observe_finish(self, uid: str, *, at: float) -> None:
        """The job was complete at this instant: how long after its last epoch, if that is known.

        Until its result the worker has timed it; what came after that is timed here.
        """
        cached = self._reports.get(uid)
        if cached is None or cached.workload is None:
            return
        state = cached.state
        if state.epoch_ended_at is None or state.finishing_s is None:
            return
        closing_s = at - state.finished_at
        if closing_s > LONGEST_CLOSING_S:
            reason = f"complete {closing_s:.0f} s after its result: not taken as what it costs"
            self.reject(uid, reason, "", at=at)
            return
        self.observe_stop(
            uid,
            cached.workload,
            kind="finishing",
            workers=state.formed,
            seconds=state.finishing_s + max(0.0, closing_s),
            at=state.epoch_ended_at,
        )

    def reject(self, uid: str, reason: str, line: str, *, at: float) -> None:
        """Remember what was not believed, and why."""
        with self._lock, open_transaction(self.engine) as connection:
            self._write_fold(connection, uid, "", FoldResult(rejected=[(reason, line)]), at)

    def rejections(self, uid: str | None = None) -> list[tuple[str, str, str, float]]:
        """(uid, reason, line, at) of all that was set aside, oldest first."""
        with open_transaction(self.engine) as connection:
            return [tuple(row) for row in history_database.rejections_of(connection, uid)]

    def epochs(self, model: str, *, most: int = EPOCHS_READ) -> list[TrainingRun]:
        """The latest epochs of a model, by run; runs in the order in which they were last heard of."""
        with open_transaction(self.engine) as connection:
            rows = history_database.epochs_of(connection, model, most)
            rows_of_runs = history_database.runs_of(connection, model)
        by_uid: dict[str, list[Epoch]] = {}
        run_fields = {uid: (workload, trained) for uid, workload, trained in rows_of_runs}
        for uid, *fields in rows:
            by_uid.setdefault(uid, []).append(Epoch(*fields))
        return [
            TrainingRun(
                uid,
                _workload_from_json(run_fields.get(uid, ("{}", None))[0], model),
                tuple(sorted(epochs, key=lambda epoch: epoch.epoch)),
                run_fields.get(uid, ("{}", None))[1],
            )
            for uid, epochs in reversed(by_uid.items())
        ]

    def ended_run(self, uid: str) -> TrainingRun | None:
        """A run that was heard here and whose function has returned, without its epochs."""
        cached = self._reports.get(uid)
        if cached is None or cached.workload is None or cached.report.finished_epochs is None:
            return None
        return TrainingRun(uid, cached.workload, (), cached.report.finished_epochs)

    def first_epochs(self) -> list[FirstEpochReading]:
        """What jobs read whose first epoch lasts; in memory only, the next line tells it again."""
        with self._lock:
            return list(self._first.values())

    def stops(self, *, most: int = STOPS_READ) -> list[ObservedStop]:
        """The latest stops of all models, oldest first."""
        with open_transaction(self.engine) as connection:
            rows = history_database.stops_of(connection, most, longest_s=LONGEST_STOP_S)
        return [ObservedStop(*row) for row in reversed(rows)]

    def news(self, *, epochs_after: int, stops_after: int) -> "News":
        """Which models have rows beyond these ids: how many, and the greatest ids now."""
        with open_transaction(self.engine) as connection:
            epochs = history_database.counts_after(
                connection, history_database.EpochRecord, epochs_after
            )
            stops = history_database.counts_after(
                connection, history_database.StopRecord, stops_after
            )
        return News(
            {str(model): int(count) for model, count, _ in epochs},
            max((int(row[2]) for row in epochs), default=epochs_after),
            sum(int(row[1]) for row in stops),
            max((int(row[2]) for row in stops), default=stops_after),
        )

    def _write_fold(
        self, connection: "Connection", uid: str, model: str, folded: FoldResult, now: float
    ) -> None:
        if folded.epochs:
            rows = [_epoch_row(uid, model, epoch) for epoch in folded.epochs]
            history_database.insert_new(connection, history_database.EpochRecord, rows)
        if folded.stops:
            stops = [asdict(stop) | {"uid": uid, "model": model} for stop in folded.stops]
            history_database.insert_new(connection, history_database.StopRecord, stops)
        rejected_before = self._rejected_counts.get(uid, 0)
        rejected = folded.rejected[: max(0, ASIDES_KEPT - rejected_before)]
        if rejected:
            self._rejected_counts[uid] = rejected_before + len(rejected)
            rows = [
                {"uid": uid, "reason": clean_text(reason), "line": clean_text(line), "at": now}
                for reason, line in rejected
            ]
            history_database.insert_new(connection, history_database.RejectedReport, rows)

    def _note_reading(self, uid: str, workload: Workload, state: ReportState) -> None:
        reading = state.first_reading()
        before = self._first.pop(uid, None)
        if reading is not None:
            self._first[uid] = FirstEpochReading(uid, workload, reading)
            if len(self._first) > RUNS_KEPT:
                del self._first[next(iter(self._first))]
        self.first_changes += self._first.get(uid) != before

    def _load_report(self, row: Any) -> _CachedReport:
        """What was told before a restart, or to another replica, as if it had been told here."""
        cached = self._cache_report(row.uid, self._restore_state(row.uid, row.said), row.folds)
        if row.folds:
            cached.workload = _workload_from_json(row.workload, row.model)
            self._note_reading(row.uid, cached.workload, cached.state)
        return cached

    def _restore_state(self, uid: str, text: str) -> ReportState:
        """What was folded of a run; nothing if that cannot be read any more: its reports come again."""
        try:
            return ReportState.from_json(text)
        except Exception as error:  # noqa: BLE001 - recorded with its traceback
            self.on_fault("stored report", uid, error)
            return ReportState()

    def _cache_report(self, uid: str, state: ReportState, folds: int) -> _CachedReport:
        cached = _CachedReport(state, folds, state.report())
        self._reports.pop(uid, None)
        self._reports[uid] = cached
        self._silent.discard(uid)
        if len(self._reports) > RUNS_KEPT:
            del self._reports[next(iter(self._reports))]
        return cached


@dataclass(frozen=True, slots=True)
class News:
    """New epochs by model, new stops in all, and the greatest row ids."""

    epochs: dict[str, int]
    last_epoch_id: int
    stops: int
    last_stop_id: int


def _run_row(job: str, workload: Workload, state: ReportState, folds: int) -> dict[str, Any]:
    return {
        "job": job,
        "model": workload.model,
        "workload": _workload_json(workload),
        "acked": state.acked,
        "said": clean_text(state.to_json()),
        "folds": folds,
        "at": time.time(),
        "epochs_trained": None if state.judged else state.report().finished_epochs,
    }


def _epoch_row(uid: str, model: str, epoch: Epoch) -> dict[str, Any]:
    return {"uid": uid, "model": model, **asdict(epoch)}


def _note_product(state: ReportState, gpu_type: str) -> None:
    """It trains on this product from now on: its latest epochs are those on this one."""
    if gpu_type and state.gpu_type and gpu_type != state.gpu_type:
        state.epoch_s, state.widths, state.numbers = [], [], []
    state.gpu_type = gpu_type or state.gpu_type


def _with_nodes(epoch: Epoch, nodes: Sequence[str], since: float, product: str) -> Epoch:
    """With the number of nodes that it ran on and the product of their GPUs.

    If all its workers have been where they are now.
    """
    if len(nodes) < epoch.width or epoch.at < since:
        return epoch
    return replace(epoch, nodes=len(set(nodes[: epoch.width])), gpu_type=product)


def _workload_json(workload: Workload) -> str:
    return json.dumps(asdict(workload), separators=(",", ":"))


def _workload_from_json(text: str, model: str) -> Workload:
    try:
        fields = {"model": model, "epochs": 1, "inputs": ()} | json.loads(text)
        return Workload(**fields | {"inputs": tuple((a, b) for a, b in fields["inputs"])})
    except (TypeError, ValueError):
        return Workload(model, 1)
