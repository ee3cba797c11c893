"""Decisions and verdicts as rows for people: what was said anew, not what was said again.

A policy may say in every cycle that a job waits. In the journal that stands each time; in the chain
that `explain` shows it stands once, until something else is said of the job.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import orjson

from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.decision import (
    Admit,
    Continue,
    Decision,
    Forecasted,
    Loan,
    Preempt,
    Promised,
    Reclaim,
    Refuse,
    Resize,
    Wait,
    verdict_after,
)
from laxity_scheduler.model.job import FOREVER
from laxity_scheduler.plan import Plan
from laxity_scheduler.store.codec import WrittenPlan, load_plan, verdict_json, written
from laxity_scheduler.store.journal import Journal, ReplayError
from laxity_scheduler.store.tables import (
    DecisionRow,
    Fresh,
    LoanRow,
    Owed,
    Returned,
    VerdictRow,
    words,
)

LOG: Final = logging.getLogger(__name__)
Family = Literal["verdict", "act", "wait", "nodes"]
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Journalled:
    """A plan that is in the journal, and whose rows are not made yet; `uids` by job id."""

    state: ClusterState
    plan: Plan
    text: WrittenPlan
    uids: Callable[[], Mapping[str, str]]


class Records:
    """Remembers what was said last about each job, and what of it the store does not have yet.

    Rows are made and written after a plan was carried out, as its patches had better not wait for
    them. A service killed in between leaves them to the next one, which finds the plan in the
    journal.
    """

    def __init__(self) -> None:
        self._last: dict[str, dict[Family, object]] = {}
        self._journalled: list[Journalled] = []
        self._owed: list[Owed] = []

    def owe(self, journalled: Journalled) -> None:
        """What this plan says anew is to be written."""
        self._journalled.append(journalled)

    def owed(self) -> list[Owed]:
        """Rows of all decisions that say something new; owed until `paid` is called."""
        while self._journalled:
            self._owed += self._rows(self._journalled[0])
            del self._journalled[0]
        return self._owed

    def paid(self) -> None:
        """What was owed is in the store, or another service has written it."""
        self._owed = []

    def catch_up(self, journal: Journal, uids: Callable[[], Mapping[str, str]]) -> None:
        """Who begins to act owes what the last one to act was killed before it could write."""
        self._journalled, self._owed = [], []
        try:
            last = journal.unsaid()
            plan = load_plan(last.plan) if last is not None else Plan()
        except (ReplayError, ValueError) as error:
            LOG.warning("what was decided last cannot be shown: %s", error)
            return
        if last is not None:
            self.owe(Journalled(last.state, plan, written(plan), uids))

    def _rows(self, one: Journalled) -> list[Owed]:
        found: list[Owed] = []
        uids = one.uids() if one.plan.decisions else {}
        text = one.text
        for decision, said, body in zip(
            one.plan.decisions, text.decisions, text.bodies, strict=True
        ):
            try:
                if self._is_new(decision):
                    found += list(_rows(one.state, decision, said, body, uids))
                    self._remember(decision)
            except Exception:
                LOG.exception("what was decided of %s cannot be shown", subject(decision))
        self._last = {job: said for job, said in self._last.items() if job in one.state.by_id}
        return found

    def _remember(self, decision: Decision) -> None:
        said = self._last.setdefault(subject(decision), {})
        said[_family(decision)] = _words_of(decision)
        if _family(decision) == "act":
            said.pop("wait", None)

    def _is_new(self, decision: Decision) -> bool:
        said = self._last.get(subject(decision))
        return said is None or said.get(_family(decision)) != _words_of(decision)


def subject(decision: Decision) -> str:
    """The job that a decision is about; "" for one about nodes."""
    return "" if isinstance(decision, Loan | Reclaim) else decision.job


def _family(decision: Decision) -> Family:
    if isinstance(decision, Promised | Forecasted | Refuse):
        return "verdict"
    if isinstance(decision, Admit | Resize | Preempt | Continue):
        return "act"
    return "wait" if isinstance(decision, Wait) else "nodes"


def _words_of(decision: Decision) -> object:
    """What makes a decision another one; how long a wait takes still does not."""
    return (decision.reason.code, decision.held_by) if isinstance(decision, Wait) else decision


def _rows(
    state: ClusterState, decision: Decision, said: Json, body: bytes, uids: Mapping[str, str]
) -> Iterator[Owed]:
    """`said` and `body` are the decision as the journal has it."""
    row = {
        "cycle": state.cycle,
        "at": state.now,
        "job": words(subject(decision)),
        "kind": type(decision).__name__.lower(),
        "reason_code": decision.reason.code,
        "reason": words(decision.reason.within(subject(decision).partition("/")[0]).text),
        "body": body,
    }
    yield Fresh(DecisionRow, row)
    if isinstance(decision, Promised | Forecasted | Refuse):
        yield _verdict_row(state, decision, said, uids.get(decision.job, ""))
    if isinstance(decision, Loan):
        for node in decision.nodes:
            taken = {"node": words(node), "cycle": state.cycle, "taken_at": state.now}
            yield Fresh(LoanRow, taken)
    if isinstance(decision, Reclaim):
        yield Returned([words(node) for node in decision.nodes], state.now)


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
