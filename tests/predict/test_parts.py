"""A run is start | epochs | finishing: each part is expected, and told while it lasts."""

from dataclasses import replace

import pytest

from laxity.api.job_view import JobView, job_view
from laxity.api.status_text import part_text
from laxity_scheduler.model.job import Job
from laxity_scheduler.service.expected_times import predict_ends
from laxity_scheduler.service.views import end_fields
from tests.support.builders import Curve, cluster, job

PREDICTOR = Curve(start_s=15.0, finishing_s=26.0)
STARTING = replace(job("a", running=1), formed=0, epoch_started_at=None, resumed_at=0.0)
FINISHING = job("a", running=1, done=10)


def seen_at(row: Job, now: float) -> JobView:
    """The job as its readers see it then."""
    end = predict_ends(cluster(jobs=[row], now=now), PREDICTOR, [row])[row.id]
    return job_view({"id": row.id, "state": "running", **end_fields(end)})


@pytest.mark.parametrize(
    ("row", "now", "text"),
    [
        (STARTING, 12.0, "starting for 12s, usually 15s"),
        (FINISHING, 15.0, "finishing for 15s, usually 26s"),
        (FINISHING, 0.5, "finishing, usually 26s"),
        (job("a", running=1, done=9), 15.0, ""),
    ],
)
def test_a_part_is_told_with_its_age_and_its_usual_time(row: Job, now: float, text: str) -> None:
    assert part_text(seen_at(row, now), now) == text


@pytest.mark.parametrize("row", [STARTING, FINISHING], ids=["start", "finishing"])
def test_no_finish_is_past_or_now_while_a_part_lasts(row: Job) -> None:
    for now in (0.0, 14.9, 15.0, 25.9, 26.0, 40.0, 400.0):
        seen = seen_at(row, now)
        assert seen.p50_at is not None
        assert seen.p90_at is not None
        assert now < seen.p50_at <= seen.p90_at


def test_a_part_that_has_ended_is_told_no_more() -> None:
    over = replace(seen_at(FINISHING, 15.0), state="finished")

    assert not part_text(over, 16.0)
