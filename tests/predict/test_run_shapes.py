"""Epochs that differ by a rule are known by their number; noise is what is left between runs."""

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean

import pytest

from laxity_profiler.estimate import Ask, Estimate, Progress, Workload
from laxity_profiler.history.history import TrainingRun
from laxity_profiler.history.observations import Epoch
from laxity_profiler.learning.fit_model import fit_model
from laxity_profiler.learning.run_shapes import collect_shapes
from laxity_profiler.learning.stretches import split_runs
from laxity_profiler.model.model_fit import ModelFit
from laxity_profiler.predictor.history_predictor import HistoryPredictor

N = 20
Rule = Callable[[int], float]
RULES: dict[str, Rule] = {
    "equal": lambda _: 1.0,
    "every fifth": lambda number: 7.0 if number % 5 == 0 else 1.0,
    "every tenth": lambda number: 16.0 if number % 10 == 0 else 1.0,
    "every tenth from the first": lambda number: 16.0 if number % 10 == 1 else 1.0,
    "curriculum": lambda number: 0.5 * 1.15**number,
    "one long": lambda number: 12.0 if number == 7 else 1.0,
    "shrinking": lambda number: 4.0 * 0.85**number,
}


def odd_at(place: int) -> Rule:
    return lambda number: 16.0 if number == place else 1.0


def run_of(rule: Rule, seed: int, *, epochs: int = N, noise: float = 0.05) -> TrainingRun:
    """A run whose epochs follow a rule; runs differ by 5 %, epochs by `noise`."""
    draw = random.Random(f"{seed} {epochs}")
    own = draw.lognormvariate(0.0, 0.05 if noise else 0.0)
    times = [own * rule(n) * draw.lognormvariate(0.0, noise) for n in range(1, epochs + 1)]
    rows = [Epoch(n, 1, seconds, warmup=n == 1) for n, seconds in enumerate(times, 1)]
    return TrainingRun(f"run-{seed}", Workload("mlp", epochs), tuple(rows))


def learned(runs: Sequence[TrainingRun]) -> ModelFit:
    shapes = collect_shapes(runs)
    return fit_model("mlp", split_runs(runs, shapes=shapes), shapes=shapes.values())


def rest_of(run: TrainingRun, done: int, fit: ModelFit) -> tuple[Estimate, float]:
    """What is expected of its epochs after these, and what they took, without a warm-up.

    What the first one takes beyond the second is one.
    """
    times = [epoch.epoch_s for epoch in run.epochs]
    seen = tuple(times[1:done])
    progress = Progress(done, seen, (1,) * len(seen))
    estimate = HistoryPredictor((fit,)).remaining(run.workload, progress, 1)
    return estimate, sum([min(times[:2]), *times[1:]][done:])


@pytest.mark.parametrize(
    "name", ["every fifth", "every tenth", "every tenth from the first", "curriculum"]
)
def test_a_rule_is_known_from_the_second_run_on(name: str) -> None:
    fit = learned([run_of(RULES[name], 0, noise=0.0)])

    for done in (0, 4, 10, 15):
        estimate, took_s = rest_of(run_of(RULES[name], 1, noise=0.0), done, fit)
        assert estimate.p50_s == pytest.approx(took_s, rel=0.1)
        assert took_s <= estimate.p90_s < 1.6 * took_s


@pytest.mark.parametrize("epochs", [4, 5, 12, 20, 21])
def test_one_odd_epoch_of_one_run_is_no_rule(epochs: int) -> None:
    for place in range(2, epochs + 1):
        run = run_of(odd_at(place), 0, epochs=epochs, noise=0.0)

        assert not learned([run]).shapes, f"epoch {place} of {epochs}"


def test_a_rule_is_known_from_a_run_that_was_stopped_often() -> None:
    whole = run_of(RULES["every fifth"], 0, noise=0.0)
    rows = tuple(replace(row, warmup=row.epoch in (1, 3, 4, 8, 17)) for row in whole.epochs)
    alternating = run_of(RULES["every fifth"], 1, epochs=4)
    few = tuple(replace(row, warmup=row.epoch in (1, 3)) for row in alternating.epochs)

    shape = learned([replace(whole, epochs=rows)]).shapes[0]

    assert shape.ratio(20) / shape.ratio(19) == pytest.approx(7.0, rel=0.1)
    assert not learned([replace(alternating, epochs=few)]).shapes


@pytest.mark.parametrize("name", [*RULES])
def test_any_rule_is_known_after_a_few_runs(name: str) -> None:
    fit = learned([run_of(RULES[name], seed, noise=0.0) for seed in range(4)])

    for done in (0, 6, 7, 10, 15, 19):
        estimate, took_s = rest_of(run_of(RULES[name], 9, noise=0.0), done, fit)
        assert estimate.p50_s == pytest.approx(took_s, rel=0.1)
        assert took_s <= estimate.p90_s < 1.3 * took_s


@pytest.mark.parametrize("name", [*RULES])
def test_a_p90_is_kept_by_nine_of_ten_runs_that_follow_a_rule(name: str) -> None:
    kept: dict[int, list[bool]] = {1: [], N // 2: []}
    for seed in range(30):
        runs = [run_of(RULES[name], 1000 * seed + n) for n in range(40)]
        fit = learned(runs[:30])
        for run in runs[30:]:
            for done, hits in kept.items():
                estimate, took_s = rest_of(run, done, fit)
                hits.append(took_s <= estimate.p90_s)

    assert [fmean(hits) for hits in kept.values()] == pytest.approx([0.9, 0.9], abs=0.04)


def test_noise_is_no_rule() -> None:
    for seed in range(20):
        fit = learned([run_of(RULES["equal"], 100 * seed + n, noise=0.2) for n in range(6)])
        spread = [ratio for shape in fit.shapes for ratio in shape.ratios]
        assert all(0.75 < ratio < 1.35 for ratio in spread)
        assert fit.noise2 == pytest.approx(0.04, rel=0.5)


def test_a_run_of_another_length_has_equal_epochs_and_a_wide_interval() -> None:
    fit = learned([run_of(RULES["every fifth"], seed) for seed in range(6)])

    known, _ = rest_of(run_of(RULES["every fifth"], 7), 0, fit)
    longer, _ = rest_of(run_of(RULES["every fifth"], 7, epochs=2 * N), 0, fit)

    assert longer.p50_s == pytest.approx(2 * known.p50_s, rel=0.05)
    assert longer.p90_s / longer.p50_s > 1.1 * known.p90_s / known.p50_s


def test_the_next_epoch_is_expected_to_take_what_its_place_says() -> None:
    fit = learned([run_of(RULES["every fifth"], seed, noise=0.0) for seed in range(4)])
    predictor = HistoryPredictor((fit,))

    table = predictor.table([_ask(done) for done in (3, 4, 5)])
    shares = [table.next_unit(row)[0][1] * table[row].p50_s for row in range(3)]

    assert shares == pytest.approx([1.0, 7.0, 1.0], rel=0.05)


def test_shapes_survive_json_and_an_older_laxity_had_none() -> None:
    fit = learned([run_of(RULES["curriculum"], seed) for seed in range(4)])
    written = json.loads(json.dumps(fit.to_json()))

    assert ModelFit.from_json(written) == fit
    del written["shapes"], written["plain_noise2"]
    assert ModelFit.from_json(written).shapes == ()


def _ask(done: int) -> Ask:
    return Ask(Workload("mlp", N), Progress(done), 1)
