"""What inference needed is in the store, so that a restart forgets neither needs nor forecasts."""

from pathlib import Path

import pytest

from laxity_scheduler.loans.demand_history import DemandHistory
from laxity_scheduler.model.job import DAY_S
from laxity_scheduler.service.demand_keeper import DemandKeeper
from laxity_scheduler.store.store import StaleServiceError, Store
from tests.support.memory_world import MemoryWorld
from tests.support.services import staged, wait_until

SLOT_S = 600.0


def add_slots(history: DemandHistory, first: int, needs: list[float]) -> None:
    for slot, gpus in enumerate(needs, first):
        history.add(gpus, slot * SLOT_S)
        history.forecast_gpus(1)


def test_needs_and_their_forecasts_outlive_the_service(tmp_path: Path) -> None:
    store = Store.open(f"sqlite:///{tmp_path}/laxity.db")
    keeper, later = DemandKeeper(store, DemandHistory()), DemandHistory()
    add_slots(keeper.history, 1_000, [1.0, 2.0, 9.0])
    keeper.save()
    keeper.history.add(11.0, 1_002 * SLOT_S + 5.0)
    keeper.save()
    DemandKeeper(store, later).restore()
    for history in (keeper.history, later):
        add_slots(history, 1_003, [1.0])
    assert later.coverage() == keeper.history.coverage() == (0.5, 2)
    assert later.forecast_gpus(1) == keeper.history.forecast_gpus(1) == 11.0 * 1.25
    store.close()


def test_slots_that_no_forecast_looks_back_to_leave_the_store(tmp_path: Path) -> None:
    store = Store.open(f"sqlite:///{tmp_path}/laxity.db")
    keeper = DemandKeeper(store, DemandHistory())
    add_slots(keeper.history, 1_000, [1.0])
    keeper.save()
    keeper.history.add(1.0, 1_000 * SLOT_S + 9 * DAY_S)
    keeper.save()
    slots = [row.slot for row in store.load_inference_slots()]
    assert (slots[0], len(slots)) == (keeper.history.first_slot, round(8 * DAY_S / SLOT_S))
    store.close()


def test_a_replica_whose_term_is_over_writes_no_needs(tmp_path: Path) -> None:
    store = Store.open(f"sqlite:///{tmp_path}/laxity.db")
    other = Store.open(f"sqlite:///{tmp_path}/laxity.db")
    keeper = DemandKeeper(store, DemandHistory())
    add_slots(keeper.history, 1_000, [1.0])
    store.claim_term("a", 0.0)
    other.claim_term("b", 0.0)
    with pytest.raises(StaleServiceError):
        keeper.save()
    assert other.load_inference_slots() == []
    store.close()
    other.close()


def test_a_service_gives_its_world_the_history_of_the_one_before(tmp_path: Path) -> None:
    first, second = MemoryWorld(1), MemoryWorld(1)
    with staged(tmp_path, first) as stage:
        store = stage.service.store
        add_slots(first.demand_history, 1_000, [3.0])
        first.wake()
        wait_until(lambda: len(store.load_inference_slots()) == 1, "the need to be kept")
    with staged(tmp_path, second):
        second.demand_history.add(0.0, 1_001 * SLOT_S)
    assert second.demand_history.forecast_gpus(1) == 4.0
