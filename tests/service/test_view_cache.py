"""Views that are kept between cycles are those that would be made anew."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from laxity.api.job_view import job_view
from laxity_profiler.estimate import Progress
from laxity_scheduler.live import Report
from laxity_scheduler.model.job import Job, Refusal
from laxity_scheduler.model.reasons import reason
from laxity_scheduler.service.views import live_view as views
from laxity_scheduler.service.views.live_view import JITTER_S, Absence, ExpectedEnd, LastReason
from laxity_scheduler.service.views.view_cache import CycleInput, ViewCache
from tests.support.builders import cluster, job, promised

DUE_AT = 500.0
QUIET = Report()


class Forgetful(ViewCache):
    """Makes every view anew at every look."""

    def _is_unchanged(self, uid: str, manifest: Mapping[str, Any], cycle_input: CycleInput) -> bool:
        super()._is_unchanged(uid, manifest, cycle_input)
        return False


def job_json(name: str) -> dict[str, Any]:
    meta = {"name": name, "namespace": "team", "uid": f"uid-{name}", "resourceVersion": "1"}
    return {"metadata": meta}


def running(name: str, epochs_done: int = 0) -> Job:
    row = promised(name, DUE_AT, running=1)
    return replace(row, progress=replace(row.progress, epochs_done=epochs_done))


def look(*rows: Job, now: float = 10.0, said: str = "", **ends: float) -> CycleInput:
    """What is seen of running jobs; `ends`: when each is expected to, 20 s later at P90."""
    return CycleInput(
        manifests=[job_json(row.id.partition("/")[2]) for row in rows],
        state=cluster(gpus=8, jobs=list(rows), now=now),
        expected_ends={f"team/{name}": ExpectedEnd(at, at + 20.0) for name, at in ends.items()},
        last_reasons={row.id: LastReason("order", said) for row in rows} if said else {},
    )


STEPS = st.lists(
    st.tuples(
        st.floats(0.0, 200.0),  # seconds later
        st.lists(st.floats(400.0, 600.0), min_size=2, max_size=2),  # expected ends
        st.sampled_from(["", "first", "second"]),  # what is said of all
        st.integers(0, 1),  # epochs that end
    ),
    max_size=8,
)


@given(STEPS)
def test_what_a_reader_sees_is_what_views_made_anew_would_show(
    steps: list[tuple[float, list[float], str, int]],
) -> None:
    kept, anew, now = ViewCache(), Forgetful(), 0.0
    rows = [running("a"), running("b")]
    for later_s, (a, b), said, ended in steps:
        now += later_s
        if ended:
            rows[0] = running("a", rows[0].progress.epochs_done + ended)
        seen = look(*rows, now=now, said=said, a=a, b=b)
        for board in (kept, anew):
            board.update_views(seen, lambda _: QUIET)
        for shown, made in zip(kept.all(), anew.all(), strict=True):
            assert views.looks_same(shown, {**made, "revision": 0}), (shown, made)
            assert abs(shown["p90_at"] - made["p90_at"]) <= JITTER_S


def test_another_expected_end_is_news_and_with_it_the_danger_of_being_late() -> None:
    board, row = ViewCache(), running("a")
    board.update_views(look(row, a=400.0), lambda _: QUIET)
    assert board.update_views(look(row, now=20.0, a=400.0 + JITTER_S), lambda _: QUIET) == []
    (change,) = board.update_views(look(row, now=30.0, a=490.0), lambda _: QUIET)
    assert change.after["p90_at"] == 510.0
    assert change.after["danger"]
    assert change.after["laxity_s"] == DUE_AT - 510.0
    assert change.after["first_p90_at"] == 420.0, "the first one is remembered"


def test_a_promise_comes_into_danger_by_less_than_a_reader_would_see() -> None:
    board, row = ViewCache(), running("a")
    board.update_views(look(row, a=DUE_AT - 20.2), lambda _: QUIET)
    (change,) = board.update_views(look(row, now=20.0, a=DUE_AT - 19.9), lambda _: QUIET)
    assert (change.before or {})["danger"] is False
    assert change.after["danger"] is True


def test_a_job_that_is_back_has_an_end_still_to_come() -> None:
    """Its label was taken off and put on again; then the Job is deleted."""
    board, row = ViewCache(), running("a")
    board.update_views(look(row), lambda _: QUIET)
    board.remember_fields("uid-a", released=True)
    board.update_views(look(now=20.0), lambda _: QUIET)
    (change,) = board.update_views(look(row, now=30.0, a=400.0), lambda _: QUIET)
    assert (change.after["state"], change.after["finished_at"]) == ("running", None)
    assert (change.after["error"], change.after["released"]) == ("", None)

    (gone,) = board.update_views(look(now=40.0), lambda _: QUIET)
    assert (gone.after["state"], gone.after["finished_at"]) == ("cancelled", 40.0)


def test_a_job_that_ended_while_nobody_looked_after_it_ended_when_the_job_says() -> None:
    board, late_at = ViewCache(), "1970-01-01T00:10:00Z"  # its deadline passed at 500 s
    board.update_views(look(running("a")), lambda _: QUIET)
    board.update_views(look(now=20.0), lambda _: QUIET)
    complete = {"type": "Complete", "status": "True", "lastTransitionTime": late_at}
    ended = job_json("a") | {"status": {"conditions": [complete], "completionTime": late_at}}
    board.update_views(replace(look(now=700.0), manifests=[ended]), lambda _: QUIET)
    view = board.view("team/a") or {}
    assert (view["state"], view["finished_at"], view["outcome"]) == ("finished", 600.0, "late")


def test_little_by_little_is_far_in_the_end() -> None:
    """What moves by less than a reader would see is compared with what he was told."""
    board, row = ViewCache(), running("a")
    board.update_views(look(row, a=400.0), lambda _: QUIET)
    told = [
        board.update_views(look(row, a=400.0 + 0.4 * step), lambda _: QUIET) for step in range(10)
    ]
    assert 2 <= sum(map(bool, told)) <= 4
    view = board.view("team/a")
    assert view is not None
    assert abs(view["p50_at"] - 403.6) <= JITTER_S


def refused_look(*uids: str, now: float) -> CycleInput:
    """A refused Job for each of these uids, all by one name and with one time of submission."""
    row = job("a", due_at=DUE_AT, verdict=Refusal(reason("deadline_in_the_past", due=DUE_AT)))
    manifests = [{"metadata": {**job_json("a")["metadata"], "uid": uid}} for uid in uids]
    return CycleInput(manifests, cluster(jobs=[row], now=now), expected_ends={}, last_reasons={})


def test_a_refused_job_stays_refused_when_it_is_gone_and_gives_way_to_the_one_that_asks_again() -> (
    None
):
    board = ViewCache()
    for number, uid in enumerate(("first", "second")):
        board.update_views(refused_look(uid, now=10.0 * number), lambda _: QUIET)

    shown = [(view["uid"], view["state"]) for view in board.all()]
    board.update_views(refused_look(now=30.0), lambda _: QUIET)
    (gone,) = board.all()

    assert shown == [("second", "refused")]
    assert (gone["uid"], gone["state"], gone["outcome"]) == ("second", "refused", "refused")
    assert job_view(gone).ended
    rows = board.rows_to_save()
    assert [row.finished_at for row in rows] == [10.0, 30.0], "both are forgotten in time"
    assert [view["uid"] for view in ViewCache(rows[::-1]).all()] == ["second"]
    board.drop_old(ended_before=31.0)
    assert board.views_in_any_order() == []


@pytest.mark.parametrize(
    ("workers", "holds_state", "done"),
    [
        pytest.param(1, True, 5, id="the report is newer than the row"),
        pytest.param(0, False, 0, id="stopped, without state"),
    ],
)
def test_epochs_that_are_lost_are_not_shown(workers: int, done: int, *, holds_state: bool) -> None:
    board, before = ViewCache(), replace(running("a", 4), holds_state=holds_state)
    board.update_views(look(before), lambda _: QUIET)
    row = replace(
        before, workers=workers, progress=replace(before.progress, epochs_done=4 * workers)
    )
    report = Report(Progress(5), holds_state=holds_state)

    board.update_views(look(row, now=20.0), lambda _: report)

    (view,) = board.all()
    assert (view["epochs_done"], view["holds_state"]) == (done, holds_state)


def widths_after_absence(report: Report, *seen: tuple[float, int]) -> list[list[float]]:
    """The widths of a job that began at -1 s, of a service that was away from 100 s to 150 s.

    `seen`: when it looks again, and how many workers the job has then.
    """
    kept = ViewCache()
    kept.update_views(look(running("a"), now=10.0), lambda _: QUIET)
    again = ViewCache(kept.rows_to_save(), absence=Absence(100.0, 150.0))
    for now, workers in seen:
        row = replace(running("a"), workers=workers, width_changed_at=now if workers > 1 else None)
        again.update_views(look(row, now=now), lambda _: report)
    history: list[list[float]] = again.all()[0]["width_history"]
    return history


@pytest.mark.parametrize(
    ("report", "want"),
    [
        pytest.param(
            Report(started_at=160.0, silent_since=95.0),
            [[-1.0, 1], [100.0, 0], [160.0, 1]],
            id="stopped with the service",
        ),
        pytest.param(
            Report(started_at=140.0, silent_since=120.0),
            [[-1.0, 1], [120.0, 0], [140.0, 1]],
            id="stopped and began again while it was away",
        ),
        pytest.param(Report(started_at=10.0), [[-1.0, 1]], id="ran on all the time"),
        pytest.param(
            Report(started_at=170.0, silent_since=165.0),
            [[-1.0, 1]],
            id="began again before the eyes of the service",
        ),
        pytest.param(
            Report(started_at=50.0, silent_since=40.0), [[-1.0, 1]], id="began again before"
        ),
    ],
)
def test_time_without_workers_while_the_service_was_away_is_no_run_time(
    report: Report, want: list[list[float]]
) -> None:
    assert widths_after_absence(report, (160.0, 1), (200.0, 1)) == want


def test_a_width_that_changes_before_the_workers_are_back_counts_from_then() -> None:
    report = Report(started_at=160.0, silent_since=95.0)
    assert widths_after_absence(report, (152.0, 2), (200.0, 2)) == [[-1, 1], [100, 0], [160, 2]]


@pytest.mark.parametrize(
    ("finished_at", "over_at"),
    [
        pytest.param(130.0, 130.0, id="while the service was away"),
        pytest.param(155.0, 165.0, id="before its eyes"),
    ],
)
def test_a_training_that_waits_for_the_service_to_hand_in_its_result_runs_no_longer(
    finished_at: float, over_at: float
) -> None:
    kept = ViewCache()
    kept.update_views(look(running("a"), now=10.0), lambda _: QUIET)
    again = ViewCache(kept.rows_to_save(), absence=Absence(100.0, 150.0))
    seen = look(now=170.0)
    done = {"type": "Complete", "status": "True", "lastTransitionTime": "1970-01-01T00:02:45Z"}
    manifest = job_json("a") | {"status": {"conditions": [done]}}
    report = Report(finished=True, since=finished_at)
    again.update_views(replace(seen, manifests=[manifest]), lambda _: report)
    (view,) = again.all()
    assert view["width_history"] == [[-1.0, 1], [over_at, 0]]
    assert view["finished_at"] == 165.0


def waiting_look(row: Job, start_at: float, holder: str, now: float) -> CycleInput:
    """A queued job that waits for this holder until then."""
    last = LastReason("no_room", "it waits", (holder,), start_at)
    return CycleInput(
        [job_json("a")], cluster(jobs=[row], now=now), expected_ends={}, last_reasons={row.id: last}
    )


def test_whom_a_job_waits_for_is_shown_at_once_and_is_news_if_its_start_moved_by_a_hundredth() -> (
    None
):
    board, row = ViewCache(), job("a", due_at=DUE_AT)
    board.update_views(waiting_look(row, 1000.0, "team/b", 0.0), lambda _: QUIET)
    assert board.update_views(waiting_look(row, 1005.0, "team/c", 1.0), lambda _: QUIET) == []
    (shown,) = board.all()
    assert (shown["held_by"], shown["expected_start_at"]) == (["team/c"], 1005.0)
    (change,) = board.update_views(waiting_look(row, 1030.0, "team/c", 2.0), lambda _: QUIET)
    assert change.after["expected_start_at"] == 1030.0
