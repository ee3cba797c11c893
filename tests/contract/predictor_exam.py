"""What every Predictor must do, asked over random histories, jobs and widths.

Each question takes a Bench (a predictor, and the models it may be asked about) and a hypothesis
data object. Run them with `@pytest.mark.parametrize("question", EXAM, ids=named)`.
"""

import dataclasses
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from laxity_profiler.estimate import NO_PROGRESS, Ask, Estimate, Predictor, Progress, Workload


@dataclass(frozen=True)
class Bench:
    """A predictor, the models it knows and one it does not, and how to build it again."""

    predictor: Predictor
    models: tuple[str, ...]
    again: Callable[[Mapping[str, Any]], Predictor]
    unknown: str = "never-seen"


Question = Callable[[Bench, st.DataObject], None]
SECONDS = st.floats(1e-3, 1e6)
WIDTHS = st.integers(1, 64)


def named(question: Question) -> str:
    return question.__name__.replace("_", " ")


@st.composite
def workloads(draw: st.DrawFn, models: tuple[str, ...]) -> Workload:
    return Workload(
        draw(st.sampled_from(models)),
        draw(st.integers(1, 1_000)),
        samples=draw(st.none() | st.integers(1, 10**7)),
        batch_size=draw(st.none() | st.integers(1, 4_096)),
        user_epoch_s=draw(st.none() | SECONDS),
    )


@st.composite
def progresses(draw: st.DrawFn) -> Progress:
    seen = draw(st.lists(st.tuples(SECONDS, WIDTHS), max_size=20))
    done = draw(st.integers(len(seen), len(seen) + 500))
    return Progress(done, tuple(s for s, _ in seen), tuple(w for _, w in seen))


def asks(bench: Bench) -> st.SearchStrategy[Ask]:
    models = (*bench.models, bench.unknown)
    return st.builds(Ask, workloads(models), progresses(), WIDTHS)


def quantiles_are_in_order(bench: Bench, data: st.DataObject) -> None:
    ask = data.draw(asks(bench))
    for estimate in _all(bench.predictor, ask):
        assert 0.0 <= estimate.p10_s <= estimate.p50_s <= estimate.p90_s
        assert not math.isnan(estimate.mean_s)
        if math.isfinite(estimate.p90_s):
            assert math.isfinite(estimate.mean_s)
            assert estimate.mean_s >= 0.0


def the_same_question_gets_the_same_answer(bench: Bench, data: st.DataObject) -> None:
    ask = data.draw(asks(bench))
    assert _all(bench.predictor, ask) == _all(bench.predictor, _copy(ask))


def a_table_says_what_single_questions_say(bench: Bench, data: st.DataObject) -> None:
    rows = data.draw(st.lists(asks(bench), max_size=12))
    answers = bench.predictor.table([*rows, *rows[:3]])
    one_by_one = [
        bench.predictor.remaining(row.workload, row.progress, row.workers)
        for row in (*rows, *rows[:3])
    ]
    assert [answers[at] for at in range(len(answers))] == one_by_one


def one_built_again_from_its_json_answers_the_same(bench: Bench, data: st.DataObject) -> None:
    rows = data.draw(st.lists(asks(bench), min_size=1, max_size=6))
    text = json.dumps(bench.predictor.to_json(), allow_nan=False)
    again = bench.again(json.loads(text))
    assert again == bench.predictor
    assert again.version == bench.predictor.version
    for row in rows:
        assert _all(again, row) == _all(bench.predictor, row)


def more_epochs_left_never_take_less_time(bench: Bench, data: st.DataObject) -> None:
    ask = data.draw(asks(bench))
    seen = ask.progress
    few, more = data.draw(st.integers(0, 6)), data.draw(st.integers(1, 6) | st.integers(1, 10**6))
    lefts = [
        bench.predictor.remaining(
            dataclasses.replace(ask.workload, epochs=seen.epochs_done + left), seen, ask.workers
        )
        for left in (few, few + more)
    ]
    for name in ("p10_s", "p50_s", "mean_s", "p90_s"):
        assert getattr(lefts[1], name) >= getattr(lefts[0], name), name


def nothing_left_takes_no_time(bench: Bench, data: st.DataObject) -> None:
    ask = data.draw(asks(bench))
    done = Progress(ask.workload.epochs + data.draw(st.integers(0, 3)))
    rest = bench.predictor.remaining(ask.workload, done, ask.workers)
    assert (rest.p10_s, rest.p50_s, rest.mean_s, rest.p90_s) == (0.0, 0.0, 0.0, 0.0)


def what_cannot_be_known_is_infinite_and_no_error(bench: Bench, data: st.DataObject) -> None:
    width = data.draw(WIDTHS)
    rest = bench.predictor.remaining(Workload(bench.unknown, 5), NO_PROGRESS, width)
    assert (rest.p90_s, rest.source) == (math.inf, "prior")
    assert bench.predictor.epoch_time(Workload(bench.unknown, 5), width).p90_s == math.inf


def own_epochs_make_the_unknown_known(bench: Bench, data: st.DataObject) -> None:
    seconds, width = data.draw(SECONDS), data.draw(WIDTHS)
    seen = Progress(3, (seconds, seconds), (width, width))
    rest = bench.predictor.remaining(Workload(bench.unknown, 13), seen, width)
    assert rest.source == "observed"
    assert rest.p10_s <= 10.000001 * seconds
    assert 9.999999 * seconds <= rest.p90_s < 20 * seconds


def stops_and_starts_cost_something_finite(bench: Bench, data: st.DataObject) -> None:
    ask = data.draw(asks(bench))
    for cost in (bench.predictor.suspend_cost, bench.predictor.resume_cost):
        estimate = cost(ask.workload, ask.workers)
        assert 0.0 <= estimate.p10_s <= estimate.p50_s <= estimate.p90_s < math.inf


EXAM: tuple[Question, ...] = (
    quantiles_are_in_order,
    the_same_question_gets_the_same_answer,
    a_table_says_what_single_questions_say,
    one_built_again_from_its_json_answers_the_same,
    more_epochs_left_never_take_less_time,
    nothing_left_takes_no_time,
    what_cannot_be_known_is_infinite_and_no_error,
    own_epochs_make_the_unknown_known,
    stops_and_starts_cost_something_finite,
)


def _all(predictor: Predictor, ask: Ask) -> tuple[Estimate, ...]:
    return (
        predictor.remaining(ask.workload, ask.progress, ask.workers),
        predictor.epoch_time(ask.workload, ask.workers),
        predictor.suspend_cost(ask.workload, ask.workers),
        predictor.resume_cost(ask.workload, ask.workers),
    )


def _copy(ask: Ask) -> Ask:
    """Equal, and no object shared."""
    work, seen = ask.workload, ask.progress
    return Ask(
        dataclasses.replace(work), Progress(seen.epochs_done, *_rows(seen)), int(ask.workers)
    )


def _rows(seen: Progress) -> tuple[tuple[float, ...], tuple[int, ...]]:
    return tuple(s + 0.0 for s in seen.epoch_s), tuple(w + 0 for w in seen.widths)
