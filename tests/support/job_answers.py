"""What the stand-in service answers of a job: a refusal with its offer, or any view."""

from typing import Any

from tests.support.http_service import Service, job

OFFER = {
    "kind": "deadline",
    "deadline_at": 2_000_000_500.0,
    "widths": [1, 2],
    "p90_at": 2_000_000_400.0,
    "checked_at": 1.0,
    "gpus_borrowed": 0,
}


REFUSED = job(
    state="refused",
    verdict="refused",
    reason_code="deadline_before_fastest_finish",
    reason="even alone the P90 finish is 8m later",
    offers=[OFFER],
    workers=0,
)


def answer_job(answering: Service, view: dict[str, Any]) -> None:
    answering.answers["POST /v1/jobs"] = (201, view)
    answering.answers["GET /v1/jobs/default/train"] = (200, view)
    answering.answers["POST /v1/jobs/default/train/amend"] = (200, view)
    answering.answers["POST /v1/jobs/default/train/accept"] = (200, view)
