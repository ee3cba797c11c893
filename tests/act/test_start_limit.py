"""Kubernetes' own clocks on a Job: whose they are, and what limit of a start they are to laxity."""

from typing import Any

import pytest

from laxity import json_tree, names
from laxity_k8s.act.patches import job_patch
from laxity_k8s.cluster_api import Json
from laxity_k8s.objects.status_annotation import JobStatusRecord, digest_terms, read_status
from laxity_scheduler.model.decision import Admit, Preempt
from laxity_scheduler.model.job import FOREVER
from laxity_scheduler.model.reasons import reason
from tests.support.manifests import CREATED_AT, job
from tests.support.rows import row

WHY = reason("order", policy="test")
START = Admit("default/job", 1, ("a",), WHY)
STOP = Preempt("default/job", "now", "", WHY)


def after(made: Json, decision: Admit | Preempt) -> Json:
    patch = job_patch(made, row(made), [decision], now=CREATED_AT + 100.0)
    assert patch is not None
    merged: Json = json_tree.merge_patch(made, patch.patch.body)
    return merged


def with_clock(limit_s: Any, **said: Any) -> Json:
    return job(spec={"activeDeadlineSeconds": limit_s}, **said)


def declare(made: Json, wall_limit: str | None) -> Json:
    body = {"metadata": {"annotations": {names.WALL_LIMIT: wall_limit}}}
    merged: Json = json_tree.merge_patch(made, body)
    return merged


def plain(made: Json) -> Json:
    """The Job without epochs: it cannot be stopped at the end of one."""
    del made["metadata"]["annotations"][names.EPOCHS]
    return made


def limits(made: Json) -> tuple[float, float]:
    found = row(made)
    return found.wall_limit_s, found.active_deadline_s


def test_a_trainings_own_clock_is_its_wall_limit_and_a_plain_jobs_its_active_deadline() -> None:
    assert limits(with_clock(90)) == (90.0, FOREVER)
    assert limits(plain(with_clock(90))) == (FOREVER, 90.0)
    assert limits(job()) == limits(plain(job())) == (FOREVER, FOREVER)


@pytest.mark.parametrize("garbled", ["soon", -1, True, 1.5, [60], None])
def test_a_clock_that_is_no_whole_number_is_no_limit(garbled: Any) -> None:
    assert limits(with_clock(garbled)) == (FOREVER, FOREVER)


def test_a_clock_of_the_pods_counts_where_it_is_shorter() -> None:
    made = with_clock(90)
    made["spec"]["template"]["spec"]["activeDeadlineSeconds"] = 60
    assert limits(made) == (60.0, FOREVER)
    made["spec"]["activeDeadlineSeconds"] = 45
    assert limits(made) == (45.0, FOREVER)


@pytest.mark.parametrize(
    ("shape", "limit_s"),
    [
        ({"completionMode": "NonIndexed", "parallelism": 2, "completions": 6}, FOREVER),
        ({"completionMode": "NonIndexed", "parallelism": 2, "completions": 2}, 60.0),
        ({"completionMode": "NonIndexed", "parallelism": 2, "completions": None}, 60.0),
        ({"completionMode": "NonIndexed", "parallelism": None, "completions": None}, 60.0),
    ],
)
def test_a_clock_of_pods_that_come_one_after_the_other_is_no_limit_of_their_job(
    shape: Json, limit_s: float
) -> None:
    made = plain(job(spec={key: value for key, value in shape.items() if value is not None}))
    for key in [key for key, value in shape.items() if value is None]:
        del made["spec"][key]
    made["spec"]["template"]["spec"]["activeDeadlineSeconds"] = 60
    assert limits(made) == (FOREVER, limit_s)


def test_a_users_own_clock_is_left_as_it_was_written() -> None:
    started = after(with_clock(90), START)
    assert started["spec"]["activeDeadlineSeconds"] == 90
    assert read_status(started).written_limit_s is None
    assert limits(started) == limits(after(started, STOP)) == (90.0, FOREVER)


def test_a_declared_wall_limit_replaces_the_users_clock_at_the_next_start() -> None:
    made = with_clock(90, wall_limit="5m")
    assert limits(made) == (300.0, FOREVER)
    assert after(made, START)["spec"]["activeDeadlineSeconds"] == 300


def test_a_wall_limit_that_is_raised_counts_from_the_next_start() -> None:
    """Until then Kubernetes ends the start that runs by the limit that it was started with."""
    raised = declare(after(job(wall_limit="1m"), START), "5m")
    assert limits(raised) == (60.0, FOREVER)
    stopped = after(raised, STOP)
    assert limits(stopped) == (300.0, FOREVER)
    assert after(stopped, START)["spec"]["activeDeadlineSeconds"] == 300


def test_a_wall_limit_that_is_removed_takes_the_clock_that_laxity_wrote_with_it() -> None:
    removed = declare(after(job(wall_limit="1m"), START), None)
    assert limits(removed) == (60.0, FOREVER), "it still runs out"
    stopped = after(removed, STOP)
    assert limits(stopped) == (FOREVER, FOREVER)
    started = after(stopped, START)
    assert "activeDeadlineSeconds" not in started["spec"]
    assert read_status(started) == JobStatusRecord(
        **{name: getattr(read_status(stopped), name) for name in ("queued_at", "preemptions")},
        resumed_at=CREATED_AT + 100.0,
        width_changed_at=CREATED_AT + 100.0,
        since=CREATED_AT + 100.0,
        wanted=1,
    )


def test_a_clock_that_the_user_wrote_over_laxitys_is_the_users() -> None:
    removed = after(declare(after(job(wall_limit="1m"), START), None), STOP)
    removed["spec"]["activeDeadlineSeconds"] = 45
    assert limits(removed) == (45.0, FOREVER)
    assert after(removed, START)["spec"]["activeDeadlineSeconds"] == 45


def test_another_clock_of_the_user_asks_for_another_verdict_and_laxitys_does_not() -> None:
    assert digest_terms(with_clock(90)) != digest_terms(with_clock(60))
    assert digest_terms(with_clock(90)) != digest_terms(job())
    made = job(wall_limit="1m")
    assert digest_terms(after(made, START)) == digest_terms(made)
    removed = declare(after(made, START), None)
    assert digest_terms(removed) == digest_terms(job())
    assert digest_terms(after(after(removed, STOP), START)) == digest_terms(job())
