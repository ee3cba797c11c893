"""Every cycle of a service can be decided again from its journal, byte for byte."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from sqlalchemy import text
from sqlmodel import Session, col, delete, select, update

from laxity_profiler.estimate import Predictor
from laxity_scheduler.inflight import with_follow_ups
from laxity_scheduler.model.cluster import ClusterState, NodeSet
from laxity_scheduler.model.decision import Admit, Wait
from laxity_scheduler.model.reasons import reason
from laxity_scheduler.plan import Plan
from laxity_scheduler.plan_check import check_plan
from laxity_scheduler.policies import qos
from laxity_scheduler.store.codec import plan_bytes
from laxity_scheduler.store.journal import Journal, ReplayError, iter_entries, replay_cycles
from laxity_scheduler.store.store import Store
from laxity_scheduler.store.tables import CycleRow, DecisionRow, NewRow
from tests.support.builders import cluster, job
from tests.support.journal import TRUTH, lived, load, named
from tests.support.toy_world import ToyWorld


@pytest.fixture
def store(tmp_path: Path) -> Any:
    opened = Store.open(f"sqlite:///{tmp_path}/laxity.db")
    yield opened
    opened.close()


def test_every_cycle_is_decided_again_byte_for_byte(store: Store) -> None:
    cycles = lived(store)
    found = list(replay_cycles(store, named, load))
    assert [one.cycle for one in found] == list(range(1, cycles + 1))
    assert cycles > 20
    assert all(one.is_same for one in found)


def test_cycles_in_which_jobs_may_use_some_nodes_only_are_decided_again(store: Store) -> None:
    """While it lives, a node is labelled away from one set and put into the other."""
    arrivals = [
        job("a", epochs=20, workers=(1, 2), due_at=500.0, eligible="old"),
        job("b", epochs=30, workers=(1, 2), submitted_at=5.0),
        job("c", epochs=12, workers=(1, 2), submitted_at=30.0, due_at=600.0, eligible="new"),
        job("d", epochs=5, submitted_at=31.0, due_at=800.0, eligible="none"),
        job("e", epochs=8, submitted_at=60.0, eligible="old"),
    ]
    sets = {"old": NodeSet(frozenset({"n0"})), "new": NodeSet(frozenset({"n1", "n2"}))}
    world = ToyWorld((2, 1, 1), arrivals, TRUTH, sets=sets)
    journal, cycles = Journal(store, snapshot_every=7), 0

    def decide(state: ClusterState, predictor: Predictor) -> Plan:
        nonlocal cycles
        cycles += 1
        if cycles == 10:
            world.sets = {"old": NodeSet(frozenset({"n0", "n1"})), "new": sets["old"]}
        numbered = replace(state, cycle=cycles, sets=world.sets)
        plan = with_follow_ups(qos.decide)(numbered, predictor)
        check_plan(plan, numbered)
        journal.write_cycle(numbered, plan, predictor, policy="qos", decided_s=0.0)
        return plan

    world.run(decide)
    assert world.finished.keys() == {"team/a", "team/b", "team/c", "team/e"}
    where = {
        one.decision.job: one.decision.nodes
        for one in world.told
        if isinstance(one.decision, Admit)
    }
    assert set(where["team/a"]) == {"n0"}
    found = list(replay_cycles(store, named, load))
    assert [one.cycle for one in found] == list(range(1, cycles + 1))
    assert cycles > 10
    assert all(one.is_same for one in found)
    assert [entry.state.sets == world.sets for entry in iter_entries(store)].count(False) == 9


def test_replay_may_start_between_two_full_snapshots(store: Store) -> None:
    cycles = lived(store, snapshot_every=10)
    found = list(replay_cycles(store, named, load, first=15, last=18))
    assert [one.cycle for one in found] == [15, 16, 17, 18]
    assert all(one.is_same for one in found)
    assert cycles >= 18


def test_full_snapshots_stand_every_so_many_cycles_and_differences_between(store: Store) -> None:
    cycles = lived(store, snapshot_every=10)
    full = [row.cycle for row in store.iter_cycles(0) if row.full]
    assert full == list(range(1, cycles + 1, 10))


def test_a_service_that_was_killed_goes_on_with_the_next_number(store: Store) -> None:
    before = lived(store)
    journal = Journal(store)
    assert journal.last_cycle == before
    journal.write_cycle(cluster(cycle=before + 1), Plan(), TRUTH, policy="qos", decided_s=0.0)
    assert [entry.cycle for entry in iter_entries(store, first=before)] == [before, before + 1]


def test_a_changed_decision_is_shown_as_what_was_and_what_would_be(store: Store) -> None:
    lived(store)
    admitted = next(row for row in store.iter_cycles(0) if b'"kind":"Admit"' in row.plan)
    forged = json.loads(admitted.plan)
    forged["decisions"] = [one for one in forged["decisions"] if one["kind"] != "Admit"]
    with Session(store.engine) as session:
        wanted = update(CycleRow).where(col(CycleRow.cycle) == admitted.cycle)
        session.execute(wanted.values(plan=json.dumps(forged, separators=(",", ":")).encode()))
        session.commit()
    different = [one for one in replay_cycles(store, named, load) if not one.is_same]
    assert [one.cycle for one in different] == [admitted.cycle]
    assert different[0].lines[0].startswith("+ Admit team/a")


def test_another_policy_can_be_asked_what_it_would_have_done(store: Store) -> None:
    lived(store)
    found = list(replay_cycles(store, named, load, policy="idle"))
    assert any(line.startswith("- Admit") for one in found for line in one.lines)
    assert all(one.policy == "idle" for one in found)


def test_the_journal_keeps_as_many_cycles_as_it_is_told_and_stays_replayable(store: Store) -> None:
    cycles = lived(store, snapshot_every=5)
    Journal(store).drop_old(kept_cycles=8, kept_bytes=10**9, ended_before=0.0)
    found = list(replay_cycles(store, named, load))
    assert found[-1].cycle == cycles
    assert 8 <= len(found) <= 8 + 5
    assert all(one.is_same for one in found)


def test_the_journal_keeps_the_latest_cycles_within_its_bytes_and_replays_them(
    store: Store,
) -> None:
    cycles = lived(store, snapshot_every=5)
    kept_bytes = stored_bytes(store, first=cycles - 6)

    Journal(store).drop_old(kept_cycles=10**6, kept_bytes=kept_bytes, ended_before=0.0)

    replayed = list(replay_cycles(store, named, load))
    assert cycles - 6 - 5 < replayed[0].cycle <= cycles - 6, "up to a full snapshot more"
    assert replayed[-1].cycle == cycles
    assert all(cycle.is_same for cycle in replayed)


def test_the_database_holds_the_plan_of_a_long_queue_in_a_tenth_of_its_bytes(
    store: Store,
) -> None:
    waits = tuple(
        Wait(
            f"team/job-{number}",
            reason("no_free_gpus", needed_gpus=1, gpus_per_worker=1, free_gpus=0),
        )
        for number in range(500)
    )

    Journal(store).write_cycle(cluster(cycle=1), Plan(waits), TRUTH, policy="qos", decided_s=0.0)

    (entry,) = iter_entries(store)
    assert entry.plan == plan_bytes(Plan(waits))
    assert stored_bytes(store, first=1) < len(entry.plan) / 10


def stored_bytes(store: Store, *, first: int) -> int:
    """What the database holds of cycles from `first` on."""
    query = "select sum(length(state) + length(plan)) from cycles where cycle >= :first"
    with store.engine.connect() as connection:
        return int(connection.execute(text(query), {"first": first}).scalar_one())


def test_parameters_of_a_predictor_stand_once_and_their_absence_is_said(store: Store) -> None:
    lived(store)
    assert store.predictor_versions() == {"truth"}
    with Session(store.engine) as session:
        row = session.exec(select(CycleRow).where(CycleRow.cycle == 3)).one()
        row.predictor = "lost"
        session.commit()
    with pytest.raises(ReplayError, match="predictor lost"):
        list(replay_cycles(store, named, load))


def test_a_store_is_closed_though_a_predictor_of_its_journal_cannot_be_read(store: Store) -> None:
    def load_none(_: object) -> Predictor:
        raise ValueError("of another form")

    lived(store)
    with pytest.raises(ReplayError, match="of another form") as error:
        list(replay_cycles(store, named, load_none))

    store.close()

    files = {handle.path for handle in psutil.Process().open_files()}
    assert store.engine.url.database not in files
    del error  # it holds the frames of the call, and with them what they left open


def test_a_cycle_that_is_missing_is_named(store: Store) -> None:
    cycles = lived(store)
    with Session(store.engine) as session:
        session.execute(delete(CycleRow).where(col(CycleRow.cycle) == 9))
        session.commit()
    found = replay_cycles(store, named, load)
    assert [next(found).cycle for _ in range(8)] == list(range(1, 9))
    with pytest.raises(ReplayError, match="cycle 9 is missing: the next in the journal is 10"):
        next(found)
    assert len(list(replay_cycles(store, named, load, first=15))) == cycles - 14


def test_a_last_cycle_that_is_missing_is_known_by_its_decisions(store: Store) -> None:
    cycles = lived(store)
    said = {"cycle": cycles, "at": 1.0, "job": "a", "kind": "wait", "reason_code": "", "reason": ""}
    store.write_rows([NewRow(DecisionRow, {**said, "body": b""})])
    with Session(store.engine) as session:
        session.execute(delete(CycleRow).where(col(CycleRow.cycle) == cycles))
        session.commit()
    with pytest.raises(ReplayError, match=f"cycle {cycles} is missing"):
        list(replay_cycles(store, named, load))
