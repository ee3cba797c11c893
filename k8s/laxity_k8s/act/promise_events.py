"""Which Events a promise is worth: not every move of its finish, and a risk that its Job brings along."""

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Final

from laxity import json_tree
from laxity.human_time import count_noun
from laxity.parsing import whole_number
from laxity_k8s.cluster_api import Json
from laxity_k8s.observe.moved_promises import CODE
from laxity_scheduler.model.decision import Decision, Forecasted, Promised
from laxity_scheduler.model.job import Job, Refusal

SHARE: Final = 0.1  # of the slack; what moves less is the Job's reason, and no Event
BACKOFF_CODE: Final = "backoff_limit_too_low"


@dataclass(frozen=True, slots=True)
class Told:
    """The deadline and finish that an Event named last, and the slack when the promise was given."""

    deadline_at: float
    p90_at: float
    slack_s: float


class MoveFilter:
    """Which moves of promises are news; forgetting costs one Event for each Job, no more."""

    def __init__(self) -> None:
        self._told: dict[str, Told] = {}

    def is_news(self, job_id: str, decisions: Sequence[Decision]) -> bool:
        """Whether the promise has moved by a tenth of its slack since it was told last.

        Another state or another deadline is always news.
        """
        promised = next((one for one in reversed(decisions) if isinstance(one, Promised)), None)
        if promised is None:
            return True
        promise, told = promised.promise, self._told.get(job_id)
        moved = promised.reason.code == CODE and told is not None
        if told is None or told.deadline_at != promise.deadline_at or not moved:
            slack_s = promise.deadline_at - promise.p90_at
        elif abs(promise.p90_at - told.p90_at) > SHARE * told.slack_s:
            slack_s = told.slack_s
        else:
            return False
        self._told[job_id] = Told(promise.deadline_at, promise.p90_at, slack_s)
        return True

    def keep_only(self, job_ids: Container[str]) -> None:
        """Forget all other Jobs."""
        self._told = {key: told for key, told in self._told.items() if key in job_ids}


def describe_backoff_limit(job: Json, row: Job, decisions: Sequence[Decision]) -> str:
    """With its first verdict: that one lost node may fail a Job; "" where its limit is high enough."""
    is_accepted = any(isinstance(decision, Promised | Forecasted) for decision in decisions)
    limit = whole_number(json_tree.get_in(job, "spec", "backoffLimit"))
    workers = max(row.widths, default=1)
    if not is_accepted or not isinstance(row.verdict, Refusal | None):
        return ""
    if limit is None or limit >= workers:
        return ""
    return (
        f"backoffLimit {limit} is below its {count_noun(workers, 'worker')}: Kubernetes may fail the "
        "Job when one node is lost; write backoffLimit: 1000"
    )
