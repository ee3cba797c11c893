"""What a reason says stays true however long it stands, and is plain English."""

import string

import pytest

from laxity_scheduler.model.reasons import TEMPLATES, Fact, Reason, reason


@pytest.mark.parametrize(
    ("moved_s", "said"),
    [
        pytest.param(
            -86.0, "the P90 finish is now 2001-09-09T01:46:40Z, 1m26s earlier", id="sooner"
        ),
        pytest.param(30.0, "the P90 finish is now 2001-09-09T01:46:40Z, 30s later", id="later"),
    ],
)
def test_a_finish_is_an_instant_and_has_moved_earlier_or_later(moved_s: float, said: str) -> None:
    assert reason("promise_moved", moved_s=moved_s, p90_at=1e9).text.startswith(said)


@pytest.mark.parametrize("at", [float("inf"), float("nan"), 1e30])
def test_an_instant_beyond_all_calendars_is_an_unknown_time(at: float) -> None:
    text = reason("forecast_late", p90_at=at, late_s=float("inf")).text
    assert text == "P90 finish at an unknown time, an unknown time after the deadline"


def test_a_forecast_without_an_end_says_when_the_job_runs() -> None:
    text = reason("forecast", p90_at=float("inf"), late_s=0.0).text
    assert text == "it runs when there is room; no end can be foreseen yet"


@pytest.mark.parametrize(("workers", "said"), [(1, "on 1 worker"), (2, "on 2 workers")])
def test_one_worker_is_one_and_two_are_several(workers: int, said: str) -> None:
    assert reason("fits", p90_at=1e9, slack_s=0.00245, workers=workers).text.endswith(said)


def test_seconds_have_one_decimal_at_most() -> None:
    assert "0.8s before" in reason("fits", p90_at=1e9, slack_s=0.798, workers=1).text


@pytest.mark.parametrize("code", sorted(TEMPLATES))
def test_every_code_is_a_sentence_without_brackets_whatever_is_missing(code: str) -> None:
    fields = [name for _, name, _, _ in string.Formatter().parse(TEMPLATES[code]) if name]
    facts: dict[str, Fact] = dict.fromkeys(fields, 2)
    full, empty = Reason(code, tuple(facts.items())).text, Reason(code).text
    assert "(s)" not in full
    assert "?" not in full
    assert empty.count("?") == len(fields)
