"""A day in a small cluster, written to a journal."""

from collections.abc import Sequence
from typing import Any

from sqlmodel import Session, col, select

from laxity_profiler.estimate import Predictor
from laxity_scheduler.inflight import with_follow_ups
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.job import Job
from laxity_scheduler.plan import Plan, Policy
from laxity_scheduler.policies import qos
from laxity_scheduler.policies.registry import find
from laxity_scheduler.store.journal import Journal
from laxity_scheduler.store.store import Store
from laxity_scheduler.store.tables import VerdictRow
from tests.support.builders import Curve, job
from tests.support.toy_world import ToyWorld

TRUTH = Curve(epoch_s=10.0, start_s=2.0, stop_s=1.0)


def load(parameters: dict[str, Any]) -> Predictor:
    """The curve of the tests, from what its `to_json` says."""
    return Curve(epoch_s=parameters["epoch_s"], start_s=2.0, stop_s=1.0)


def named(name: str) -> Policy:
    return {"qos": qos.decide, "idle": lambda _state, _predictor: Plan()}[name]


def lived(
    store: Store,
    *,
    snapshot_every: int = 7,
    start_with: int = 0,
    policy: str = "qos",
    arrivals: Sequence[Job] = (),
    gpus: int = 4,
) -> int:
    """A day in a small cluster, every cycle of it journalled; the number of cycles."""
    arrivals = list(arrivals) or [
        job("a", epochs=20, workers=(1, 2, 4), due_at=400.0),
        job("b", epochs=30, workers=(1, 2), submitted_at=5.0),
        job("c", epochs=12, workers=(1, 2, 4), submitted_at=30.0, due_at=230.0),
        job("d", epochs=5, workers=(4,), submitted_at=31.0, due_at=50.0),
        job("e", epochs=8, workers=(1,), submitted_at=60.0, service_class="soft", due_at=500.0),
    ]
    world = ToyWorld((gpus,), arrivals, TRUTH)
    journal = Journal(store, snapshot_every=snapshot_every)
    cycles, rule = start_with, with_follow_ups(find(policy).policy())

    def decide(state: ClusterState, predictor: Predictor) -> Plan:
        nonlocal cycles
        cycles += 1
        numbered = ClusterState(state.now, state.nodes, state.jobs, state.holds, cycle=cycles)
        plan = rule(numbered, predictor)
        journal.write_cycle(numbered, plan, predictor, policy=policy, decided_s=0.0)
        return plan

    world.run(decide)
    assert len(world.finished) >= min(4, len(arrivals))
    return cycles


def verdicts_of(store: Store, uid: str) -> list[VerdictRow]:
    """All verdicts of one job, oldest first."""
    query = select(VerdictRow).where(VerdictRow.uid == uid).order_by(col(VerdictRow.id))
    with Session(store.engine) as session:
        return list(session.exec(query))
