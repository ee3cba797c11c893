"""`explain` says how an ended job ended, and tells each decision as of its own instant."""

import io
from datetime import UTC, datetime
from typing import Any

import pytest
from rich.console import Console

from laxity.api.job_view import job_view
from laxity.cli.render.decisions import chain_lines
from laxity.cli.render.job_panel import job_panel
from laxity.human_time import wall_time

T0 = 1_795_694_222.0
REASON = f"the P90 finish is now {datetime.fromtimestamp(T0 + 90, UTC):%Y-%m-%dT%H:%M:%SZ}; still in time"


def explain(job: dict[str, Any], *, after_s: float) -> str:
    row = {"at": T0, "first_at": T0, "decision": {"kind": "promised"}, "reason": REASON}
    verdict = {"verdict": "promised", "reason_code": "promise_moved", "reason": REASON}
    out = io.StringIO()
    answer = {"job": {"id": "default/train", **verdict, **job}, "chain": [row]}
    Console(file=out, width=160).print(chain_lines(answer, now=T0 + after_s))
    return out.getvalue()


def test_a_failed_job_is_explained_by_its_error_not_by_its_last_verdict() -> None:
    job = {"state": "failed", "epochs": 10, "epochs_done": 1, "error": "ValueError: loss is NaN"}

    headline = explain(job, after_s=600.0).splitlines()[1]

    assert headline.startswith("failed after 1 of 10 epochs")
    assert headline.endswith(": ValueError: loss is NaN")


def test_a_decision_is_told_as_of_its_own_instant() -> None:
    lines = explain({"state": "running"}, after_s=30.0).splitlines()

    assert "(in 1m00s)" in lines[1]
    assert "(in 1m30s)" in lines[-1]


@pytest.mark.parametrize(
    ("p90_at", "headline"),
    [
        pytest.param(
            T0 + 110.0, "promised  P90 finish {} (in 1m20s), 10s before the deadline", id="in time"
        ),
        pytest.param(
            T0 + 150.0, "endangered  P90 finish {} (in 2m00s), 30s after the deadline", id="late"
        ),
    ],
)
def test_show_and_explain_begin_with_where_the_job_stands_now(p90_at: float, headline: str) -> None:
    job = {"state": "running", "workers": 1, "deadline_at": T0 + 120.0, "p90_at": p90_at}
    out = io.StringIO()
    promised = {"verdict": "promised", "reason_code": "promise_moved", "reason": REASON}
    Console(file=out, width=160).print(
        job_panel(job_view({"id": "default/train", **promised, **job}), now=T0 + 30.0)
    )

    expected = headline.format(wall_time(p90_at, T0))

    assert explain(job, after_s=30.0).splitlines()[1] == expected
    assert out.getvalue().splitlines()[1].strip("│ ") == expected


def test_a_refused_job_is_explained_with_its_offers_while_they_stand() -> None:
    offer = {"kind": "lent", "gpus_borrowed": 4, "deadline_at": T0 + 600.0, "p50_at": T0 + 300.0}
    refused = {"state": "refused", "verdict": "refused", "offers": [offer]}

    told = explain(refused, after_s=30.0)

    assert "1. class soft: with 4 borrowed GPUs it would likely end" in told
    assert "laxity accept train [N]" in told
    assert "offer" in explain(refused, after_s=900.0), "they have expired, and it says so"
    assert "borrowed" not in explain({"state": "running", "offers": [offer]}, after_s=30.0)
