"""A machine whose level moves from run to run: what is said of the next run follows it."""

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

import pytest

from laxity_profiler.estimate import NO_PROGRESS, Workload
from laxity_profiler.history.history import History
from laxity_profiler.learning.fit_model import fit_model
from laxity_profiler.learning.learner import Learner
from laxity_profiler.learning.stretches import Stretch
from laxity_profiler.model.calibration import adapt_level
from laxity_profiler.model.drift import Drift, drift_of, places
from laxity_profiler.model.model_fit import WorkloadSetting
from laxity_profiler.predictor.history_predictor import HistoryPredictor
from tests.support.runs import START_AT, World, trained, workload

EPOCHS = 10
SPREAD = 0.08
Levels = Callable[[random.Random, int], Iterator[float]]


def still(_: random.Random, n: int) -> Iterator[float]:
    return iter([0.0] * n)


def walk(drawn: random.Random, n: int) -> Iterator[float]:
    """A random walk of the level's logarithm."""
    at = 0.0
    for _ in range(n):
        at += drawn.gauss(0.0, 0.06)
        yield at


def blips(_: random.Random, n: int) -> Iterator[float]:
    """Of sixteen runs the last four are 1.6 times as slow."""
    return (math.log(1.6) if run % 16 >= 12 else 0.0 for run in range(n))


@dataclass(frozen=True)
class Kept:
    """Shares of runs within their P90, and how far that was from P50."""

    share: float
    width: float


def judged(path: Levels, *, seeds: Sequence[int], taught: int = 20, judged: int = 50) -> Kept:
    """Fitted again after each surprise; each run predicted from those before it."""
    rows = [row for seed in seeds for row in _rows(path, seed, taught, judged)]
    return Kept(fmean(hit for hit, _ in rows), fmean(width for _, width in rows))


def _rows(path: Levels, seed: int, taught: int, judged: int) -> Iterator[tuple[bool, float]]:
    drawn = random.Random(seed)
    found: list[Stretch] = []
    hits: list[bool] = []
    for run, level in enumerate(path(drawn, taught + judged)):
        world = World(1_000 * seed + run, epoch_s=10.0 * math.exp(level), spread=SPREAD)
        epochs = world.run(EPOCHS)
        if run >= taught:
            fit = fit_model("mlp", found, level=adapt_level(hits))
            said = HistoryPredictor((fit,)).remaining(Workload("mlp", EPOCHS), NO_PROGRESS, 2)
            hits.append(sum(epochs) <= said.p90_s)
            yield hits[-1], said.p90_s / said.p50_s
        found.append(Stretch(WorkloadSetting(), 2, epochs))


@pytest.mark.parametrize(
    ("path", "widest"),
    [pytest.param(still, 1.14, id="still"), pytest.param(walk, 1.25, id="random walk"),
     pytest.param(blips, 1.40, id="slower at times")],
)  # fmt: skip
def test_a_p90_is_kept_while_the_level_moves_and_stays_narrow(path: Levels, widest: float) -> None:
    kept = judged(path, seeds=range(6))

    assert 0.86 <= kept.share <= 0.95
    assert kept.width < widest


def sequence(seed: int, n: int, *, step: float) -> list[tuple[float, int]]:
    drawn, level, found = random.Random(seed), 0.0, []
    for _ in range(n):
        level += drawn.gauss(0.0, step)
        found.append((10.0 * math.exp(level + drawn.gauss(0.0, SPREAD)), EPOCHS))
    return found


def test_no_drift_is_seen_where_there_is_none() -> None:
    seen = [drift_of([sequence(seed, 30, step=0.0)], spread2=SPREAD**2, noise2=0.003) for seed in range(60)]  # fmt: skip

    assert sum(one.step2 > 0.0 for one in seen) <= 6


def test_a_drift_is_seen_and_told_from_what_runs_differ() -> None:
    sequences = [sequence(seed, 60, step=0.06) for seed in range(4)]

    found = drift_of(sequences, spread2=0.05, noise2=0.003)

    assert 0.03 < math.sqrt(found.step2) < 0.12
    assert found.spread2 < 0.02


def test_a_few_runs_say_nothing_of_drift() -> None:
    assert drift_of([sequence(1, 7, step=0.5)], spread2=0.2, noise2=0.003) == Drift(0.2)


def test_a_moving_level_is_followed_and_a_still_one_averaged() -> None:
    runs = [(10.0, EPOCHS)] * 10 + [(20.0, EPOCHS)] * 5

    *_, moving = places(runs, Drift(0.005, 0.01), 0.003)
    *_, at_rest = places(runs, Drift(0.005), 0.003)

    assert moving.level_s > 19.0
    assert at_rest.level_s == pytest.approx(fmean(mean_s for mean_s, _ in runs))


def surprised(history: History, learner: Learner, actual_s: float) -> str:
    """A finish of so many seconds where 100 were predicted; the version after one more epoch."""
    before = learner.predictor()
    said = before.remaining(workload(), NO_PROGRESS, 1)
    learner.note_prediction(
        "late", workload(), stage="start", at=START_AT, estimate=said, version=before.version
    )
    learner.observe_finish("late", at=START_AT + actual_s)
    trained(history, "late", epoch_s=[10.0, 10.0])
    return learner.predictor().version


@pytest.mark.parametrize(("actual_s", "is_new"), [(300.0, True), (100.0, False)])
def test_a_finish_outside_of_what_was_said_is_learned_from_at_once(
    actual_s: float, *, is_new: bool, history: History
) -> None:
    for run in range(5):
        trained(history, f"u-{run}", epoch_s=World(run).run(12))
    learner = Learner(history)
    before = learner.predictor().version

    assert (surprised(history, learner, actual_s) != before) is is_new
