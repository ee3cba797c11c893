"""The columns that a share rule decides on, from the rows of a snapshot.

Jobs of one workload, widths and GPUs per worker are of one kind: the predictor is asked once per
kind and width for an epoch at P90 and its mean. What is a job's own is its number of epochs left and
a factor, the mean of its observed epochs over what the kind says they take. A row that is the same
object as before is not read again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from laxity_profiler.estimate import Floats, Predictor, Workload
from laxity_scheduler.capacity.eligibility import may_ever_start
from laxity_scheduler.frame.arrays import Bools, Ints
from laxity_scheduler.frame.curve import OVERDUE, ROW
from laxity_scheduler.frame.kernels import LEAST_SHARE
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.job import FOREVER, Job, Promise
from laxity_scheduler.promising.claims import deadline_in_force

TINY: Final = 1e-6

# modes, as numbers since loops know no strings
NO_ADMISSION, GREEDY = 0, 1
CHEAPEST, DEAREST = 0, 1
NEWCOMER, PROMISED, TURNED_AWAY = 0, 1, 2
FIXED: Final = 11
LEFT, HARD, ASKS = 2, 9, 10  # columns
NOBODY: Final = 1 << 40  # GPUs of a level that there is not
LEAST_S: Final = 1e-3  # of a job whose epochs are all done and that has yet to end
KindArrays = tuple[Floats, Ints, Floats, Floats, Ints]


class RuleParameters(NamedTuple):
    """A `ShareRule` and the cluster: see there."""

    gpus: float
    admission: int
    reserves: int
    direction: int
    careful: float
    replans: int
    drops: int


@dataclass(frozen=True, slots=True)
class Kind:
    """One workload on its widths: seconds of an epoch, of a start and of a stop, by level."""

    widths: tuple[int, ...]
    gpus: tuple[int, ...]
    epoch_s: tuple[float, ...]  # P90
    mean_s: tuple[float, ...]
    start_s: tuple[float, ...]
    stop_s: tuple[float, ...]


class Columns(NamedTuple):
    """n jobs on L levels, as the loops over shares take them; times are seconds from now."""

    due: Floats  # (n,)
    left: Floats  # (n,): the share still to do
    total: Floats  # (n, L): seconds of the whole job
    width: Ints  # (n, L): GPUs
    levels: Ints  # (n,): how many it has
    level: Ints  # (n,): the present one, -1 without
    pause: Floats  # (n,): until it goes on as it is
    change: Floats  # (n, L): what it costs to start there
    promised: Bools  # (n,)
    asks: Bools  # (n,)
    hard: Bools  # (n,)
    freed: (
        Floats  # (n,): until its GPUs are free if it is told to stop now, 0 where it does not run
    )
    saves: Floats  # (n, L): what of that saving takes

    def rests(self, rows: Ints) -> Floats:
        """Seconds to the end of these jobs by level, from now on; shape (len(rows), L)."""
        stays = np.arange(self.total.shape[1]) == self.level[rows][:, None]
        cost = np.where(stays, self.pause[rows][:, None], self.change[rows])
        return cost + self.left[rows][:, None] * self.total[rows]


def open_rows(state: ClusterState, predictor: Predictor) -> "ShareRows":
    """Kept with the snapshots as long as the predictor is the same; no answer depends on it."""
    rows: ShareRows | None = state.memory.get("share_rows")
    if rows is None or rows.predictor is not predictor:
        rows = state.memory["share_rows"] = ShareRows(predictor)
    return rows


def find_movable(state: ClusterState) -> list[Job]:
    """The jobs that shares are planned for, in order of submission."""
    return [job for job in state.in_submission_order.jobs if _movable(job) and _may_run(state, job)]


def levels_held(jobs: Sequence[Job]) -> Ints:
    """The level of the GPUs that each job holds; -1 without."""
    levels = [job.widths.index(job.workers) if job.workers else -1 for job in jobs]
    return np.array(levels, dtype=np.int64)


def count_gpus(state: ClusterState, movable: Sequence[Job], free_gpus: int) -> float:
    """The one pool that these jobs share: what they hold, what is free, and what is on its way back."""
    leaving = sum(job.terminating_workers * job.gpus_per_worker for job in state.jobs)
    return float(sum(job.gpus for job in movable) + free_gpus + leaving)


class ShareRows:
    """Remembers what was read of each row, for one predictor."""

    def __init__(self, predictor: Predictor) -> None:
        self.predictor = predictor
        self._kinds: dict[tuple[Workload, tuple[int, ...], int], int] = {}
        self._tables: list[Kind] = []
        self._known: dict[str, int] = {}
        self._rows: list[Job | None] = []
        self._table = np.zeros((0, FIXED))
        self._kind_arrays: KindArrays | None = None
        self._deepest = 1  # levels

    def columns(self, jobs: list[Job], now: float) -> Columns:
        """All jobs as columns at this instant."""
        places = self._places(jobs)
        table = self._table[places]
        kinds = table[:, 0].astype(np.int64)
        epoch, width, start, stop, count = self._by_kind()
        level, left_epochs, factor = table[:, 1].astype(np.int64), table[:, 2], table[:, 3]
        work = np.maximum(left_epochs * factor, TINY)  # inf x 0 is no number
        total = np.maximum(LEAST_S, epoch[kinds] * work[:, None])
        ended = np.flatnonzero(left_epochs == 0)
        if len(ended):  # what is unknown takes no time either
            total[ended] = np.where(width[kinds[ended]] < NOBODY, LEAST_S, FOREVER)
        epoch_now = total[np.arange(len(jobs)), np.maximum(level, 0)] / np.maximum(left_epochs, 1.0)
        trains = level >= 0
        begun = np.where(trains & (table[:, 4] > -np.inf), table[:, 4], now)
        with np.errstate(divide="ignore", invalid="ignore"):
            age = np.maximum((now - begun) / epoch_now, 0.0)
            late = OVERDUE[ROW["p90"]] * np.maximum(age - 1.0, 0.0)  # as `kernels.part_left_s`
            phi = np.minimum(age, 1.0 - LEAST_SHARE - late)
        phi = np.where(np.isfinite(phi), phi, 0.0)
        change = start[kinds]
        own_start = change[np.arange(len(jobs)), np.maximum(level, 0)]
        pause = np.where(table[:, 5] > 0, np.clip(table[:, 6] + own_start - now, 0.0, own_start), 0)
        pause = np.maximum(pause, np.clip(begun - now, 0.0, None))
        parked = trains & (table[:, 4] == -np.inf) & (table[:, 5] == 0)
        boundary = np.where(parked, 0.0, pause + (1.0 - phi) * epoch_now)
        saves = stop[kinds, np.maximum(level, 0)]
        return Columns(
            due=table[:, 7] - now,
            left=1.0 - phi / np.maximum(left_epochs, 1.0),
            total=total,
            width=width[kinds],
            levels=count[kinds],
            level=level,
            pause=pause,
            change=change,
            promised=table[:, 8] > 0,
            asks=table[:, ASKS] > 0,
            hard=table[:, HARD] > 0,
            saves=stop[kinds],
            freed=np.where(trains, boundary + np.where(parked, 0.0, saves), 0.0),
        )

    def _places(self, jobs: list[Job]) -> Ints:
        """Where each job's row is kept; changed rows are read anew."""
        known, rows = self._known, self._rows
        if len(known) > 4 * len(jobs) + 1_000:
            known.clear()
            rows.clear()
        places, changed = [], []
        for job in jobs:
            place = known.get(job.id)
            if place is None:
                place = known[job.id] = len(rows)
                rows.append(None)
            if rows[place] is not job:
                rows[place] = job
                changed.append((place, job))
            places.append(place)
        if len(rows) > len(self._table):
            grown = np.zeros((max(64, 2 * len(rows)), FIXED))
            grown[: len(self._table)] = self._table
            self._table = grown
        if changed:
            self._table[[place for place, _ in changed]] = self._read([job for _, job in changed])
        return np.array(places, dtype=np.int64)

    def _read(self, jobs: list[Job]) -> Floats:
        """These rows as fields, shape (n, FIXED); column by column, since that is faster."""
        numbers = self._numbers(jobs)
        kinds = [self._tables[number] for number in numbers]
        pairs = list(zip(jobs, kinds, strict=True))
        columns: tuple[Sequence[float], ...] = (
            numbers,
            [_level(job, kind) if job.workers else -1 for job, kind in pairs],
            [job.workload.epochs - job.progress.epochs_done for job in jobs],
            [self._factor(job, kind) if job.progress.epoch_s else 1.0 for job, kind in pairs],
            [_start_at(job) for job in jobs],
            [bool(job.workers) and not job.formed and job.epoch_started_at is None for job in jobs],
            [job.resumed_at or 0.0 for job in jobs],
            [_due_at(job) for job in jobs],
            [isinstance(job.verdict, Promise) for job in jobs],
            [job.service_class == "hard" for job in jobs],
            [job.asked for job in jobs],
        )
        table = np.array(columns, dtype=np.float64).T
        table[:, LEFT] = np.maximum(table[:, LEFT], 0.0)
        asks = [job.deadline_at < FOREVER for job in jobs]
        table[:, ASKS] *= table[:, HARD] * np.array(asks)
        return table

    def _numbers(self, jobs: list[Job]) -> list[int]:
        """Their kinds. Workloads are told apart by identity first, which is faster."""
        known: dict[tuple[int, tuple[int, ...], int], int] = {}
        keys = [(id(job.workload), job.widths, job.gpus_per_worker) for job in jobs]
        for key, job in zip(keys, jobs, strict=True):
            if key not in known:
                known[key] = self._kind(job)
        return [known[key] for key in keys]

    def _factor(self, job: Job, kind: Kind) -> float:
        """Observed over predicted mean epochs, carefully: P90 over mean shrinks as they come in."""
        mean_by_width = dict(zip(kind.widths, kind.mean_s, strict=True))
        seen = [
            (took_s, mean_by_width[width])
            for took_s, width in zip(job.progress.epoch_s, job.progress.widths, strict=False)
            if width in mean_by_width
        ]
        if not seen:
            return 1.0
        ratio = sum(took for took, _ in seen) / max(1e-9, sum(mean for _, mean in seen))
        surplus = kind.epoch_s[0] / max(1e-9, kind.mean_s[0]) - 1.0
        if surplus == FOREVER:  # P90 is unknown
            return 1.0
        return ratio * (1.0 + surplus / (1 + len(seen))) / (1.0 + surplus)

    def _kind(self, job: Job) -> int:
        key = (job.workload, job.widths, job.gpus_per_worker)
        number = self._kinds.get(key)
        if number is None:
            number = self._kinds[key] = len(self._tables)
            self._deepest = max(self._deepest, len(job.widths))
            estimates = [self.predictor.epoch_time(job.workload, width) for width in job.widths]
            starts = [self.predictor.resume_cost(job.workload, width) for width in job.widths]
            stops = [self.predictor.suspend_cost(job.workload, width) for width in job.widths]
            self._tables.append(
                Kind(
                    job.widths,
                    tuple(width * job.gpus_per_worker for width in job.widths),
                    tuple(estimate.p90_s for estimate in estimates),
                    tuple(estimate.mean_s for estimate in estimates),
                    tuple(start.mean_s for start in starts),
                    tuple(stop.mean_s for stop in stops),
                )
            )
        return number

    def _by_kind(self) -> KindArrays:
        """All kinds as arrays; those that are new are appended."""
        known = self._kind_arrays
        deepest = self._deepest
        if known is None or known[0].shape[1] < deepest:
            known = self._kind_arrays = _as_arrays(self._tables, deepest)
        elif len(known[0]) < len(self._tables):
            new = _as_arrays(self._tables[len(known[0]) :], known[0].shape[1])
            known = self._kind_arrays = (
                np.concatenate((known[0], new[0])),
                np.concatenate((known[1], new[1])),
                np.concatenate((known[2], new[2])),
                np.concatenate((known[3], new[3])),
                np.concatenate((known[4], new[4])),
            )
        return known


def _as_arrays(kinds: Sequence[Kind], deepest: int) -> KindArrays:
    """Their epochs, GPUs, starts and stops by level, and how many levels each has."""
    epoch = np.full((len(kinds), deepest), np.inf)
    start = np.zeros((len(kinds), deepest))
    stop = np.zeros((len(kinds), deepest))
    width = np.full((len(kinds), deepest), NOBODY, dtype=np.int64)
    for row, kind in enumerate(kinds):
        epoch[row, : len(kind.widths)] = kind.epoch_s
        start[row, : len(kind.widths)] = kind.start_s
        stop[row, : len(kind.widths)] = kind.stop_s
        width[row, : len(kind.widths)] = kind.gpus
    count = np.array([len(kind.widths) for kind in kinds], dtype=np.int64)
    return epoch, width, start, stop, count


def _level(job: Job, kind: Kind) -> int:
    """The level that it trains at; -1 if that is none of its own."""
    formed = job.formed or job.workers
    return kind.widths.index(formed) if formed in kind.widths else -1


def _start_at(job: Job) -> float:
    begun_at = job.epoch_started_at
    return -FOREVER if begun_at is None or job.parked_epoch is not None else begun_at


def _due_at(job: Job) -> float:
    """The deadline in force; of who asks for a verdict, the one that is asked for."""
    if job.service_class == "best_effort":
        return FOREVER
    return job.deadline_at if job.asked else deadline_in_force(job)


def _movable(job: Job) -> bool:
    """Whether the rule may decide about it; the GPUs of others are simply not there.

    Who is about to stop or to shrink, or whose pods have yet to go, is planned for like all others,
    with the GPUs that it gives back: a plan that left it out would give others what it gives back,
    take that from them as soon as it is back, and so on for ever.
    """
    if job.pinned or job.refused:
        return False
    if not job.workers:
        return True
    return job.preemptible and job.workers in job.widths


def _may_run(state: ClusterState, job: Job) -> bool:
    """Whether there are nodes for it; a hard job that asks is told so."""
    if not job.eligible or job.workers or job.asked:
        return True
    return may_ever_start(state, job)
