"""The table of jobs in `ls` and `top`: words for states, what fits on 100 columns, what comes first."""

import io
import os
import pty
import select
import threading
from typing import Any

import pytest
from rich.console import Console

from laxity.api.client import JobView
from laxity.api.job_view import OfferView
from laxity.api.status_text import instant_text, state_words, verdict_markdown
from laxity.cli.render.job_panel import job_panel
from laxity.cli.render.job_table import job_table
from laxity.cli.render.top import cluster_line, in_order, node_table
from laxity.cli.terminal_keys import reading_keys

NOW = 1_000.0


def view(name: str = "train-digits-0123456789ab", **changes: Any) -> JobView:
    fields: dict[str, Any] = {
        "service_class": "hard", "state": "running", "verdict": "promised", "deadline_at": NOW + 120,
        "p50_at": NOW + 60, "p90_at": NOW + 80, "laxity_s": 40.0, "workers": 2, "formed": 2,
        "epochs": 100, "epochs_done": 40,
    }  # fmt: skip
    return JobView(f"default/{name}", **{**fields, **changes})


def lines_of(jobs: list[JobView], *, columns: int = 100) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=columns).print(job_table(jobs, now=NOW))
    return [line.rstrip() for line in out.getvalue().splitlines()]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "running, promised"),
        ({"p90_at": NOW + 130}, "running, endangered"),
        ({"p90_at": NOW + 130, "raw": {"broken": True}}, "running, broken"),
        ({"verdict": "forecast"}, "running"),
        ({"verdict": "forecast", "p90_at": NOW + 130}, "running, late"),
        ({"state": "queued", "workers": 0}, "queued, promised"),
        ({"pinned": True}, "running, promised, pinned"),
        ({"state": "refused", "verdict": "refused"}, "refused"),
        ({"state": "finished", "finished_at": NOW + 80}, "kept, 40s early"),
        ({"state": "finished", "finished_at": NOW + 132}, "broken by 12s"),
        ({"state": "finished", "finished_at": NOW + 132, "verdict": "forecast"}, "late by 12s"),
        ({"state": "finished", "finished_at": NOW, "deadline_at": None}, "finished"),
        ({"state": "failed", "finished_at": NOW}, "failed"),
        ({"state": "cancelled", "finished_at": NOW}, "cancelled"),
    ],
)
def test_a_state_says_where_the_job_stands(changes: dict[str, Any], words: str) -> None:
    assert state_words(view(**changes)) == words


def test_a_hundred_columns_hold_all_figures_and_the_reason() -> None:
    reason = "it waits until default/other reaches the end of its epoch, which takes a while yet"
    header, busy, waiting, below = lines_of(
        [
            view(),
            view(
                service_class="best_effort", state="suspended", workers=0, verdict="none",
                reason=reason, deadline_at=None,
            ),
        ]
    )  # fmt: skip

    columns = "JOB CLASS STATE DEADLINE P50 P90 LAXITY WORKERS EPOCH"
    assert header.split() == columns.split()
    for cell in ("train-digits-012", "hard", "running, promised", "in 1m00s", "in 1m20s", "40/100"):
        assert cell in busy
    assert "best_effort  suspended" in " ".join(waiting.split("   ")).replace(
        "best_effort ", "best_effort  "
    )
    assert below == f"  {reason}"
    assert max(map(len, (header, busy, waiting, below))) <= 100


def test_the_latest_end_comes_first_after_all_that_goes_on() -> None:
    offer = OfferView("deadline", NOW - 30)
    jobs = [
        view("old", state="finished", finished_at=NOW - 500, deadline_at=NOW + 1),
        view("new", state="finished", finished_at=NOW - 5, deadline_at=NOW + 900),
        view("lapsed", state="refused", deadline_at=NOW - 60, offers=(offer,)),
        view("open", state="refused", deadline_at=NOW + 60),
        view("waits", state="queued", workers=0),
        view("late", deadline_at=NOW + 500),
        view("soon", deadline_at=NOW + 50),
    ]

    order = [job.id.removeprefix("default/") for job in in_order(jobs, NOW)]

    assert order == ["soon", "late", "waits", "open", "new", "lapsed", "old"]


def test_a_refused_job_has_no_laxity_left_to_show() -> None:
    _, row, *_ = lines_of([view(state="refused", verdict="refused", laxity_s=-797.0, workers=0)])

    assert "-13m17s" not in row


def panel(job: JobView, now: float = NOW) -> str:
    out = io.StringIO()
    Console(file=out, width=160).print(job_panel(job, now=now))
    return " ".join(out.getvalue().split())


def test_what_was_promised_stands_beside_what_is_expected_now() -> None:
    job = view(given_p90_at=NOW + 70, promised_p90_at=NOW + 115, p90_at=NOW + 115)

    assert "promised P90 00:17:50 (in 1m10s)" in panel(job)
    assert "P90 finish 00:18:35 (in 1m55s)" in panel(job)
    assert f"| promised P90 | {instant_text(NOW + 70)} |" in verdict_markdown(job)


def test_a_promise_that_has_not_moved_shows_one_p90() -> None:
    job = view(given_p90_at=NOW + 70, promised_p90_at=NOW + 70, p90_at=NOW + 70.4)

    assert "P90 finish 00:17:50 (in 1m10s)" in panel(job)
    assert "promised P90" not in panel(job) + verdict_markdown(job)


@pytest.mark.parametrize("code", ["fits", "promise_moved", "promise_in_danger", "forecast"])
def test_a_forecast_in_a_reason_is_that_of_now(code: str) -> None:
    reason = "the P90 finish is now 1970-01-01T00:16:30Z, 26s later; still in time"
    job = view(reason_code=code, reason=reason)

    assert "P90 finish 00:18:00 (in 1m20s), 40s before the deadline" in panel(job)
    assert "ago)" not in panel(job)


def test_only_a_refusal_shows_its_code() -> None:
    starts = view(
        reason_code="due_first", reason="it starts: least slack (8m46s) of the jobs that fit"
    )
    refused = view(
        state="refused", verdict="refused", reason_code="capacity_promised_to_others", reason="no room"
    )  # fmt: skip

    assert "promised it starts: least slack (8m46s) of the jobs that fit" in panel(starts)
    assert "refused capacity_promised_to_others: no room" in panel(refused)


def test_this_machine_counts_slots_and_a_cluster_gpus() -> None:
    nodes = [{"id": "local", "gpus": 2, "free_gpus": 1}]
    here = {"total_gpus": 2, "free_gpus": 1, "world": "local", "nodes": nodes}
    there = here | {"world": "kubernetes"}

    assert cluster_line(here).plain.startswith("1 of 2 slots busy")
    assert cluster_line(there).plain.startswith("1 of 2 GPUs busy")
    assert "GPU" not in cluster_line(here).plain
    assert [str(column.header) for column in node_table(here).columns][3] == "SLOTS"


def test_a_key_is_read_without_enter_and_the_terminal_is_as_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import termios

    theirs, ours = pty.openpty()
    before = termios.tcgetattr(ours)
    with os.fdopen(ours, "r") as terminal:
        monkeypatch.setattr("sys.stdin", terminal)
        with reading_keys() as read_key:
            assert read_key(0.0) == ""
            threading.Timer(0.0, os.write, (theirs, b"q")).start()
            assert select.select([ours], [], [], 30.0)[0]
            assert read_key(30.0) == "q"
        assert termios.tcgetattr(ours) == before
    os.close(theirs)
