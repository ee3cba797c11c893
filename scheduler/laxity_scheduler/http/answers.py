"""What calls answer, as schemas of the OpenAPI document. Answers themselves are plain values.

Instants are POSIX seconds. A newer service may add fields.
"""

from inspect import getdoc
from typing import Any, Final, get_type_hints

from pydantic import BaseModel, Field, create_model

from laxity.api.job_view import JobView, OfferView

Fields = dict[str, Any]


def _fields_of_job() -> Fields:
    """Those of a client's JobView under their names in JSON, and what only the service's answer has."""
    hints = {name: hint for name, hint in get_type_hints(JobView).items() if name != "raw"}
    hints["class"] = hints.pop("service_class")
    more = {
        "gpus_per_worker": int, "experiment": str, "flow_run": str, "followed_by": str,
        "idempotency_key": str, "after": list[str], "outcome": str, "broken": bool,
        "verdict_code": str, "danger": bool | None, "has_stalled": bool | None, "project": Fields,
    }  # fmt: skip
    # what one call adds, and others lack
    rest = {"attached", "project", "share_reason", "run_url", "untracked", "revision"}
    return {
        name: (hint, None) if name in rest else (hint, ...) for name, hint in (hints | more).items()
    }


Job: Final = create_model("Job", __doc__=getdoc(JobView), **_fields_of_job())


class JobList(BaseModel):
    """All jobs that the token may see, in order of submission."""

    jobs: list[Job]  # type: ignore[valid-type] # made above


class JobVerdict(BaseModel):
    """The latest verdict, with checked offers if the deadline was refused."""

    kind: str
    reason_code: str
    reason: str
    offers: list[OfferView]
    p50_at: float | None
    p90_at: float | None


class DecisionAnswer(BaseModel):
    """A decision about a job, how often it was taken in a row, and since when."""

    job: str
    cycle: int
    at: float
    first_at: float
    times: int
    decision: Fields
    reason_code: str
    reason: str


class Explanation(BaseModel):
    """Why a job is where it is: the job, its verdict, the decisions about it, and who holds it up."""

    job: Job  # type: ignore[valid-type]
    verdict: JobVerdict
    chain: list[DecisionAnswer]
    held_by: list[str]
    expected_start_at: float | None


class DecisionList(BaseModel):
    """The latest decisions."""

    decisions: list[DecisionAnswer]


class WhatIfAnswer(BaseModel):
    """The verdict that a job would get, when it would start, and what it would do to others."""

    job: str
    verdict: str
    verdict_code: str
    reason_code: str
    reason: str
    offers: list[OfferView]
    p50_at: float | None
    p90_at: float | None
    deadline_at: float | None = None
    promised_p90_at: float | None = None
    runs: list[tuple[float | None, int]] = []
    rests_on: list[str] = []
    prediction_note: str = ""
    checked_at: float
    cycle: int
    starts_now: bool
    workers: int
    held_by: list[str]
    expected_start_at: float | None = None
    waits_reason: str = ""
    effects: list[Fields]


class WorkerLog(BaseModel):
    """What a worker has printed."""

    text: str


class GroupAnswer(BaseModel):
    """Several jobs with one deadline: verdict on the whole, steps with their shares, and jobs."""

    id: str
    kind: str
    workflow: str
    service_class: str = Field(alias="class")
    state: str
    deadline_at: float | None
    submitted_at: float
    finished_at: float | None
    steps: list[Fields]
    verdict: str
    reason_code: str = ""
    reason: str
    offers: list[Fields]
    p50_at: float | None = None
    p90_at: float | None = None
    jobs: list[Job] = []  # type: ignore[valid-type]
    attached: bool = False


class GroupList(BaseModel):
    """All groups that the token may see, in order of submission."""

    groups: list[GroupAnswer]


class NodeRow(BaseModel):
    """A node, and when inference wants it back if it is lent."""

    id: str
    gpus: int
    free_gpus: int
    gpu_type: str
    pool: str
    reclaim_at: float | None


class Cluster(BaseModel):
    """Capacity, policy, and how promises have come out."""

    now: float
    nodes: list[NodeRow]
    total_gpus: int
    free_gpus: int
    cycle: int
    policy: str
    learned: Fields | None
    world: str
    predictor_version: str
    acting: bool
    failure: str
    promises: dict[str, int]
    loans: Fields | None


def answering(model: type[BaseModel], *codes: int) -> dict[int | str, Fields]:
    """The responses of a call that answers with this model, at 200 or at these codes."""
    text = " ".join((getdoc(model) or "").partition("\n\n")[0].split())
    return {code: {"model": model, "description": text} for code in codes or (200,)}
