"""Runs that end early by themselves: how many epochs the next one is expected to train."""

import random
from pathlib import Path
from statistics import fmean

import pytest

from laxity_profiler.estimate import Ask, Progress
from laxity_profiler.history.history import History
from laxity_profiler.learning.fit_model import fit_model
from laxity_profiler.learning.learner import Learner
from laxity_profiler.learning.stretches import Stretch
from laxity_profiler.model.early_ends import (
    ALL_EPOCHS,
    early_text,
    ended_shares,
    expected_shares,
)
from laxity_profiler.model.model_fit import WorkloadSetting
from laxity_profiler.predictor.history_predictor import HistoryPredictor
from tests.support.runs import LATER_AT, START_AT, epoch_line, history_in, line, workload

DECLARED = 40


def shares(*trained: int) -> tuple[float, ...]:
    return ended_shares([(n, DECLARED) for n in trained])


def epochs_expected(ended: tuple[float, ...], done: int = 0) -> tuple[int, int]:
    """Whole epochs of the run at P50 and P90."""
    expected, left = expected_shares(ended, DECLARED, done), DECLARED - done
    return done + round(expected.p50 * left), done + round(expected.p90 * left)


def test_runs_that_train_all_their_epochs_are_predicted_as_ever() -> None:
    assert shares(40, 40, 40) == ()
    assert expected_shares((), DECLARED, 0) == ALL_EPOCHS


@pytest.mark.parametrize(
    ("trained", "p50", "p90"),
    [
        pytest.param([6], 6, 40, id="P50 follows the first of them, P90 does not"),
        pytest.param([6, 7, 8], 7, 40, id="nor after three"),
        pytest.param([6, 40, 40, 40], 40, 40, id="most train all"),
        pytest.param([5, 6, 6, 7, 7, 8, 8, 9, 9, 12], 8, 12, id="P90 follows ten"),
    ],
)
def test_p50_follows_early_ends_and_p90_after_ten(trained: list[int], p50: int, p90: int) -> None:
    assert epochs_expected(shares(*trained)) == (p50, p90)


def test_in_flight_only_runs_that_went_on_count() -> None:
    ended = shares(5, 6, 6, 7, 7, 8, 8, 9, 9, 12)

    assert epochs_expected(ended, done=8) == (9, 12)
    assert epochs_expected(ended, done=12) == (40, 40)


def test_the_epoch_in_flight_is_whole_where_few_are_expected() -> None:
    stretches = [Stretch(WorkloadSetting(), 1, (10.0,) * 6) for _ in range(12)]
    predictor = HistoryPredictor((fit_model("mlp", stretches, ended=shares(*[6] * 12)),))
    asked = [Ask(workload(epochs=DECLARED), Progress(), 1)]

    table = predictor.table(asked)
    again = predictor.table(asked)  # from memory

    parts, _ = again.next_unit(0)
    end_s = predictor.finishing_time(asked[0].workload, 1).p50_s
    assert table.next_unit(0) == again.next_unit(0)
    assert parts[1] * (table[0].p50_s - end_s) == pytest.approx(10.0, rel=0.05)
    assert parts[3] * (table[0].p90_s - end_s) < 20.0


def test_p90_covers_early_ends_at_the_start_and_in_flight() -> None:
    draw = random.Random(7)
    kept: dict[str, list[bool]] = {"start": [], "flight": []}
    for _ in range(300):
        *history, truth = [min(DECLARED, round(draw.lognormvariate(2.2, 0.4))) for _ in range(31)]
        stretches = [Stretch(WorkloadSetting(), 1, _epochs(draw, n)) for n in history]
        fit = fit_model("mlp", stretches, ended=shares(*history))
        predictor, times = HistoryPredictor((fit,)), _epochs(draw, truth)
        for stage, done in (("start", 0), ("flight", truth // 2)):
            progress = Progress(done, times[:done][-20:], (1,) * min(20, done))
            asked = workload(epochs=DECLARED)
            expected = predictor.remaining(asked, progress, 1)
            end_s = predictor.finishing_time(asked, 1).p50_s
            kept[stage].append(sum(times[done:]) + end_s <= expected.p90_s)

    assert [fmean(held) for held in kept.values()] == pytest.approx([0.9, 0.9], abs=0.06)


def _epochs(draw: random.Random, n: int) -> tuple[float, ...]:
    level = 10.0 * draw.lognormvariate(0.0, 0.05)
    return tuple(level * draw.lognormvariate(0.0, 0.05) for _ in range(n))


def train(
    history: History, uid: str, trained: int, *, says: bool = True, learner: Learner | None = None
) -> None:
    """A run of 40 declared epochs that ends after so many, of one second each.

    The learner looks before the run says that it is over.
    """
    lines = [line(1, "formed", width=1, epoch=0, at=START_AT)]
    lines += [
        epoch_line(n + 1, n, epoch_s=1.0, width=1, at=START_AT + n) for n in range(1, trained + 1)
    ]
    end = {"epochs_done": trained} if says else {}
    lines.append(line(trained + 2, "finished", at=START_AT + trained + 1, **end))
    history.ingest(uid, uid, workload(epochs=DECLARED), lines[:-1], received_at=LATER_AT)
    if learner is not None:
        learner.predictor()
    history.ingest(uid, uid, workload(epochs=DECLARED), lines, received_at=LATER_AT)


def test_a_learner_follows_runs_that_end_early(tmp_path: Path) -> None:
    history = history_in(tmp_path)
    learner = Learner(history)
    for number in range(3):
        train(history, f"early-{number}", 6, learner=learner)
        learner.observe_finish(f"early-{number}", at=START_AT + 8.0)
    predictor = learner.predictor()

    asked = workload(epochs=DECLARED)
    expected = predictor.remaining(asked, Progress(), 1)
    again = Learner(history_in(tmp_path)).predictor()

    assert 5.0 < expected.p50_s < 12.0
    assert expected.p90_s > 40.0
    assert again.remaining(asked, Progress(), 1) == expected
    assert predictor.notes(asked) == (
        "all 3 runs ended early, half of them by epoch 6 of 40: P90 counts all 40"
    )
    assert HistoryPredictor.from_json(predictor.to_json()) == predictor


@pytest.mark.parametrize(
    ("trained", "text"),
    [
        ([6], "the one run ended early, after epoch 6 of 40: P90 counts all 40"),
        (
            [6, 40],
            "1 of the last 2 runs ended early, half of them by epoch 6 of 40: P90 counts all 40",
        ),
        ([7] * 10, "all 10 runs ended early, half of them by epoch 7 of 40: P90 follows them"),
    ],
)
def test_readers_are_told_of_early_ends(trained: list[int], text: str) -> None:
    assert early_text(shares(*trained), DECLARED) == text


def test_a_run_that_does_not_say_how_it_ended_is_unknown(tmp_path: Path) -> None:
    history = history_in(tmp_path)
    train(history, "silent", 6, says=False)
    train(history, "whole", 40, says=False)

    predictor = Learner(history).predictor()

    assert predictor.models[0].ended == ()
    assert early_text((), DECLARED) == ""
