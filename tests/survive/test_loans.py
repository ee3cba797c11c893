"""A loan stands in the store from the decision that takes the nodes to the one that returns them."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from sqlmodel import Session, select

from laxity_scheduler.model.decision import Loan, Reclaim
from laxity_scheduler.model.reasons import reason
from laxity_scheduler.plan import Plan
from laxity_scheduler.store import codec
from laxity_scheduler.store.audit_rows import AuditRows, JournalledPlan
from laxity_scheduler.store.store import Store
from laxity_scheduler.store.tables import LoanRow
from tests.support.builders import cluster

WHY = reason("start_on_lent")
PLANS: Mapping[float, Plan] = {
    10.0: Plan((Loan(("night-0", "night-1"), WHY),)),
    20.0: Plan((Reclaim(("night-0", "night-1"), WHY),)),
    30.0: Plan((Loan(("night-1",), WHY),)),
}


@pytest.mark.parametrize("at_once", [False, True], ids=["each cycle", "written late, all at once"])
def test_nodes_that_go_back_end_their_loans_and_no_later_ones(
    at_once: bool, tmp_path: Path
) -> None:
    store, records = Store.open(f"sqlite:///{tmp_path}/laxity.db"), AuditRows()
    for now, plan in PLANS.items():
        state = cluster(now=now, cycle=int(now))
        records.add_plan(JournalledPlan(state, plan, codec.encode_plan(plan), dict))
        if not at_once:
            store.write_rows(records.pending_rows())
            records.mark_flushed()
    store.write_rows(records.pending_rows())
    with Session(store.engine) as session:
        rows = [(row.node, row.taken_at, row.returned_at) for row in session.exec(select(LoanRow))]
    assert rows == [("night-0", 10.0, 20.0), ("night-1", 10.0, 20.0), ("night-1", 30.0, None)]
    store.close()
