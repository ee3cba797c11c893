import io
from dataclasses import asdict
from typing import Any

import pytest
from rich.console import Console

from laxity.api.client import JobView
from laxity.api.job_view import OfferView
from laxity.api.status_text import instant_text, standing_text, verdict_markdown
from laxity.cli.render.decisions import chain_lines
from laxity.cli.render.job_panel import job_panel, verdict_line, whatif_lines
from laxity.cli.render.job_table import COLUMNS, job_cells, job_table
from laxity.human_time import instant_text as instant_seen_from
from laxity.human_time import wall_time

NOW = 1_000.0


def shown(job: JobView, *, columns: int = 160) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=columns).print(job_table([job], now=NOW))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def running(**changes: object) -> JobView:
    view: dict[str, object] = {
        "id": "default/train",
        "service_class": "hard",
        "state": "running",
        "verdict": "promised",
        "deadline_at": NOW + 120,
        "p50_at": NOW + 60,
        "p90_at": NOW + 80,
        "laxity_s": 40.0,
        "workers": 2,
        "formed": 2,
        "epochs": 10,
        "epochs_done": 4,
        "reason": "because " * 40,
    }
    return JobView(**{**view, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize("columns", [120, 160])
def test_on_a_narrow_screen_only_the_reason_is_cut(columns: int) -> None:
    _, row = shown(running(), columns=columns)

    for cell in ("train", "hard", "running", "promised", "in 1m00s", "in 1m20s", "40s", "4/10"):
        assert cell in row
    assert row.endswith("…")
    assert len(row) <= columns


def test_a_promise_of_which_no_end_can_be_foreseen_is_endangered() -> None:
    """As where its pods cannot end, or somebody has stopped it by hand: there is no P90 finish."""
    job = running(workers=0, state="queued", p50_at=None, p90_at=None, raw={"danger": True})

    _, row = shown(job)

    assert "queued, endangered" in row
    assert standing_text(job).startswith("endangered, deadline ")


def test_eighty_columns_hold_laxity_and_workers() -> None:
    header, row = shown(running(), columns=80)

    assert {"LAXITY", "WORKERS"} <= set(header.split())
    assert "40s" in row


@pytest.mark.parametrize("columns", [50, 60])
def test_a_very_narrow_screen_shows_fewer_columns_and_cuts_none(columns: int) -> None:
    _, row = shown(running(), columns=columns)

    for cell in ("train", "running", "promised", "in 1m20s", "4/10"):
        assert cell in row
    assert "hard" not in row
    assert "…" not in row


def test_the_longest_name_leaves_room_for_where_the_job_stands() -> None:
    header, row = shown(running(id=f"default/{'n' * 63}"), columns=80)

    assert {"JOB", "STATE", "DEADLINE"} <= set(header.split())
    assert {"running,", "promised"} <= set(row.split())
    assert row.startswith("n" * 16)
    assert len(row) <= 80


def test_a_width_that_is_about_to_change_shows_both() -> None:
    _, row = shown(running(formed=1, reason="late"))

    assert "1->2" in row


def test_an_ended_job_shows_how_it_stands_to_its_deadline() -> None:
    _, late = shown(running(state="finished", finished_at=NOW + 130, workers=0))
    _, kept = shown(running(state="finished", finished_at=NOW + 110, workers=0))

    assert "broken by 10s" in late
    assert "kept, 10s early" in kept


def test_a_job_that_finished_without_a_deadline_shows_no_old_reason() -> None:
    ended = {"state": "finished", "finished_at": NOW, "workers": 0, "deadline_at": None}
    _, row = shown(running(**ended, verdict="forecast"))

    assert row.endswith("4/10")


def test_the_namespace_default_is_left_out_and_others_are_not() -> None:
    assert shown(running(id="team/train"))[1].startswith("team/train")


def test_a_clock_deadline_is_shown_with_its_zone() -> None:
    job = running(deadline_clock="06:00 Europe/Berlin")
    out = io.StringIO()
    Console(file=out, width=160).print(job_panel(job, now=NOW))
    lines = out.getvalue().splitlines()
    assert any("(in 2m00s): 06:00 Europe/Berlin" in line for line in lines)
    assert standing_text(job).endswith("Z: 06:00 Europe/Berlin")


def test_a_refused_deadline_is_shown_beside_the_promise() -> None:
    out = io.StringIO()
    refused = {"deadline_at": NOW + 60, "reason_code": "invalid", "reason": "no room\x1b[2J"}
    job = running(refused_deadline=refused)
    Console(file=out, width=160).print(job_panel(job, now=NOW))
    line = next(line for line in out.getvalue().splitlines() if "refused deadline" in line)
    assert "(in 1m00s), asked again when there is room: no room" in line
    assert "\x1b[2J" not in line


@pytest.mark.parametrize(
    ("changes", "headline", "because"),
    [
        (
            {"state": "finished", "finished_at": NOW + 80},
            "finished in time, 40s before its deadline; it was promised",
            "finished 40s before the deadline",
        ),
        (
            {"state": "finished", "finished_at": NOW + 180},
            "finished late by 1m00s; it was promised",
            "finished 1m00s after the deadline",
        ),
        (
            {"state": "failed", "finished_at": NOW, "error": "no data"},
            "failed after 4 of 10 epochs; it was promised",
            "failed after 4 of 10 epochs; it was promised",
        ),
        (
            {"state": "cancelled", "finished_at": NOW, "verdict": "none", "deadline_at": None},
            "cancelled after 4 of 10 epochs",
            "cancelled after 4 of 10 epochs",
        ),
    ],
)
def test_an_ended_job_is_headed_by_how_it_ended(
    changes: dict[str, object], headline: str, because: str
) -> None:
    job, out = running(workers=0, reason_code="fits", **changes), io.StringIO()
    Console(file=out, width=160).print(job_panel(job, now=NOW + 200))

    assert out.getvalue().splitlines()[1].strip("│ ") == headline
    assert because in verdict_markdown(job).splitlines()[2]
    assert "fits" not in verdict_markdown(job)


def test_an_ended_job_shows_what_was_first_predicted_beside_the_truth() -> None:
    job = running(
        workers=0, state="finished", finished_at=NOW + 80, p50_at=NOW + 80, p90_at=NOW + 80,
        promised_p90_at=NOW + 79, first_p50_at=NOW + 40, first_p90_at=NOW + 90, first_run_s=60.0,
        width_history=((NOW, 1), (NOW + 80, 0)), given_p90_at=NOW + 79,
    )  # fmt: skip
    out = io.StringIO()
    Console(file=out, width=160).print(job_panel(job, now=NOW + 200))
    panel, artifact = out.getvalue(), verdict_markdown(job)

    comparison = "predicted 1m00s of run time, took 1m20s"
    assert comparison in panel
    assert f"| prediction | {comparison} |" in artifact.replace("\\", "")
    assert f"| first P90 finish | {instant_text(NOW + 90)} |" in artifact
    assert "promised P90" not in panel + artifact


@pytest.mark.parametrize(
    ("state", "offer_at", "now", "want"),
    [
        pytest.param("refused", NOW + 300, NOW + 200, False, id="an offer is open"),
        pytest.param("refused", NOW + 300, NOW + 301, True, id="its offer has expired"),
        pytest.param("refused", None, NOW + 119, False, id="no offer, and the deadline is ahead"),
        pytest.param("refused", None, NOW + 121, True, id="no offer, and the deadline has passed"),
        pytest.param("running", None, NOW + 121, False, id="late but not refused"),
    ],
)
def test_a_refusal_lapses_with_its_deadline_and_its_offers(
    state: str, offer_at: float | None, now: float, *, want: bool
) -> None:
    offers = (OfferView("deadline", offer_at),) if offer_at else (OfferView("soft"),)
    job = running(state=state, workers=0, verdict="refused", offers=offers)

    assert job.has_lapsed(now) is want


def test_a_finished_job_that_reports_no_epochs_is_not_shown_as_at_its_beginning() -> None:
    plain = running(state="finished", workers=0, finished_at=NOW, epochs_done=0)
    out = io.StringIO()
    Console(file=out, width=160).print(job_panel(plain, now=NOW))

    assert "0/10" not in shown(plain)[1]
    assert "0 of 10" not in out.getvalue()
    assert "0/10" in shown(running(epochs_done=0))[1]


def test_a_cancelled_job_no_longer_says_why_it_waited() -> None:
    waited = running(workers=0, state="cancelled", finished_at=NOW, reason="it needs 1 GPU; 0 free")

    assert "it needs" not in shown(waited)[1]


@pytest.mark.parametrize(
    ("fields", "is_shown"),
    [
        pytest.param({"holds_state": False}, True, id="it holds no state"),
        pytest.param({"holds_state": True}, False, id="it holds state"),
        pytest.param({}, False, id="an older service does not say"),
        pytest.param(
            {"holds_state": False, "state": "finished", "finished_at": NOW}, False, id="it is done"
        ),
    ],
)
def test_that_a_stop_loses_all_epochs_is_shown(fields: dict[str, Any], *, is_shown: bool) -> None:
    job, words = running(**fields), "so a stop loses all epochs"
    out = io.StringIO()
    Console(file=out, width=160).print(job_panel(job, now=NOW))
    Console(file=out, width=160).print(chain_lines({"job": asdict(job)}, now=NOW))

    assert out.getvalue().count(words) == 2 * is_shown


@pytest.mark.parametrize("state", ["running", "failed"])
def test_why_a_worker_failed_is_explained_once_while_its_job_runs_and_afterwards(
    state: str,
) -> None:
    died = "worker 0 failed with exit code 7"
    job, out = running(state=state, error=died), io.StringIO()
    Console(file=out, width=160).print(chain_lines({"job": asdict(job)}, now=NOW))

    assert out.getvalue().count(died) == 1


def test_a_cancelled_job_shows_no_predicted_end() -> None:
    cancelled = running(
        workers=0, state="cancelled", finished_at=NOW, first_p50_at=NOW + 40, first_p90_at=NOW + 90
    )
    out = io.StringIO()
    Console(file=out, width=160).print(job_panel(cancelled, now=NOW))
    row = dict(zip(COLUMNS, job_cells(cancelled, NOW), strict=True))

    assert (row["P50"].plain, row["P90"].plain) == ("-", "-")
    assert "P50" not in out.getvalue() + verdict_markdown(cancelled)
    assert "P90" not in out.getvalue() + verdict_markdown(cancelled)
    assert f"ended {instant_seen_from(NOW, NOW)}" in " ".join(out.getvalue().split())


def test_an_end_that_was_expected_in_the_past_is_expected_now() -> None:
    late = running(p50_at=NOW - 16, p90_at=NOW - 3)
    out = io.StringIO()
    Console(file=out, width=160).print(job_panel(late, now=NOW))

    assert "16s ago" not in shown(late)[1]
    assert [line.split()[1:4] for line in out.getvalue().splitlines() if "finish" in line] == [
        ["P50", "finish", "now"],
        ["P90", "finish", "now"],
    ]


def test_an_end_that_a_refused_job_would_have_had_is_not_shown_afterwards() -> None:
    stale = {"p50_at": None, "p90_at": NOW - 600, "workers": 0, "formed": 0}
    refused = running(state="refused", verdict="refused", **stale)
    out = io.StringIO()
    Console(file=out, width=160).print(job_panel(refused, now=NOW))

    assert "ago" not in shown(refused)[1]
    assert "P90 finish" not in out.getvalue()


def test_a_refused_job_that_still_has_offers_shows_no_forecast() -> None:
    refused = running(state="refused", verdict="refused", workers=0, formed=0, reason="")

    _, row = shown(refused)

    assert "in 1m" not in row


def test_a_job_that_waits_says_when_it_may_start() -> None:
    waits = {"state": "queued", "workers": 0, "reason": "it needs 1 GPU"}

    due = running(**waits, expected_start_at=NOW + 90)
    _, row = shown(due)
    _, unknown = shown(running(**waits, expected_start_at=None))

    assert f"| expected start | {instant_text(NOW + 90)} |" in verdict_markdown(due)
    assert row.endswith("it needs 1 GPU; may start in 1m30s")
    assert unknown.endswith("it needs 1 GPU")


def test_a_job_that_waits_names_the_first_three_that_hold_what_it_needs() -> None:
    waits = {"state": "queued", "workers": 0, "expected_start_at": None}
    holders = ("team/a", "team/b", "team/c", "team/d")

    _, many = shown(running(**waits, reason="it needs 1 GPU", held_by=holders))
    _, one = shown(running(**waits, reason="it needs 1 GPU", held_by=holders[:1]))
    _, named = shown(running(**waits, reason="team/a makes way", held_by=holders[:1]))
    _, runs = shown(running(reason_code="resized", reason="grown", held_by=holders))

    assert many.endswith("it needs 1 GPU; held by team/a, team/b, team/c and more")
    assert one.endswith("it needs 1 GPU; held by team/a")
    assert named.endswith("team/a makes way")
    assert "held by" not in runs


def test_runs_of_one_name_are_told_apart_by_when_they_were_submitted() -> None:
    runs = [running(submitted_at=NOW - ago_s) for ago_s in (900.0, 60.0)]
    out = io.StringIO()

    Console(file=out, width=160).print(job_table([*runs, running(id="default/alone")], now=NOW))

    _, first, second, alone = (
        line.split("hard")[0].split() for line in out.getvalue().splitlines()
    )
    assert [first, second, alone] == [
        ["train", wall_time(NOW - 900.0, NOW)],
        ["train", wall_time(NOW - 60.0, NOW)],
        ["alone"],
    ]


def test_a_verdict_whose_code_is_the_same_word_says_it_once() -> None:
    line = verdict_line("forecast", "forecast", "it runs when there is room").plain
    assert line == "forecast  it runs when there is room"


def test_whatif_says_why_a_policy_without_promises_gives_no_verdict() -> None:
    out = io.StringIO()
    Console(file=out, width=160).print(whatif_lines({"verdict": "none"}, now=NOW))
    assert "none  the service's policy gives no verdicts" in out.getvalue()
