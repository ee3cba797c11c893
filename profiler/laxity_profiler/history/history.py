"""Everything that was ever observed of trainings: each epoch and each stop once, however reported.

`ingest` takes the report lines of one job and says up to which line it has them; `report` says how
a job stands now. Both are called for every job in every cycle, so the state of each job is kept in
memory, and in one row beside its epochs so that a restart (or another replica) goes on from there.
"""

import json
import logging
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from threading import RLock
from typing import TYPE_CHECKING, Any, Final

from laxity.parsing import finite_number
from laxity_profiler.estimate import Workload
from laxity_profiler.history import database
from laxity_profiler.history.database import HistoryError, transaction
from laxity_profiler.history.first_epoch import Seen
from laxity_profiler.history.report_fold import (
    NOTHING_SAID,
    Epoch,
    Folded,
    Report,
    Said,
    Stop,
    StopSeen,
)
from laxity_profiler.history.report_values import clean

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

__all__ = ["Epoch", "History", "HistoryError", "Report", "Run", "Stop", "StopSeen"]

LOG: Final = logging.getLogger(__name__)
LONGEST_STOP_S: Final = 999_999.0  # eleven days
EPOCHS_READ: Final = 50_000  # of one model: the latest
STOPS_READ: Final = 20_000
ASIDES_KEPT: Final = 1_000  # per job and service life
RUNS_KEPT: Final = 20_000  # in memory
CLOCKS_APART_S: Final = 60.0  # of two replicas


@dataclass(frozen=True, slots=True)
class Run:
    """The epochs of one job, in order of training."""

    uid: str
    workload: Workload
    epochs: tuple[Epoch, ...]


@dataclass(slots=True)
class _Kept:
    said: Said
    folds: int
    report: Report
    workload: Workload | None = None  # as its workers' reports came with it


class History:
    """Safe to call from several threads, and from several replicas on one database."""

    def __init__(self, engine: "Engine") -> None:
        database.create_tables(engine)
        self.engine = engine
        self._kept: dict[str, _Kept] = {}
        self._silent: set[str] = set()  # runs that nobody had said anything of when asked
        self._aside: dict[str, int] = {}
        self._first: dict[str, Seen] = {}
        self.first_changes = 0  # so often what jobs read in their first epochs has changed
        self._lock = RLock()
        self._refreshed_at = time.time() - CLOCKS_APART_S

    def ingest(
        self,
        uid: str,
        job: str,
        workload: Workload,
        lines: Sequence[object],
        *,
        received_at: float | None = None,
        nodes: Sequence[str] = (),
        since: float = 0.0,
    ) -> int:
        """Take report lines; the seq up to which all lines were taken, for the worker to forget.

        No line raises: what cannot be believed is set aside with a reason. HistoryError if the
        database does not answer; then nothing was taken and the lines will come again. `nodes` are
        those of the worker indexes now, which they have been on `since` then.
        """
        now = time.time() if received_at is None else received_at
        with self._lock:
            kept = self._kept.get(uid)
            if not lines and kept is not None:
                return kept.said.acked
            with transaction(self.engine) as connection:
                row = database.lock_run(connection, uid, job=job, model=workload.model, at=0.0)
                fresh = kept is not None and kept.folds == row.folds
                said = _unfolded(uid, kept.said.to_json() if kept and fresh else row.said)
                folded = said.fold(lines, epochs=workload.epochs, received_at=now)
                folded.epochs = [_placed(epoch, nodes, since) for epoch in folded.epochs]
                self._write(connection, uid, workload.model, folded, now)
                database.write_run(connection, uid, _row(job, workload, said, row.folds + 1))
            self._keep(uid, said, row.folds + 1).workload = workload
            self._note_reading(uid, workload, said)
            return said.acked

    def add_epochs(self, uid: str, job: str, workload: Workload, epochs: Sequence[Epoch]) -> None:
        """Epochs known from elsewhere (MLflow). Those of a job that reports itself count once."""
        with self._lock, transaction(self.engine) as connection:
            row = database.lock_run(connection, uid, job=job, model=workload.model, at=0.0)
            if row.folds == 0:
                values = {"workload": _workload_json(workload), "model": workload.model}
                database.write_run(connection, uid, values)
            self._write(connection, uid, workload.model, Folded(epochs=list(epochs)), time.time())

    def report(self, uid: str) -> Report:
        """How a job stands, from memory where it can; zeros before its workers said anything."""
        kept = self._kept.get(uid)
        if kept is not None:
            return kept.report
        if uid in self._silent:
            return NOTHING_SAID
        with self._lock:
            with transaction(self.engine) as connection:
                row = database.read_run(connection, uid)
            if row is None:
                if len(self._silent) >= RUNS_KEPT:
                    self._silent.clear()
                self._silent.add(uid)  # until it is heard here, or `refresh` sees it elsewhere
                return NOTHING_SAID
            return self._read(row).report

    def refresh(self) -> None:
        """See what other replicas were told since the last time. Not needed with one."""
        with self._lock:
            asked_at = time.time()
            with transaction(self.engine) as connection:
                rows = database.runs_since(connection, self._refreshed_at - CLOCKS_APART_S)
            for row in rows:
                kept = self._kept.get(row.uid)
                if kept is None or kept.folds < row.folds:
                    self._read(row)
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
        took_s = finite_number(seconds, least=0.0, most=LONGEST_STOP_S)
        if took_s is None or finite_number(at) is None:
            self.set_aside(
                uid, f"{kind} of {seconds} s at {at} is not believed", "", at=time.time()
            )
            return
        with self._lock, transaction(self.engine) as connection:
            stops = [Stop(kind, max(1, workers), took_s, float(at), size_bytes)]
            self._write(connection, uid, workload.model, Folded(stops=stops), at)

    def observe_finish(self, uid: str, *, at: float) -> None:
        """The job was complete at this instant: how long after its last epoch, if that is known."""
        kept = self._kept.get(uid)
        if kept is None or kept.workload is None or kept.said.epoch_ended_at is None:
            return
        ended_at, width = kept.said.epoch_ended_at, kept.said.formed
        self.observe_stop(
            uid,
            kept.workload,
            kind="finish",
            workers=width,
            seconds=max(0.0, at - ended_at),
            at=ended_at,
        )

    def set_aside(self, uid: str, reason: str, line: str, *, at: float) -> None:
        """Remember what was not believed, and why."""
        with self._lock, transaction(self.engine) as connection:
            self._write(connection, uid, "", Folded(aside=[(reason, line)]), at)

    def aside(self, uid: str | None = None) -> list[tuple[str, str, str, float]]:
        """(uid, reason, line, at) of all that was set aside, oldest first."""
        with transaction(self.engine) as connection:
            return [tuple(row) for row in database.asides_of(connection, uid)]

    def epochs(self, model: str, *, most: int = EPOCHS_READ) -> list[Run]:
        """The latest epochs of a model, by run; runs in the order in which they were last heard of."""
        with transaction(self.engine) as connection:
            rows = database.epochs_of(connection, model, most)
            workloads = dict(database.runs_of(connection, model))
        by_uid: dict[str, list[Epoch]] = {}
        for uid, *fields in rows:
            by_uid.setdefault(uid, []).append(Epoch(*fields))
        return [
            Run(
                uid,
                _workload(workloads.get(uid, "{}"), model),
                tuple(sorted(epochs, key=lambda epoch: epoch.epoch)),
            )
            for uid, epochs in reversed(by_uid.items())
        ]

    def first_epochs(self) -> list[Seen]:
        """What jobs read whose first epoch lasts; in memory only, the next line tells it again."""
        with self._lock:
            return list(self._first.values())

    def stops(self, *, most: int = STOPS_READ) -> list[StopSeen]:
        """The latest stops of all models, oldest first."""
        with transaction(self.engine) as connection:
            rows = database.stops_of(connection, most)
        return [StopSeen(*row) for row in reversed(rows)]

    def news(self, *, epochs_after: int, stops_after: int) -> "News":
        """Which models have rows beyond these ids: how many, and the greatest ids now."""
        with transaction(self.engine) as connection:
            epochs = database.counts_after(connection, database.ObservedEpoch, epochs_after)
            stops = database.counts_after(connection, database.ObservedStop, stops_after)
        return News(
            {str(model): int(count) for model, count, _ in epochs},
            max((int(row[2]) for row in epochs), default=epochs_after),
            sum(int(row[1]) for row in stops),
            max((int(row[2]) for row in stops), default=stops_after),
        )

    def _write(
        self, connection: "Connection", uid: str, model: str, folded: Folded, now: float
    ) -> None:
        if folded.epochs:
            rows = [_epoch_row(uid, model, epoch) for epoch in folded.epochs]
            database.insert_new(connection, database.ObservedEpoch, rows)
        if folded.stops:
            stops = [asdict(stop) | {"uid": uid, "model": model} for stop in folded.stops]
            database.insert_new(connection, database.ObservedStop, stops)
        known = self._aside.get(uid, 0)
        aside = folded.aside[: max(0, ASIDES_KEPT - known)]
        if aside:
            self._aside[uid] = known + len(aside)
            rows = [
                {"uid": uid, "reason": clean(reason), "line": clean(line), "at": now}
                for reason, line in aside
            ]
            database.insert_new(connection, database.SetAside, rows)

    def _note_reading(self, uid: str, workload: Workload, said: Said) -> None:
        reading = said.first_reading()
        before = self._first.pop(uid, None)
        if reading is not None:
            self._first[uid] = Seen(uid, workload, reading)
            if len(self._first) > RUNS_KEPT:
                del self._first[next(iter(self._first))]
        self.first_changes += self._first.get(uid) != before

    def _read(self, row: Any) -> _Kept:
        """What was told before a restart, or to another replica, as if it had been told here."""
        kept = self._keep(row.uid, _unfolded(row.uid, row.said), row.folds)
        if row.folds:
            kept.workload = _workload(row.workload, row.model)
            self._note_reading(row.uid, kept.workload, kept.said)
        return kept

    def _keep(self, uid: str, said: Said, folds: int) -> _Kept:
        kept = _Kept(said, folds, said.report())
        self._kept.pop(uid, None)
        self._kept[uid] = kept
        self._silent.discard(uid)
        if len(self._kept) > RUNS_KEPT:
            del self._kept[next(iter(self._kept))]
        return kept


@dataclass(frozen=True, slots=True)
class News:
    """New epochs by model, new stops in all, and the greatest row ids."""

    epochs: dict[str, int]
    last_epoch_id: int
    stops: int
    last_stop_id: int


def _unfolded(uid: str, text: str) -> Said:
    """What was folded of a run; nothing if that cannot be read any more: its reports come again."""
    try:
        return Said.from_json(text)
    except Exception:
        LOG.exception("what %s reported cannot be read; it counts as nothing", uid)
        return Said()


def _row(job: str, workload: Workload, said: Said, folds: int) -> dict[str, Any]:
    return {
        "job": job,
        "model": workload.model,
        "workload": _workload_json(workload),
        "acked": said.acked,
        "said": clean(said.to_json()),
        "folds": folds,
        "at": time.time(),
    }


def _epoch_row(uid: str, model: str, epoch: Epoch) -> dict[str, Any]:
    return {
        "uid": uid,
        "model": model,
        "epoch": epoch.epoch,
        "width": epoch.width,
        "epoch_s": epoch.epoch_s,
        "bytes": epoch.bytes,
        "warmup": epoch.warmup,
        "at": epoch.at,
        "nodes": epoch.nodes,
    }


def _placed(epoch: Epoch, nodes: Sequence[str], since: float) -> Epoch:
    """With the number of nodes that it ran on, if all its workers have been where they are now."""
    if len(nodes) < epoch.width or epoch.at < since:
        return epoch
    return replace(epoch, nodes=len(set(nodes[: epoch.width])))


def _workload_json(workload: Workload) -> str:
    return json.dumps(asdict(workload), separators=(",", ":"))


def _workload(text: str, model: str) -> Workload:
    try:
        return Workload(**{"model": model, "epochs": 1} | json.loads(text))
    except (TypeError, ValueError):
        return Workload(model, 1)
