"""A P90 is kept by nine finishes of ten: before the start and at half the run, in several worlds."""

import random

import pytest

from laxity_profiler.estimate import NO_PROGRESS, Progress, Workload
from laxity_profiler.history.report_fold import EPOCHS_KEPT
from laxity_profiler.learning.fit_model import fit_model
from laxity_profiler.learning.stretches import Stretch
from laxity_profiler.model.calibration import (
    Coverage,
    adapt_level,
    factors_of_scores,
    measure_coverage,
    score_quantiles,
    wilson_interval,
)
from laxity_profiler.model.model_fit import WorkloadSetting
from laxity_profiler.predictor.history_predictor import HistoryPredictor
from tests.support.runs import World

EPOCHS = 40
WORLDS = {
    "steady": World(11),
    "epochs resemble their neighbours": World(12, memory=0.6),
    "runs are nearly equal": World(13, spread=0.01, noise=0.02),
    "runs differ widely": World(14, spread=0.3, noise=0.2),
    "the second half is 30 % slower": World(15, slower_at_half=0.3),
}


def kept(world: World, *, histories: int, finishes: int, runs: int = 30) -> tuple[float, float]:
    """Shares of finishes within the P90 said at the start, and at half the run."""
    start = half = 0
    for _ in range(histories):
        predictor = world.predictor(runs, epochs=EPOCHS)
        for _ in range(finishes):
            epochs = world.run(EPOCHS)
            start += sum(epochs) <= predictor.remaining(what(), NO_PROGRESS, 2).p90_s
            rest_s = sum(epochs[EPOCHS // 2 :])
            half += rest_s <= predictor.remaining(what(), at_half(epochs), 2).p90_s
    n = histories * finishes
    return start / n, half / n


def what() -> Workload:
    return Workload("mlp", EPOCHS)


def at_half(epochs: tuple[float, ...]) -> Progress:
    done = epochs[: EPOCHS // 2][-EPOCHS_KEPT:]
    return Progress(EPOCHS // 2, done, (2,) * len(done))


@pytest.mark.parametrize("name", WORLDS)
def test_a_p90_is_kept_by_nine_of_ten(name: str) -> None:
    start, half = kept(WORLDS[name], histories=80, finishes=5)

    assert 0.86 <= start <= 0.94
    assert 0.86 <= half <= 0.94


@pytest.mark.soak
def test_a_p90_is_kept_by_nine_of_ten_of_five_thousand() -> None:
    start, half = kept(World(21), histories=5_000, finishes=1)

    print(f"coverage of P90 over 5000: start {start:.4f}, half {half:.4f}")  # noqa: T201
    assert 0.89 <= start <= 0.91
    assert 0.89 <= half <= 0.91


def test_a_few_runs_give_a_wider_p90_than_many() -> None:
    few = World(31).predictor(2, epochs=EPOCHS).remaining(what(), NO_PROGRESS, 2)
    many = World(31).predictor(60, epochs=EPOCHS).remaining(what(), NO_PROGRESS, 2)

    assert few.p90_s / few.p50_s > many.p90_s / many.p50_s > 1.05


def test_the_quantiles_of_many_scores_are_those_of_their_distribution() -> None:
    drawn = random.Random(5)
    scores = [drawn.random() for _ in range(3_000)]

    assert score_quantiles(scores, (0.1, 0.5, 0.9)) == pytest.approx((0.1, 0.5, 0.9), abs=0.04)


def test_old_scores_weigh_less_than_new_ones() -> None:
    before, after = [0.0] * 2_000, [1.0] * 500

    assert score_quantiles(before + after, (0.5,)) == (1.0,)


def test_without_scores_the_assumed_ones_count() -> None:
    assumed = factors_of_scores([])

    assert assumed.z10 == pytest.approx(-assumed.z90)
    assert 1.28 < assumed.z90 < 2.0


def test_a_level_that_misses_rises_and_one_that_never_misses_falls() -> None:
    assert adapt_level([False] * 10) > 0.9 > adapt_level([True] * 100)
    assert 0.8 <= adapt_level([True] * 100_000) <= adapt_level([False] * 100_000) <= 0.985


def test_coverage_counts_what_was_kept_by_stage() -> None:
    rows = [("start", 1.0, 2.0, 3.0, actual) for actual in (0.5, 1.5, 2.5, 3.5)]

    assert measure_coverage(rows) == (Coverage("start", 4, 0.25, 0.5, 0.75),)
    low, high = wilson_interval(0.75, 4)
    assert 0.0 < low < 0.75 < high < 1.0


@pytest.mark.parametrize("runs", [1, 2, 3, 5])
def test_with_few_runs_a_p90_is_kept_by_being_wide(runs: int) -> None:
    start, half = kept(World(40 + runs), histories=80, finishes=5, runs=runs)

    assert start >= 0.85
    assert half >= 0.85


def after_a_slower_node(seen: int, *, finishes: int = 300) -> float:
    """Share of finishes within the P90 said at the start, so many runs after all became slower."""
    before, held = World(51), 0
    slower = World(52, epoch_s=13.0)
    for _ in range(finishes // 5):
        found = [Stretch(WorkloadSetting(), 2, before.run(EPOCHS)) for _ in range(30)]
        found += [Stretch(WorkloadSetting(), 2, slower.run(EPOCHS)) for _ in range(seen)]
        predictor = HistoryPredictor((fit_model("mlp", found),))
        said = predictor.remaining(what(), NO_PROGRESS, 2).p90_s
        held += sum(sum(slower.run(EPOCHS)) <= said for _ in range(5))
    return held / finishes


def test_a_slower_node_is_followed_within_a_few_runs() -> None:
    at_once, soon, later = (after_a_slower_node(seen) for seen in (0, 4, 12))

    assert at_once < 0.3  # nobody could know
    assert soon > 0.75
    assert 0.85 <= later <= 0.97
