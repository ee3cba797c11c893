"""Decisions and verdicts as rows for people: what was said anew, not what was said again.

A policy may say in every cycle that a job waits. In the journal that stands each time; in the chain
that `explain` shows it stands once, until something else is said of the job.
"""

from collections.abc import Iterator
from typing import Any, Literal

import orjson

from laxity_scheduler.memory.codec import WrittenPlan, verdict_json
from laxity_scheduler.memory.store import DecisionRow, Fresh, LoanRow, VerdictRow, words
from laxity_scheduler.plan import (
    Admit,
    Decision,
    Forecasted,
    Loan,
    Plan,
    Preempt,
    Promised,
    Reclaim,
    Refuse,
    Resize,
    Wait,
    verdict_after,
)
from laxity_scheduler.state import FOREVER, ClusterState

Family = Literal["verdict", "act", "wait", "nodes"]
Json = dict[str, Any]


class Records:
    """Remembers what was said last about each job."""

    def __init__(self) -> None:
        self._last: dict[str, dict[Family, object]] = {}

    def rows(
        self, state: ClusterState, plan: Plan, text: WrittenPlan, uids: dict[str, str]
    ) -> list[Fresh]:
        """Rows of all decisions of the plan that say something new; `uids` by job id."""
        found: list[Fresh] = []
        for decision, said, body in zip(plan.decisions, text.decisions, text.bodies, strict=True):
            if self._is_new(decision):
                found += _rows(state, decision, said, body, uids)
        return found

    def written(self, state: ClusterState, plan: Plan) -> None:
        """The rows of this plan are in the store: the same words need not be written again."""
        for decision in filter(self._is_new, plan.decisions):
            said = self._last.setdefault(subject(decision), {})
            said[_family(decision)] = _words_of(decision)
            if _family(decision) == "act":
                said.pop("wait", None)
        self._last = {job: said for job, said in self._last.items() if job in state.by_id}

    def _is_new(self, decision: Decision) -> bool:
        said = self._last.get(subject(decision))
        return said is None or said.get(_family(decision)) != _words_of(decision)


def subject(decision: Decision) -> str:
    """The job that a decision is about; "" for one about nodes."""
    return "" if isinstance(decision, Loan | Reclaim) else decision.job


def _family(decision: Decision) -> Family:
    if isinstance(decision, Promised | Forecasted | Refuse):
        return "verdict"
    if isinstance(decision, Admit | Resize | Preempt):
        return "act"
    return "wait" if isinstance(decision, Wait) else "nodes"


def _words_of(decision: Decision) -> object:
    """What makes a decision another one; how long a wait takes still does not."""
    return (decision.reason.code, decision.held_by) if isinstance(decision, Wait) else decision


def _rows(
    state: ClusterState, decision: Decision, said: Json, body: bytes, uids: dict[str, str]
) -> Iterator[Fresh]:
    """`said` and `body` are the decision as the journal has it."""
    row = {
        "cycle": state.cycle,
        "at": state.now,
        "job": words(subject(decision)),
        "kind": type(decision).__name__.lower(),
        "reason_code": decision.reason.code,
        "reason": words(decision.reason.text),
        "body": body,
    }
    yield Fresh(DecisionRow, row)
    if isinstance(decision, Promised | Forecasted | Refuse):
        yield _verdict_row(state, decision, said, uids.get(decision.job, ""))
    if isinstance(decision, Loan):
        for node in decision.nodes:
            taken = {"node": words(node), "cycle": state.cycle, "taken_at": state.now}
            yield Fresh(LoanRow, taken)


def _verdict_row(
    state: ClusterState, decision: Promised | Forecasted | Refuse, text: Json, uid: str
) -> Fresh:
    job = state.by_id[decision.job]
    said = verdict_after(job, decision, state.now)
    if isinstance(decision, Promised):  # the journal has it word by word
        verdict = {"kind": type(said).__name__, **text["promise"]}
    else:
        verdict = verdict_json(said)
    values = {
        "uid": uid,
        "job": words(decision.job),
        "cycle": state.cycle,
        "at": state.now,
        "kind": type(said).__name__.lower(),
        "deadline_at": getattr(said, "deadline_at", job.deadline_at),
        "p50_at": getattr(said, "p50_at", FOREVER),
        "p90_at": said.p90_at,
        "body": orjson.dumps(verdict),
    }
    return Fresh(VerdictRow, values)
