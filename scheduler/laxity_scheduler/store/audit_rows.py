"""Decisions and verdicts as rows for people, without repeats.

A policy may decide in every cycle that a job waits. The journal has each of these decisions; the
chain that `explain` shows has one row for each reason, until something else is done about the job: in
a long queue each start would otherwise be two rows of each job that waits.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from laxity.instants import format_rfc3339
from laxity_scheduler.job_faults import JobFaults
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
from laxity_scheduler.model.job import FOREVER, Refusal
from laxity_scheduler.model.reasons import Reason
from laxity_scheduler.plan import Plan
from laxity_scheduler.store.codec import (
    EncodedPlan,
    encode_plan,
    json_bytes,
    load_plan,
    verdict_json,
)
from laxity_scheduler.store.journal import Journal, ReplayError
from laxity_scheduler.store.tables import (
    DecisionRow,
    EndedLoans,
    LoanRow,
    NewRow,
    PendingRow,
    VerdictRow,
    storable_text,
)

LOG: Final = logging.getLogger(__name__)
NOT_DONE: Final = "what was decided could not be written on the Job, it is tried again: {why}"
MOVED_SHARE: Final = 0.1
STANDS: Final = "the promise that was given stands"
Family = Literal["verdict", "act", "wait", "nodes", "undone"]
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class JournalledPlan:
    """A plan that is in the journal, and whose rows are not made yet; `uids` by job id.

    `undone` are the jobs on which it could not be carried out, and why ("": that is not known yet).
    """

    state: ClusterState
    plan: Plan
    text: EncodedPlan
    uids: Callable[[], Mapping[str, str]]
    undone: Callable[[], Mapping[str, str]] = dict


class AuditRows:
    """The last row of each job, and the rows that the store does not have yet.

    Rows are made and written after a plan was carried out, so that its patches need not wait for
    them. A service that is killed in between leaves them to the next one, which finds the plan in
    the journal.
    """

    def __init__(self, faults: JobFaults | None = None) -> None:
        self._faults = faults or JobFaults()
        self._last: dict[str, dict[Family, Any]] = {}  # of waits: the codes of all reasons
        self._journalled: list[JournalledPlan] = []
        self._pending: list[PendingRow] = []
        self._answers: list[PendingRow] = []  # given between cycles, by any thread

    def add_answer(self, row: PendingRow) -> None:
        """Write this row, too, when `pending_rows` is called; any thread may call this."""
        self._answers.append(row)

    def add_plan(self, journalled: JournalledPlan) -> None:
        """Make rows of this plan later, when `pending_rows` is called."""
        self._journalled.append(journalled)

    def pending_rows(self) -> list[PendingRow]:
        """Rows of all decisions that say something new; pending until `paid` is called."""
        while self._journalled:
            self._pending += self._rows_of_plan(self._journalled[0])
            del self._journalled[0]
        while self._answers:
            self._pending.append(self._answers.pop(0))
        return self._pending

    def mark_flushed(self) -> None:
        """The pending rows are in the store, or another service has written them."""
        self._pending = []

    def catch_up(self, journal: Journal, uids: Callable[[], Mapping[str, str]]) -> None:
        """Add the last journalled plan if its rows are missing: the service before was killed."""
        self._journalled, self._pending = [], []
        try:
            last = journal.entry_without_rows()
            plan = load_plan(last.plan) if last is not None else Plan()
        except (ReplayError, ValueError) as error:
            LOG.warning("what was decided last cannot be shown: %s", error)
            return
        if last is not None:
            self.add_plan(JournalledPlan(last.state, plan, encode_plan(plan), uids))

    def _rows_of_plan(self, journalled: JournalledPlan) -> list[PendingRow]:
        new_rows: list[PendingRow] = []
        uids = journalled.uids() if journalled.plan.decisions else {}
        encoded, undone = journalled.text, journalled.undone()
        for decision, document, body in zip(
            journalled.plan.decisions, encoded.decisions, encoded.bodies, strict=True
        ):
            subject = subject_of(decision)
            with self._faults.isolate("explanation", subject):
                if subject in undone:
                    new_rows += self._rows_of_undone(journalled.state, subject, undone[subject])
                elif self._is_new(decision, journalled.state.now):
                    new_rows += list(
                        _rows_of_decision(journalled.state, decision, document, body, uids)
                    )
                    self._remember_decision(decision)
        shown = journalled.state.by_id
        self._last = {
            job: families
            for job, families in self._last.items()
            # who was refused is left out of the states until it is tried again
            if job in shown or ("undone" in families and (job in uids or not uids))
        }
        return new_rows

    def _rows_of_undone(self, state: ClusterState, job_id: str, why: str) -> list[PendingRow]:
        """One row until something is done about the job again, however often it is tried."""
        families = self._last.setdefault(job_id, {})
        if not why or families.get("undone") == why:
            return []
        families["undone"] = why
        return [_row_of_answer(state, job_id, "undone", "patch_refused", NOT_DONE.format(why=why))]

    def _remember_decision(self, decision: Decision) -> None:
        families = self._last.setdefault(subject_of(decision), {})
        families.pop("undone", None)
        if isinstance(decision, Wait):
            families["wait"] = {*families.get("wait", ()), decision.reason.code}
            return
        families[_family_of(decision)] = decision
        if _family_of(decision) == "act":
            families.pop("wait", None)

    def _is_new(self, decision: Decision, now: float) -> bool:
        last = self._last.get(subject_of(decision), {}).get(_family_of(decision))
        if isinstance(decision, Wait):
            return last is None or decision.reason.code not in last
        if isinstance(decision, Forecasted) and isinstance(last, Forecasted):
            return _has_moved(last, decision, now)
        return last != decision


def subject_of(decision: Decision) -> str:
    """The job that a decision is about; "" for one about nodes."""
    return "" if isinstance(decision, Loan | Reclaim) else decision.job


def _family_of(decision: Decision) -> Family:
    if isinstance(decision, Promised | Forecasted | Refuse):
        return "verdict"
    if isinstance(decision, Admit | Resize | Preempt | Continue):
        return "act"
    return "wait" if isinstance(decision, Wait) else "nodes"


def _has_moved(last: Forecasted, new: Forecasted, now: float) -> bool:
    """Whether a forecast differs in its reason, or by more than a tenth of the time to its finish."""
    before_at, after_at = last.forecast.p90_at, new.forecast.p90_at
    if last.reason.code != new.reason.code or before_at == after_at:
        return last.reason.code != new.reason.code
    return abs(after_at - before_at) > MOVED_SHARE * max(0.0, min(before_at, after_at) - now)


def _rows_of_decision(
    state: ClusterState, decision: Decision, document: Json, body: bytes, uids: Mapping[str, str]
) -> Iterator[PendingRow]:
    """`document` and `body` are the decision as the journal has it."""
    row = {
        "cycle": state.cycle,
        "at": state.now,
        "job": storable_text(subject_of(decision)),
        "kind": type(decision).__name__.lower(),
        "reason_code": decision.reason.code,
        "reason": storable_text(
            decision.reason.within(subject_of(decision).partition("/")[0]).text
        ),
        "body": body,
    }
    yield NewRow(DecisionRow, row)
    if isinstance(decision, Promised | Forecasted | Refuse):
        yield _verdict_row(state, decision, document, uids.get(decision.job, ""))
    if isinstance(decision, Loan):
        for node in decision.nodes:
            loan = {"node": storable_text(node), "cycle": state.cycle, "taken_at": state.now}
            yield NewRow(LoanRow, loan)
    if isinstance(decision, Reclaim):
        yield EndedLoans([storable_text(node) for node in decision.nodes], state.now)


def refused_amendment(
    state: ClusterState, job_id: str, deadline_at: float, refusal: Refusal
) -> PendingRow:
    """The row of another deadline that was asked for and refused, while the promise stands."""
    why = refusal.reason.within(job_id.partition("/")[0]).text
    asked = format_rfc3339(deadline_at, "seconds")
    text = f"a deadline of {asked} was asked for and refused: {why}; {STANDS}"
    return _row_of_answer(state, job_id, "amend", refusal.reason.code, text)


def row_of_notice(state: ClusterState, job_id: str, notice: Reason) -> PendingRow:
    """The row of what is told of a job while nothing is decided about it."""
    return _row_of_answer(state, job_id, "notice", notice.code, notice.text)


def _row_of_answer(state: ClusterState, job_id: str, kind: str, code: str, text: str) -> PendingRow:
    """A row for people about something that is no decision of a plan."""
    values = {
        "cycle": state.cycle,
        "at": state.now,
        "job": storable_text(job_id),
        "kind": kind,
        "reason_code": code,
        "reason": storable_text(text),
        "body": b"{}",
    }
    return NewRow(DecisionRow, values)


def _verdict_row(
    state: ClusterState, decision: Promised | Forecasted | Refuse, document: Json, uid: str
) -> NewRow:
    job = state.by_id[decision.job]
    verdict = verdict_after(job, decision, state.now)
    if isinstance(decision, Promised):  # the journal has it word by word
        verdict_document = {"kind": type(verdict).__name__, **document["promise"]}
    else:
        verdict_document = verdict_json(verdict)
    values = {
        "uid": uid,
        "job": storable_text(decision.job),
        "cycle": state.cycle,
        "at": state.now,
        "kind": type(verdict).__name__.lower(),
        "deadline_at": getattr(verdict, "deadline_at", job.deadline_at),
        "p50_at": getattr(verdict, "p50_at", FOREVER),
        "p90_at": verdict.p90_at,
        "body": json_bytes(verdict_document),
    }
    return NewRow(VerdictRow, values)
