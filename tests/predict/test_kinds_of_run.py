"""Kinds of trainings, five runs each with 8 % noise: what is said of the third to the fifth run."""

import random
from collections.abc import Callable
from dataclasses import replace
from statistics import fmean

import pytest

from laxity_profiler.estimate import Progress, Workload
from laxity_profiler.history.history import TrainingRun
from laxity_profiler.history.observations import Epoch, ObservedStop
from laxity_profiler.learning.fit_model import fit_model
from laxity_profiler.learning.run_shapes import collect_shapes
from laxity_profiler.learning.stretches import split_runs
from laxity_profiler.model.model_fit import ModelFit
from laxity_profiler.overhead.costs import fit_costs
from laxity_profiler.predictor.history_predictor import HistoryPredictor

N = 20
WORLDS = 167  # of five runs, of which three are predicted: 501
STAGES = (1, N // 2, N * 9 // 10)  # epochs done
Rule = Callable[[int], float]
RULES: dict[str, Rule] = {
    "equal": lambda _: 1.0,
    "slow first": lambda number: 8.0 if number == 1 else 1.0,
    "validation every 4th": lambda number: 7.0 if number % 4 == 0 else 1.0,
    "validation every 10th": lambda number: 8.0 if number % 10 == 0 else 1.0,
    "growing": lambda number: 0.5 * 1.15**number,
    "shrinking": lambda number: 4.0 * 0.85**number,
    "unfreezing": lambda number: 1.0 if number <= N // 2 else 3.0,
    "one long unit": lambda number: 12.0 if number == 7 else 1.0,
}


def make_run(
    rule: Rule, world: int, number: int, spread: float = 0.0, *, unit_s: float = 1.0
) -> TrainingRun:
    """Epochs differ by 8 %, and runs by `spread`."""
    draw = random.Random(f"{world} {number}")
    own = draw.lognormvariate(0.0, spread) if spread else 1.0
    times = [
        unit_s * own * rule(epoch) * draw.lognormvariate(0.0, 0.08) for epoch in range(1, N + 1)
    ]
    epochs = [Epoch(epoch, 1, took_s, warmup=epoch == 1) for epoch, took_s in enumerate(times, 1)]
    return TrainingRun(f"{world}-{number}", Workload("mlp", N), tuple(epochs))


def learn(known: list[TrainingRun]) -> ModelFit:
    shapes = collect_shapes(known)
    return fit_model("mlp", split_runs(known, shapes=shapes), shapes=shapes.values())


def predict(known: list[TrainingRun], run: TrainingRun, done: int) -> tuple[float, float]:
    """P50 and P90 of what is left after so many epochs, over what they took."""
    fit = learn(known)
    times = [epoch.epoch_s for epoch in run.epochs]
    seen = tuple(times[1:done])
    progress = Progress(done, seen, (1,) * len(seen))
    expected = HistoryPredictor((fit,)).remaining(run.workload, progress, 1)
    took_s = sum(times[done:])
    return expected.p50_s / took_s, expected.p90_s / took_s


def answers_for(
    kind: str, done: int, *, worlds: int, spread: float = 0.0
) -> list[tuple[float, float]]:
    """P50 and P90 over the truth, of the third to the fifth run of so many worlds."""
    answers = []
    for world in range(worlds):
        runs = [make_run(RULES[kind], world, number, spread) for number in range(5)]
        answers += [predict(runs[:number], runs[number], done) for number in range(2, 5)]
    return answers


def share_near(answers: list[tuple[float, float]]) -> float:
    return fmean(abs(p50 - 1.0) <= 0.15 for p50, _ in answers)


def share_kept(answers: list[tuple[float, float]]) -> float:
    return fmean(p90 >= 1.0 for _, p90 in answers)


@pytest.mark.soak
@pytest.mark.parametrize("done", STAGES)
@pytest.mark.parametrize("kind", [*RULES])
def test_runs_of_a_kind_are_predicted_from_the_third_on(kind: str, done: int) -> None:
    answers = answers_for(kind, done, worlds=WORLDS)

    assert share_near(answers) >= (0.98 if done <= N // 2 else 0.9)  # of two epochs each is a half
    assert 0.85 <= share_kept(answers) <= (0.97 if done == 1 else 0.95)
    assert fmean(p90 <= 1.5 for _, p90 in answers) >= 0.98


@pytest.mark.parametrize("spread", [0.0, 0.05, 0.15])
@pytest.mark.parametrize("kind", ["equal", "validation every 4th"])
def test_a_p90_is_neither_too_wide_nor_too_narrow_with_few_runs(kind: str, spread: float) -> None:
    kept = [share_kept(answers_for(kind, done, worlds=60, spread=spread)) for done in STAGES]

    assert min(kept) >= 0.83
    assert fmean(kept) <= 0.96


def rest_after_an_outlier(world: int, done: int) -> tuple[float, float]:
    """In the third of three runs, whose fifth epoch took ten times as long, over the truth."""
    runs = [make_run(RULES["equal"], world, number) for number in range(3)]
    slow = replace(runs[2].epochs[4], epoch_s=10.0 * runs[2].epochs[4].epoch_s)
    epochs = (*runs[2].epochs[:4], slow, *runs[2].epochs[5:])
    return predict(runs[:2], replace(runs[2], epochs=epochs), done)


@pytest.mark.parametrize("done", [5, N // 2, N * 9 // 10])
def test_one_outlier_costs_its_own_length_and_p90_counts_one_more_at_most(done: int) -> None:
    answers = [rest_after_an_outlier(world, done) for world in range(150)]
    one_more = 9.0 / (N - done) if done <= N // 2 else 0.0

    assert share_near(answers) >= 0.95
    assert share_kept(answers) >= 0.85
    assert fmean(p90 <= 1.3 + one_more for _, p90 in answers) >= 0.95


def finished(world: int, known: int, done: int) -> tuple[float, float]:
    """Runs whose end takes twice as long as their epochs: the rest over the truth."""
    runs = [make_run(RULES["equal"], world, number) for number in range(known + 1)]
    draw = random.Random(f"finishing {world}")
    *past, end_s = [2.0 * N * draw.lognormvariate(0.0, 0.08) for _ in runs]
    costs = fit_costs([ObservedStop("mlp", "finishing", 1, seconds, None) for seconds in past])
    fit = fit_model("mlp", split_runs(runs[:known]))
    times = [epoch.epoch_s for epoch in runs[-1].epochs]
    seen = tuple(times[1:done])
    progress = Progress(done, seen, (1,) * len(seen))
    expected = HistoryPredictor((fit,), costs).remaining(runs[-1].workload, progress, 1)
    took_s = sum(times[done:]) + end_s
    return expected.p50_s / took_s, expected.p90_s / took_s


@pytest.mark.parametrize("done", [*STAGES, N])
def test_a_long_finish_is_part_of_what_is_left(done: int) -> None:
    answers = [finished(world, known, done) for world in range(60) for known in (2, 3, 4)]

    assert share_near(answers) >= 0.85
    assert share_kept(answers) >= 0.85
    assert fmean(p90 <= 1.5 for _, p90 in answers) >= 0.9
