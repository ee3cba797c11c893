"""A promise that drifts is told in steps of its slack; what may break it is told with its verdict."""

from dataclasses import replace

import pytest

from laxity_k8s.act.promise_events import MoveFilter, describe_backoff_limit
from laxity_k8s.objects import jobs
from laxity_scheduler.model.decision import Decision, Forecasted, Promised, Wait
from laxity_scheduler.model.job import Forecast, Job, Promise
from laxity_scheduler.model.reasons import reason
from tests.support.builders import promise
from tests.support.manifests import job

DUE_AT = 10_000.0
GIVEN = replace(promise(DUE_AT), p90_at=9_000.0)
WAITS = Wait("default/job", reason("no_free_gpus", needed_gpus=1, gpus_per_worker=1, free_gpus=0))


def moved(p90_at: float, code: str = "promise_moved", due_at: float = DUE_AT) -> Promised:
    why = reason(code, moved_s=1.0, p90_at=p90_at, late_s=1.0, workers=1, slack_s=1.0)
    return Promised("default/job", replace(GIVEN, p90_at=p90_at, deadline_at=due_at), why)


def test_drift_by_ten_seconds_is_told_ten_times_over_all_of_its_slack() -> None:
    moves = MoveFilter()
    assert moves.is_news("default/job", [moved(9_000.0, "fits")])

    told = [moves.is_news("default/job", [moved(9_000.0 + 10.0 * n)]) for n in range(1, 100)]

    assert sum(told) == 9
    assert told.index(True) == 10


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(moved(9_001.0, "promise_in_danger"), id="in danger"),
        pytest.param(moved(9_001.0, "fits"), id="out of danger"),
        pytest.param(moved(9_001.0, due_at=11_000.0), id="another deadline"),
        pytest.param(WAITS, id="no promise at all"),
    ],
)
def test_another_state_is_always_told(other: Decision) -> None:
    moves = MoveFilter()
    moves.is_news("default/job", [moved(9_000.0, "fits")])

    assert not moves.is_news("default/job", [moved(9_001.0)])
    assert moves.is_news("default/job", [other])


def accepted(verdict: Promise | None, **spec: object) -> str:
    made = job(width=8, widths="2,8", spec=dict(spec))
    row = jobs.job_row(made)
    assert isinstance(row, Job)
    return describe_backoff_limit(made, replace(row, verdict=verdict), [moved(9_000.0, "fits")])


def test_backoff_limit_below_the_widest_width_is_told_with_the_first_verdict() -> None:
    assert "backoffLimit 6 is below its 8 workers" in accepted(None, backoffLimit=6)
    assert accepted(None, backoffLimit=8) == ""
    assert accepted(GIVEN, backoffLimit=6) == ""


def test_backoff_limit_is_told_with_a_forecast_and_not_with_a_wait() -> None:
    made = job(width=8, spec={"backoffLimit": 1})
    row = jobs.job_row(made)
    assert isinstance(row, Job)
    why = reason("due_first", laxity_s=1.0, runners_up=0)
    forecast = Forecasted("default/job", Forecast(1.0, 2.0, 0.0, why), why)

    assert describe_backoff_limit(made, row, [forecast]) != ""
    assert describe_backoff_limit(made, row, [WAITS]) == ""
