"""Each job's seconds of training left by width, asked for in batches and kept between decisions.

What does not depend on `now` is a function of a job's row and the predictor, so it is kept by the
row's identity: the same answers, without asking again. Rows of equal workload, progress and widths
share one curve, and all new rows of a snapshot are one question to the predictor.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, nan
from operator import attrgetter
from typing import Final, Literal

from laxity_profiler.estimate import Ask, Estimate, Predictor, Progress, Source, Workload
from laxity_scheduler.frame.kernels import NOBODY, Width, Work
from laxity_scheduler.model.job import FOREVER, Job

Quantile = Literal["p10", "p50", "mean", "p90"]
Quantiles = tuple[float, float, float, float]  # seconds, in the order of ORDER
Costs = Mapping[int, Quantiles]  # by width
ORDER: Final[tuple[Quantile, ...]] = ("p10", "p50", "mean", "p90")
TINY: Final = 1e-9
OVERDUE: Final[Quantiles] = (0.1, 1.0, 2.0, 3.0)  # times what a part is beyond its P90 is to come
ROW: Final[Mapping[Quantile, int]] = {name: row for row, name in enumerate(ORDER)}
Limits = tuple[float, float, bool, float]
Key = tuple[Workload, Progress, tuple[int, ...], tuple[int, ...], Limits]  # levels, widths


@dataclass(frozen=True, slots=True)
class Curve:
    """One job's remaining whole epochs by width, in seconds; and what starts and stops cost.

    `widths` are those worth having: none is slower (mean) than a smaller one, each ends an epoch
    within the wall-clock limit and all of them within the active deadline, if any does. The least of
    these is always among them. The mappings also know the widths it runs at. `totals` hold `ends`, the
    seconds after the last epoch; `units` are the epoch that runs or the next one, `unit_late_s` the
    P90 of that one alone.
    """

    widths: tuple[int, ...]
    epochs_left: int
    totals: Mapping[int, Quantiles]
    starts: Mapping[int, Quantiles]
    stops: Mapping[int, Quantiles]
    units: Mapping[int, Quantiles]
    ends: Mapping[int, Quantiles]
    unit_late_s: Mapping[int, float]
    source: Source

    @property
    def least(self) -> int:
        return self.widths[0]

    @property
    def known(self) -> bool:
        return self.totals[self.widths[0]][ROW["p90"]] < FOREVER

    def at(self, workers: int, quantile: Quantile) -> Width:
        """All that so many workers take; of nobody, that there are none."""
        if not workers:
            return NOBODY
        row = ROW[quantile]
        tables = (self.totals, self.starts, self.stops, self.units, self.ends)
        return Width(workers, *(table[workers][row] for table in tables))

    def levels(self, quantile: Quantile) -> tuple[tuple[float, ...], ...]:
        """What each of its widths takes, (KINDS, L)."""
        return tuple(zip(*[self.at(width, quantile) for width in self.widths], strict=True))

    def total_s(self, workers: int, quantile: Quantile) -> float:
        return self.totals[workers][ROW[quantile]]

    def epoch_s(self, workers: int, quantile: Quantile) -> float:
        row = ROW[quantile]
        total_s = self.totals[workers][row]
        if total_s == FOREVER:
            return FOREVER
        return (total_s - self.ends[workers][row]) / max(1, self.epochs_left)

    def start_s(self, workers: int, quantile: Quantile) -> float:
        return self.starts[workers][ROW[quantile]]

    def stop_s(self, workers: int, quantile: Quantile) -> float:
        """Checkpoint and stop, once the epoch has ended."""
        return self.stops[workers][ROW[quantile]]

    def reform_s(self, workers: int, quantile: Quantile) -> float:
        """Re-forming at another width: a checkpoint's writing and reading, no new process."""
        return self.stops[workers][ROW[quantile]]


def work_of(job: Job, curve: Curve, quantile: Quantile) -> Work:
    """One job as the kernels want it."""
    runs = bool(job.workers)
    parked = runs and job.parked_epoch is not None
    return Work(
        left=curve.epochs_left,
        anew=epochs_anew(job) if runs else 0.0,
        begun_at=nan if job.epoch_started_at is None else job.epoch_started_at,
        resumed_at=nan if job.start_began_at is None else job.start_began_at,
        changed_at=nan if job.width_changed_at is None else job.width_changed_at,
        has_formed=runs and job.formed > 0,
        parked=parked,
        stopping=parked or (runs and job.stop_requested_at is not None),
        late_s=late_s_of(job, curve) if runs else 0.0,
        overdue=OVERDUE[ROW[quantile]],
        anywhere=runs and job.stops_anywhere,
        own=curve.at(job.workers, quantile),
        formed=curve.at(runs and (job.formed or job.workers), quantile),
    )


def late_s_of(job: Job, curve: Curve) -> float:
    """P90 of the part in which a job with workers is: its start, an epoch or finishing."""
    if not job.formed and job.epoch_started_at is None:
        return curve.start_s(job.workers, "p90")
    if not curve.epochs_left:
        return curve.ends[job.workers][ROW["p90"]]
    return curve.unit_late_s[job.formed or job.workers]


def epochs_anew(job: Job) -> float:
    """Epochs that it would train after a stop, if it holds no state; else 0."""
    return 0.0 if job.holds_state else float(job.workload.epochs)


class CurveMemory:
    """Curves by row, for one predictor. A row that is another object is asked for anew."""

    def __init__(self, predictor: Predictor) -> None:
        self._predictor = predictor
        self.known: dict[str, tuple[Job, Curve]] = {}
        self._last: tuple[Sequence[Job], frozenset[int]] = ((), frozenset())  # with their ids
        self._costs: dict[tuple[Workload, tuple[int, ...]], tuple[Costs, Costs, Costs]] = {}

    def curve(self, job: Job) -> Curve:
        entry = self.known.get(job.id)
        if entry is None or entry[0] is not job:
            return self._add([job])[job.id]
        return entry[1]

    def ask_curve(self, job: Job) -> Curve:
        """The curve of a row that is in no snapshot; not kept."""
        key = _key_of(job)
        return self._ask_curves({key: None})[key]

    def learn(self, jobs: Sequence[Job]) -> None:
        """Ask for the curves of the rows that are other objects than last time."""
        last_jobs, last = self._last
        if jobs is last_jobs:
            return
        entries = self.known
        if len(entries) > 2 * len(jobs) + 1_000:
            entries.clear()
            last = frozenset()
        if len(self._costs) > 100_000:
            self._costs.clear()
        rows = dict(zip(map(id, jobs), jobs, strict=True))
        self._add([rows[row] for row in rows if row not in last])
        self._last = jobs, frozenset(rows)

    def _add(self, jobs: Sequence[Job]) -> dict[str, Curve]:
        """One batched question for all new rows; rows of equal workload and progress share it."""
        if not jobs:
            return {}
        shared = list(
            zip(  # by identity, which is fast, of what lives on
                map(id, map(attrgetter("workload"), jobs)),
                map(id, map(attrgetter("progress"), jobs)),
                map(attrgetter("widths"), jobs),
                map(attrgetter("workers"), jobs),
                map(attrgetter("formed"), jobs),
                map(attrgetter("resize_to"), jobs),
                map(_limits_of, jobs),
                strict=True,
            )
        )
        firsts = dict(zip(shared, jobs, strict=True))
        keys = [_key_of(job) for job in firsts.values()]
        curves = self._ask_curves(dict.fromkeys(keys))
        by_row = dict(zip(firsts, [curves[key] for key in keys], strict=True))
        job_curves = list(map(by_row.__getitem__, shared))
        ids = list(map(attrgetter("id"), jobs))
        self.known.update(zip(ids, zip(jobs, job_curves, strict=True), strict=True))
        return dict(zip(ids, job_curves, strict=True))

    def _ask_curves(self, new: Mapping[Key, None]) -> dict[Key, Curve]:
        rows: dict[Ask, int] = {}
        ask_rows = [
            [rows.setdefault(Ask(workload, progress, width), len(rows)) for width in levels]
            for workload, progress, levels, *_ in new
        ]
        table = self._predictor.table(tuple(rows))
        columns = [table.p10_s, table.p50_s, table.mean_s, table.p90_s]
        answers: list[Quantiles] = list(zip(*(column.tolist() for column in columns), strict=True))
        curves: dict[Key, Curve] = {}
        for key, numbers in zip(new, ask_rows, strict=True):
            totals = {width: answers[row] for width, row in zip(key[2], numbers, strict=True)}
            units = {
                width: table.next_unit(row) for width, row in zip(key[2], numbers, strict=True)
            }
            curves[key] = self._curve(key, totals, units, table.sources[numbers[0]])
        return curves

    def _curve(
        self,
        key: Key,
        totals: Mapping[int, Quantiles],
        next_units: Mapping[int, tuple[tuple[float, ...], float]],
        source: Source,
    ) -> Curve:
        workload, progress, levels, widths, (limit_s, active_deadline_s, holds_state, part) = key
        starts, stops, ends = self._cost(workload, levels)
        left = max(0, workload.epochs - progress.epochs_done)
        units = {w: unit_quantiles(totals[w], ends[w], left, next_units[w][0]) for w in levels}
        late = {w: max(next_units[w][1], units[w][ROW["p90"]]) for w in levels}
        if part:
            totals = {w: without_part(totals[w], units[w], part) for w in levels}
            units = {w: without_part(units[w], units[w], part) for w in levels}
        if limit_s < FOREVER:
            link = with_restarts if holds_state else in_one_link
            totals = {
                width: link(totals[width], left, limit_s, starts[width], stops[width])
                for width in levels
            }
            widths = tuple(w for w in widths if totals[w][ROW["p90"]] < FOREVER) or widths
        if active_deadline_s < FOREVER:
            in_time = (
                w for w in widths if start_to_end_s(totals[w], starts[w]) <= active_deadline_s
            )
            widths = tuple(in_time) or widths
        return Curve(
            widths=useful_widths(widths, totals),
            epochs_left=left,
            totals=totals,
            starts=starts,
            stops=stops,
            units=units,
            ends=ends,
            unit_late_s=late,
            source=source,
        )

    def _cost(self, workload: Workload, widths: tuple[int, ...]) -> tuple[Costs, Costs, Costs]:
        """What starts, stops and finishing cost, by width."""
        costs = self._costs.get((workload, widths))
        if costs is None:
            ask = self._predictor
            starts = {width: _quantiles(ask.resume_cost(workload, width)) for width in widths}
            stops = {width: _quantiles(ask.suspend_cost(workload, width)) for width in widths}
            ends = {width: _quantiles(ask.finishing_time(workload, width)) for width in widths}
            costs = self._costs[workload, widths] = (starts, stops, ends)
        return costs


def unit_quantiles(
    totals: Quantiles, ends: Quantiles, left: int, shares: tuple[float, ...]
) -> Quantiles:
    """The next epoch's part of each total: its share of the epochs. (): all have the same length."""
    shares = shares or (1.0 / max(1, left),) * len(ORDER)
    p10_s, p50_s, mean_s, p90_s = (
        FOREVER if total_s == FOREVER else (total_s - end_s) * share if left else 0.0
        for total_s, end_s, share in zip(totals, ends, shares, strict=True)
    )
    return (p10_s, p50_s, mean_s, p90_s)


def without_part(seconds: Quantiles, units: Quantiles, part: float) -> Quantiles:
    """The seconds without this share of the next epoch, which a checkpoint holds."""
    columns = zip(seconds, units, strict=True)
    p10_s, p50_s, mean_s, p90_s = (
        s if s == FOREVER else s - part * unit_s for s, unit_s in columns
    )
    return (p10_s, p50_s, mean_s, p90_s)


def start_to_end_s(totals: Quantiles, starts: Quantiles) -> float:
    """Seconds (P90) of a start that has all the rest to do."""
    return starts[ROW["p90"]] + totals[ROW["p90"]]


def with_restarts(
    totals: Quantiles, left: int, limit_s: float, starts: Quantiles, stops: Quantiles
) -> Quantiles:
    """The seconds of so many epochs with a stop and a start after each link of at most `limit_s`.

    The first start is not among them: who starts the job adds it. A link holds whole epochs; one
    that is longer than the limit never ends.
    """
    columns = zip(totals, starts, stops, strict=True)
    p10_s, p50_s, mean_s, p90_s = (_with_restarts(*column, left, limit_s) for column in columns)
    return (p10_s, p50_s, mean_s, p90_s)


def in_one_link(
    totals: Quantiles, _left: int, limit_s: float, starts: Quantiles, _stops: Quantiles
) -> Quantiles:
    """The seconds of the epochs of a job that holds no state: they fit into one link, or never end."""
    columns = zip(totals, starts, strict=True)
    p10_s, p50_s, mean_s, p90_s = (
        total_s if start_s + total_s <= limit_s else FOREVER for total_s, start_s in columns
    )
    return (p10_s, p50_s, mean_s, p90_s)


def _with_restarts(
    total_s: float, start_s: float, stop_s: float, left: int, limit_s: float
) -> float:
    if not left or not 0.0 < total_s < FOREVER:
        return total_s
    epoch_s, restart_s = total_s / left, start_s + stop_s
    if epoch_s > limit_s:
        return FOREVER
    epochs_per_link = max(1, floor((limit_s - restart_s) / epoch_s + TINY))
    return total_s + (ceil(left / epochs_per_link) - 1) * restart_s


def useful_widths(widths: Sequence[int], totals: Mapping[int, Quantiles]) -> tuple[int, ...]:
    """The widths without those that are no faster (mean) than a smaller one."""
    mean = ROW["mean"]
    useful, best_s = [widths[0]], totals[widths[0]][mean]
    for width in widths[1:]:
        if totals[width][mean] < best_s:
            useful.append(width)
            best_s = totals[width][mean]
    return tuple(useful)


_limits_of = attrgetter("wall_limit_s", "active_deadline_s", "holds_state", "saved_part")


def _key_of(job: Job) -> Key:
    return (job.workload, job.progress, _levels(job), job.widths, _limits_of(job))


def _levels(job: Job) -> tuple[int, ...]:
    """Its widths, and those at which it runs though it no longer may."""
    extra = {job.workers, job.formed, job.resize_to} - {0} - set(job.widths)
    return (*job.widths, *sorted(extra)) if extra else job.widths


def _quantiles(estimate: Estimate) -> Quantiles:
    return (estimate.p10_s, estimate.p50_s, estimate.mean_s, estimate.p90_s)
