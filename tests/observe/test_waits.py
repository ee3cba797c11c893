"""A Job that only waits is written when it waits for something else, and else every five minutes."""

from laxity import names
from laxity_k8s.act.patches import job_patch
from laxity_k8s.act.plan_patches import WAITS_AGAIN_S, WaitFilter
from laxity_k8s.objects.jobs import job_row
from laxity_scheduler.model.decision import Forecasted, Wait
from laxity_scheduler.model.job import Forecast, Job
from laxity_scheduler.model.reasons import reason
from tests.support.manifests import job

FREE = Wait("a/job", reason("no_free_gpus", needed_gpus=1, gpus_per_worker=1, free_gpus=0))
FREER = Wait("a/job", reason("no_free_gpus", needed_gpus=1, gpus_per_worker=1, free_gpus=7))
HELD = Wait("a/job", reason("held_for_promises", holders="a/other"))
SEEN = reason("forecast", p90_in_s=2.0)
SAID = Forecasted("a/job", Forecast(1.0, 2.0, 0.0, SEEN), SEEN)


def test_a_wait_is_written_once_and_again_after_some_minutes() -> None:
    waits = WaitFilter()
    assert waits.is_news("a/job", [FREE], 0.0)
    assert not waits.is_news("a/job", [FREER], WAITS_AGAIN_S - 1.0)
    assert waits.is_news("a/job", [FREER], WAITS_AGAIN_S)


def test_a_wait_for_something_else_is_written_at_once() -> None:
    waits = WaitFilter()
    assert waits.is_news("a/job", [FREE], 0.0)
    assert waits.is_news("a/job", [HELD], 1.0)


def test_what_is_no_wait_is_news_and_so_is_the_wait_after_it() -> None:
    waits = WaitFilter()
    assert waits.is_news("a/job", [FREE], 0.0)
    assert not waits.is_news("a/job", [SAID, FREE], 1.0)
    assert waits.is_news("a/job", [SAID], 3.0)
    assert waits.is_news("a/job", [FREE], 4.0)


def test_jobs_that_are_gone_are_forgotten() -> None:
    waits = WaitFilter()
    assert waits.is_news("a/job", [FREE], 0.0)
    waits.keep_only({"a/other"})
    assert waits.is_news("a/job", [FREE], 1.0)


def test_a_job_that_was_left_out_or_met_another_service_is_not_told_again_what_it_shows() -> None:
    waits, full = WaitFilter(), Wait("a/job", reason("quota_used_up", quota="gpus in quota a/team"))
    assert not waits.is_news("a/job", [full], 1.0, shown=full.reason.text)
    assert not waits.is_news("a/job", [full], 2.0, shown="something else since")
    assert waits.is_news("a/job", [full], 1.0 + WAITS_AGAIN_S, shown=full.reason.text)
    waits.keep_only({"a/other"})
    assert waits.is_news("a/job", [full], 2.0, shown=HELD.reason.text)


def test_a_repeated_wait_is_the_reason_again_and_no_event() -> None:
    made = job()
    row = job_row(made)
    assert isinstance(row, Job)
    patch = job_patch(made, row, [SAID, FREER], now=1.0, repeats_wait=True)
    assert patch is not None
    assert [code for code, _ in patch.events] == ["forecast"]
    assert patch.patch.body["metadata"]["annotations"][names.REASON] == FREER.reason.text
