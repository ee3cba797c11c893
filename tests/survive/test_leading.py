"""Taking over among replicas: earlier terms end, and what may be under way is fenced off first."""

from collections.abc import Sequence
from pathlib import Path

import orjson
import pytest

from laxity_scheduler.service.leadership import Leadership
from laxity_scheduler.store.store import StaleServiceError, Store, StoreError
from laxity_scheduler.store.tables import CycleRow, DecisionRow, NewRow

SAID = {
    "cycle": 1, "at": 1.0, "job": "n/a", "kind": "wait", "reason_code": "", "reason": "",
    "body": b"{}",
}  # fmt: skip


class Lease:
    """An election that a test decides."""

    def __init__(self, me: str) -> None:
        self.me = self.holder = me
        self.reign, self.silence = 0, ""
        self.fenced: list[tuple[list[str], int]] = []
        self.lost_while_fencing = False

    def fence(self, jobs: Sequence[str], term: int) -> None:
        self.fenced.append((list(jobs), term))
        if self.lost_while_fencing:
            self.reign = 0

    def close(self) -> None: ...


def cycle(number: int, *decisions: tuple[str, str]) -> CycleRow:
    said = [{"kind": kind, "job": job} for kind, job in decisions]
    plan = orjson.dumps({"kind": "Plan", "decisions": said})
    return CycleRow(
        cycle=number, at=0.0, policy="qos", predictor="p1", full=True, state=b"{}", plan=plan,
        decided_s=0.1,
    )  # fmt: skip


def opened(folder: Path) -> Store:
    return Store.open(f"sqlite:///{folder}/laxity.db")


def test_an_ended_term_writes_no_cycle_nor_what_it_said_but_views_all_the_same(
    tmp_path: Path,
) -> None:
    old, new = opened(tmp_path), opened(tmp_path)
    terms = [old.claim_term("old", 1.0), new.claim_term("new", 2.0)]
    with pytest.raises(StaleServiceError, match="term 1 is over: new leads in term 2"):
        old.write_rows([cycle(1)])
    with pytest.raises(StaleServiceError):
        old.write_rows([NewRow(DecisionRow, SAID)])
    assert new.last_audited_cycle() == 0
    new.write_rows([cycle(1)])
    old.write_rows([])
    assert terms == [1, 2]
    assert new.last_cycle() == 1
    old.close()
    new.close()


def test_who_takes_over_fences_what_the_last_plan_moved_before_it_leads(tmp_path: Path) -> None:
    store, lease = opened(tmp_path), Lease("me")
    store.write_rows([cycle(1, ("Admit", "n/before"))])
    store.write_rows(
        [cycle(2, ("Admit", "n/a"), ("Wait", "n/b"), ("Preempt", "n/c"), ("Wait", "n/a"))]
    )
    leadership = Leadership(store, lease)
    led = [leadership.ensure_leading()]
    for reign in (1, 1, 0, 2):
        lease.reign = reign
        led.append(leadership.ensure_leading())
    assert led == [False, True, True, False, True]
    assert lease.fenced == [(["n/a", "n/c"], 1), (["n/a", "n/c"], 2)], "once for each reign"
    store.close()


def test_who_loses_the_lease_while_it_takes_over_does_not_lead(tmp_path: Path) -> None:
    store, lease = opened(tmp_path), Lease("me")
    lease.reign, lease.lost_while_fencing = 1, True
    assert Leadership(store, lease).ensure_leading() is False
    store.close()


def test_who_cannot_fence_does_not_lead_and_tries_again(tmp_path: Path) -> None:
    store, lease = opened(tmp_path), Lease("me")
    lease.reign = 1
    leadership = Leadership(store, lease)
    store.engine.dispose()
    claim, store.claim_term = store.claim_term, broken  # type: ignore[method-assign]
    with pytest.raises(StoreError):
        leadership.ensure_leading()
    store.claim_term = claim  # type: ignore[method-assign]
    assert leadership.ensure_leading() is True
    assert lease.fenced == [([], 1)]
    store.close()


def broken(holder: str, since: float) -> int:
    raise StoreError("away")
