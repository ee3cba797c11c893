"""The P90 finish with which a promise was given stands still, however its forecast moves."""

from typing import Any

import pytest

from laxity_scheduler.service.views.view_record import p90_when_given

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
