"""Parameters of runs: which matter to the time, and what a value that no run had does to a prediction."""

import json
import random
from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from laxity_profiler.estimate import NO_PROGRESS, Progress, Workload, plain_inputs
from laxity_profiler.history.history import TrainingRun
from laxity_profiler.history.observations import Epoch
from laxity_profiler.learning.fit_inputs import fit_inputs, run_lengths
from laxity_profiler.learning.fit_model import fit_model
from laxity_profiler.learning.stretches import split_runs
from laxity_profiler.predictor.history_predictor import HistoryPredictor

EPOCHS = 6


def workload(parameters: Mapping[str, Any], **fields: Any) -> Workload:
    return Workload("team::m", EPOCHS, inputs=plain_inputs(parameters), **fields)


def run(number: int, parameters: Mapping[str, Any], epoch_s: float, **fields: Any) -> TrainingRun:
    epochs = tuple(Epoch(epoch, 1, epoch_s, at=float(epoch)) for epoch in range(1, EPOCHS + 1))
    return TrainingRun(f"u{number}", workload(parameters, **fields), epochs, EPOCHS)


def predictor_of(*runs: TrainingRun) -> HistoryPredictor:
    fit = fit_model("team::m", split_runs(runs), inputs=fit_inputs(runs))
    return HistoryPredictor((HistoryPredictor.from_json(_copied((fit,))).models[0],))


def _copied(models: Any) -> Any:
    return json.loads(json.dumps(HistoryPredictor(models).to_json()))


def times(predictor: HistoryPredictor, asked: Workload) -> tuple[float, float]:
    """P50 and P90 of an epoch, in seconds."""
    expected = predictor.epoch_time(asked, 1)
    return expected.p50_s, expected.p90_s


def effective(*runs: TrainingRun) -> list[str]:
    return [fit.name for fit in fit_inputs(runs) if fit.has_effect]


def test_a_count_that_no_run_had_widens_p90_and_is_told() -> None:
    predictor = predictor_of(*(run(n, {"n": 1000}, 1.0) for n in range(3)))

    usual, wide = (times(predictor, workload({"n": n})) for n in (1000, 10_000))

    assert usual[1] < 1.5
    assert wide[0] == pytest.approx(1.0, rel=0.05)
    assert wide[1] > 9.0
    assert predictor.notes(workload({"n": 10_000})) == "n=10000; all 3 runs had n=1000"
    assert predictor.notes(workload({"n": 1000})) == ""


@pytest.mark.parametrize(
    ("known", "asked"),
    [
        pytest.param(0.1, 0.01, id="a rate"),
        pytest.param(1000, 100, id="a smaller count"),
        pytest.param("adam", "sgd", id="a text"),
        pytest.param(False, True, id="a truth value"),
    ],
)
def test_another_value_widens_as_an_unseen_relative_does(known: Any, asked: Any) -> None:
    predictor = predictor_of(*(run(n, {"x": known}, 1.0) for n in range(3)))

    assert 2.0 < times(predictor, workload({"x": asked}))[1] < 3.5


def test_parameters_that_varied_without_effect_widen_nothing() -> None:
    draw = random.Random(3)
    runs = [
        run(n, {"seed": n, "day": f"2026-11-{n:02}", "lr": 10.0**-n}, draw.gauss(1.0, 0.03))
        for n in range(1, 5)
    ]
    predictor = predictor_of(*runs)
    asked = workload({"seed": 99, "day": "2026-12-24", "lr": 0.5})

    assert effective(*runs) == []
    assert times(predictor, asked) == times(predictor, runs[0].workload)
    assert predictor.notes(asked) == ""


def test_the_parameter_that_explains_the_time_parts_the_runs() -> None:
    runs = [run(n, {"n": 1000, "seed": n}, 1.0) for n in range(3)]
    runs += [run(n, {"n": 8000, "seed": n}, 8.0) for n in range(3, 6)]
    predictor = predictor_of(*runs)

    assert effective(*runs) == ["n"]
    for n, epoch_s in ((1000, 1.0), (8000, 8.0)):
        p50_s, p90_s = times(predictor, workload({"n": n, "seed": 7}))
        assert p50_s == pytest.approx(epoch_s, rel=0.05)
        assert p90_s < 1.5 * epoch_s
    assert times(predictor, workload({"n": 16_000, "seed": 7}))[1] > 12.0
    assert "n=16000; all 6 runs had n=1000 or 8000" in predictor.notes(workload({"n": 16_000}))


def test_two_unlike_runs_leave_open_which_parameter_it_was() -> None:
    runs = [run(1, {"n": 1000, "seed": 1}, 1.0), run(2, {"n": 8000, "seed": 2}, 8.0)]

    assert effective(*runs) == ["n", "seed"]
    assert effective(*runs, run(3, {"n": 1000, "seed": 3}, 1.0)) == ["n"]


def test_a_machine_that_becomes_slower_gives_no_seed_an_effect() -> None:
    runs = [run(n, {"seed": n}, 1.0 if n < 5 else 3.0) for n in range(10)]

    assert effective(*runs) == []


def test_a_parameter_that_samples_follow_scales_the_time_and_widens_little() -> None:
    predictor = predictor_of(*(run(n, {"n": 1000}, 1.0, samples=800) for n in range(3)))

    declared = times(predictor, workload({"n": 10_000}, samples=8000))
    guessed = times(predictor, workload({"n": 10_000}))
    repeated = times(predictor, workload({"n": 1000}))

    assert declared[0] == pytest.approx(10.0, rel=0.05)
    assert declared[1] < 25.0
    assert guessed[0] == pytest.approx(10.0, rel=0.05)
    assert declared[1] < guessed[1] < 45.0
    assert repeated == times(predictor, workload({"n": 1000}, samples=800))
    assert predictor.notes(workload({"n": 10_000}, samples=8000)) == "scaled from 800 samples"


def test_own_epochs_outweigh_a_widened_prior() -> None:
    predictor = predictor_of(*(run(n, {"n": 1000}, 1.0) for n in range(3)))
    asked = workload({"n": 10_000})

    before = predictor.remaining(asked, NO_PROGRESS, 1)
    after = predictor.remaining(asked, Progress(2, (10.0, 10.0), (1, 1)), 1)

    assert before.p50_s < 10.0
    assert after.p50_s == pytest.approx(40.0, rel=0.1)


def test_only_plain_values_of_parameters_are_kept() -> None:
    given = {
        "n": 3,
        "net": {"width": 64, "deep": [1, 2]},
        "name": "a",
        "long": "x" * 99,
        "no": None,
    }

    assert plain_inputs(given) == (("n", "3"), ("name", '"a"'), ("net.width", "64"))


def lengths_of(*epochs: int) -> HistoryPredictor:
    runs = [
        replace(run(number, {}, 1.0), workload=replace(workload({}), epochs=declared))
        for number, declared in enumerate(epochs)
    ]
    fit = fit_model("team::m", split_runs(runs), lengths=run_lengths(runs))
    return HistoryPredictor((HistoryPredictor.from_json(_copied((fit,))).models[0],))


@pytest.mark.parametrize(
    ("declared", "note"),
    [
        pytest.param((10, 10, 10), "epochs=40; all 3 runs had 10", id="three alike"),
        pytest.param((10,), "epochs=40; the one run had 10", id="one run"),
        pytest.param((20, 10), "epochs=40; both runs had 10 or 20", id="two lengths"),
        pytest.param((10, 40, 10), "", id="one had as many"),
    ],
)
def test_a_number_of_epochs_that_no_run_had_is_told(declared: tuple[int, ...], note: str) -> None:
    predictor = lengths_of(*declared)

    assert predictor.notes(replace(workload({}), epochs=40)) == note


@pytest.mark.parametrize(
    ("known", "asked", "note"),
    [
        pytest.param(
            {"samples": 1000}, {"samples": 5000}, "scaled from 1000 samples", id="samples"
        ),
        pytest.param({"samples": 1000}, {"samples": 1000}, "", id="as many samples"),
        pytest.param({"samples": 1000}, {}, "", id="samples unknown"),
        pytest.param(
            {"dataset_bytes": 64}, {"dataset_bytes": 32}, "scaled from 64 bytes of data", id="bytes"
        ),
    ],
)
def test_a_time_that_is_scaled_says_from_what(
    known: dict[str, int], asked: dict[str, int], note: str
) -> None:
    predictor = predictor_of(*(run(number, {}, 1.0, **known) for number in range(3)))

    assert predictor.notes(workload({}, **asked)) == note


def test_a_time_that_follows_from_steps_says_from_which_batch_size() -> None:
    runs = []
    for number, (batch, width) in enumerate(product((32, 64, 128), (1, 2))):
        alone = run(number, {}, 1000 / batch * (0.1 + batch / width / 1000), samples=1000)
        epochs = tuple(replace(epoch, width=width) for epoch in alone.epochs)
        sized = replace(alone.workload, batch_size=batch)
        runs.append(replace(alone, workload=sized, epochs=epochs))
    predictor = predictor_of(*runs)

    note = predictor.notes(workload({}, samples=2000, batch_size=256))

    assert note == "scaled from 1000 samples and a batch size of 128"
