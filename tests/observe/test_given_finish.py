"""What a job was told first stands still, however its forecast moves."""

from typing import Any

import pytest

from laxity_scheduler.service.views.view_record import p90_when_given, with_first_prediction

DEADLINE_AT = 900.0
BEFORE = {"deadline_at": DEADLINE_AT, "given_p90_at": 600.0}


@pytest.mark.parametrize(
    ("verdict", "deadline_at", "before", "given_at"),
    [
        pytest.param("promised", DEADLINE_AT, None, 700.0, id="given now"),
        pytest.param("promised", DEADLINE_AT, BEFORE, 600.0, id="given before"),
        pytest.param("promised", 1800.0, BEFORE, 700.0, id="another deadline"),
        pytest.param("forecast", DEADLINE_AT, BEFORE, None, id="no promise"),
    ],
)
def test_a_promise_keeps_the_finish_with_which_it_was_given(
    verdict: str, deadline_at: float, before: dict[str, Any] | None, given_at: float | None
) -> None:
    view = {"verdict": verdict, "deadline_at": deadline_at, "promised_p90_at": 700.0}

    assert p90_when_given(view, before) == given_at


@pytest.mark.parametrize(
    ("start_at", "run_s"),
    [
        pytest.param(None, 20.0, id="it starts now"),
        pytest.param(110.0, 10.0, id="it waits"),
        pytest.param(121.0, None, id="its start is said to be after its end"),
    ],
)
def test_first_predicted_run_time_is_never_negative(
    start_at: float | None, run_s: float | None
) -> None:
    view = {
        "verdict": "forecast", "state": "queued", "outcome": "", "broken": False,
        "p50_at": 120.0, "p90_at": 130.0, "first_p90_at": None, "expected_start_at": start_at,
        "deadline_at": DEADLINE_AT, "finished_at": None,
    }  # fmt: skip

    assert with_first_prediction(view, 100.0)["first_run_s"] == run_s
