"""A live service's decisions, read from its journal, as choices that a net can imitate (DL2, 6.10).

A plan holds what can be done at once. The widths that it was heading for are those once running jobs
have shrunk, decided by the policy of the journal (`settle_widths`, our own); the choices that lead to
them are made as of a teacher in the simulator. The last cycles are held out: on them a net is asked how
often it is right, and by replay what its widths would have trained.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from laxity.instants import format_rfc3339
from laxity_lab.policy_training.teacher_samples import Choice, choices_of_widths, share_right
from laxity_lab.traces.throughput_tables import ThroughputTable
from laxity_profiler.estimate import Predictor
from laxity_profiler.predictor.history_predictor import HistoryPredictor
from laxity_scheduler.allocation.surplus import budget_of_jobs, resizable_jobs
from laxity_scheduler.engine import DecidedCycle
from laxity_scheduler.frame.remaining import Forecasts
from laxity_scheduler.inflight import with_follow_ups
from laxity_scheduler.learned.scoring_net import ScoringNet
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.job import Job
from laxity_scheduler.plan import Policy
from laxity_scheduler.policies.learned import decide_by
from laxity_scheduler.policies.registry import UnknownPolicyError
from laxity_scheduler.service.learned_models import LearnedModels, ModelAwayError, ModelRefusedError
from laxity_scheduler.store.journal import LoadPredictor, iter_decided
from laxity_scheduler.store.store import Store
from laxity_scheduler.store.tables import CycleRow
from laxity_scheduler.width_comparison import (
    WidthTotals,
    compare_widths,
    settle_widths,
)

HELD_OUT: Final = 0.2  # of the cycles, the last ones


class JournalError(ValueError):
    """A journal cannot be learned from: why, and what to do."""


@dataclass(frozen=True, slots=True)
class JournalSource:
    """A service's journal. `models` keeps the learned policies that decided in it."""

    store: Store
    models: LearnedModels
    load: LoadPredictor = HistoryPredictor.from_json

    def split(self) -> tuple[int, int]:
        """The first cycle, and the first one that is held out."""
        row = next(iter(self.store.iter_cycles(0)), None)
        first, last = (0, -1) if row is None else (row.cycle, self.store.last_cycle())
        return first, last + 1 - int(HELD_OUT * (last + 1 - first))

    def decided_at(self, cycle: int) -> float:
        """When this cycle of the journal was decided, as POSIX seconds. JournalError if it is missing."""
        row = self.store.load_row(CycleRow, cycle)
        if row is None:
            raise JournalError(f"cycle {cycle} is not in the journal")
        return row.at

    def iter_trusted(self, first: int, last: int) -> Iterator[DecidedCycle]:
        """The same without the cycles of learned policies that the guard has caught."""
        caught = self.store.load_fallback_policies()
        cycles = self.iter_cycles(first, last)
        return (cycle for cycle in cycles if cycle.policy not in caught)

    def iter_cycles(self, first: int, last: int | None = None) -> Iterator[DecidedCycle]:
        """JournalError if a policy that decided cannot be found; ReplayError if a cycle is damaged."""
        policies = partial(_find_policy, models=self.models)
        return iter_decided(self.store, policies, self.load, first=first, last=last)


@dataclass(frozen=True, slots=True)
class HeldOutFigures:
    """How a net does on the cycles held out: on how many choices, the share right, and its gain."""

    choices: int
    right: float
    totals: WidthTotals


def open_source(source: str, tracking_url: str = "") -> JournalSource:
    """The journal in a service's folder, in a SQLite file, or at the URL of a store.

    Policies that decided in it are fetched from the MLflow at `tracking_url` if they are not beside
    it. JournalError if there is none. StoreError if it cannot be read.
    """
    url = source
    if "://" not in source:
        path = Path(source)
        path = path / "laxity.db" if path.is_dir() else path
        url = f"sqlite:///{path}"
    file = Path(url.removeprefix("sqlite:///"))
    if url.startswith("sqlite:///") and not file.exists():
        raise JournalError(f"there is no journal at {file}: name a service's folder or its store")
    store = Store.open(url)
    return JournalSource(store, LearnedModels(tracking_url, store, any_origin=True))


def collect_journal(cycles: Iterator[DecidedCycle], *, seed: int) -> list[Choice]:
    """Choices that lead to the widths decided; `seed` draws which of a cycle are kept."""
    draw, memory = np.random.default_rng(seed), dict[str, Any]()
    choices = []
    for cycle in cycles:
        state = replace(cycle.state, memory=memory)
        if any(len(job.widths) > 1 for job in resizable_jobs(state)):
            decide = with_follow_ups(cycle.decide)
            widths = settle_widths(state, decide, cycle.predictor, cycle.plan)
            choices += _choices_of(state, cycle.predictor, widths, draw)
    return choices


def read_curves(cycles: Iterator[DecidedCycle]) -> dict[tuple[str, int], ThroughputTable]:
    """Predicted epochs/s of the elastic jobs, as tables to simulate from; the latest of each model.

    Their trainings have as many epochs as the journal's jobs of that model.
    """
    latest: dict[tuple[str, int], tuple[Job, DecidedCycle]] = {}
    epochs: dict[tuple[str, int], dict[tuple[str, float], int]] = {}
    for cycle in cycles:
        for job in cycle.state.jobs:
            if len(job.widths) > 1:
                key = (job.workload.model, job.workload.batch_size or 0)
                latest[key] = (job, cycle)
                epochs.setdefault(key, {})[job.id, job.submitted_at] = job.workload.epochs
    tables = {}
    for key, (job, cycle) in latest.items():
        curve = Forecasts(cycle.state, cycle.predictor).curve(job)
        epochs_s = [curve.epoch_s(width, "mean") for width in curve.widths]
        if all(0.0 < epoch_s < math.inf for epoch_s in epochs_s):
            gpus = tuple([width * job.gpus_per_worker for width in curve.widths])
            speeds = tuple([1.0 / epoch_s for epoch_s in epochs_s])
            tables[key] = ThroughputTable(gpus, speeds, tuple(map(float, epochs[key].values())))
    return tables


def measure_net(net: ScoringNet, source: JournalSource, *, seed: int) -> HeldOutFigures:
    """The net on the cycles that are held out."""
    totals, memory = WidthTotals(), dict[str, Any]()
    draw, choices, decide = np.random.default_rng(seed), list[Choice](), decide_by(net)
    for cycle in source.iter_cycles(source.split()[1]):
        compared = compare_widths(decide, cycle, memory)
        totals.add(cycle.state.now, compared)
        choices += _choices_of(cycle.state, cycle.predictor, compared.decided, draw)
    return HeldOutFigures(len(choices), share_right(net, choices), totals)


def _choices_of(
    state: ClusterState,
    predictor: Predictor,
    widths: Mapping[str, int],
    draw: np.random.Generator,
) -> list[Choice]:
    jobs, forecasts = resizable_jobs(state), Forecasts(state, predictor)
    free_gpus = budget_of_jobs(state, jobs).whole
    return choices_of_widths(state, jobs, forecasts, widths, free_gpus=free_gpus, draw=draw)


def _find_policy(name: str, models: LearnedModels) -> Policy:
    try:
        return models.find_policy(name)
    except (UnknownPolicyError, ModelAwayError, ModelRefusedError) as error:
        raise JournalError(f"{name} decided in the journal: {error}") from error


LEAST_CHOICES: Final = 20
RATE_FROM_START: Final = 0.001  # of a net that has learned before
NOTHING_TO_LEARN: Final = (
    "the journal has {choices} choices among widths in {cycles} cycles, and {least} are needed: "
    "give jobs several widths (workers 1..8), and keep more cycles (laxity up --kept-cycles)"
)


@dataclass(frozen=True, slots=True)
class JournalImitation:
    """A net, and on how many choices of which cycles it learned, decided from when to when."""

    net: ScoringNet
    choices: int
    first: int
    last: int
    first_at: float
    last_at: float

    @property
    def cycles_text(self) -> str:
        """Which cycles, for people: numbers begin anew in another service's journal, dates do not."""
        instants = (format_rfc3339(at, "seconds") for at in (self.first_at, self.last_at))
        return f"cycles {self.first} to {self.last} ({' to '.join(instants)})"


def learn_from_journal(
    source: JournalSource,
    start: ScoringNet | None = None,
    *,
    seed: int,
    updates: int,
    tell: Callable[[int], None] = lambda _: None,
) -> JournalImitation:
    """Learn from all but the last cycles; a net given goes on from its weights.

    JournalError if there is too little to learn from; errors as of `iter_cycles`.
    """
    from laxity_lab.policy_training import torch_net

    first, cut = source.split()
    choices = collect_journal(source.iter_trusted(first, cut - 1), seed=seed)
    if len(choices) < LEAST_CHOICES:
        raise JournalError(
            NOTHING_TO_LEARN.format(choices=len(choices), cycles=cut - first, least=LEAST_CHOICES)
        )
    net = torch_net.make_net(seed) if start is None else torch_net.write_net(start)
    rate = torch_net.RATE if start is None else RATE_FROM_START
    torch_net.imitate(net, choices, updates=updates, seed=seed, rate=rate, tell=tell)
    decided_at = source.decided_at(first), source.decided_at(cut - 1)
    return JournalImitation(torch_net.read_net(net), len(choices), first, cut - 1, *decided_at)
