"""The tables that the migrations make are the tables that the code reads."""

import shutil
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from laxity_scheduler.store.store import StaleServiceError, Store
from laxity_scheduler.store.tables import VERSION_TABLE, CycleRow, ServiceTable


def differences(store: Store) -> list[object]:
    with store.engine.connect() as connection:
        context = MigrationContext.configure(
            connection,
            opts={
                "version_table": VERSION_TABLE,
                "compare_type": True,
                "include_name": lambda name, kind, _parents: (
                    kind != "table" or name in ServiceTable.metadata.tables
                ),
            },
        )
        return list(compare_metadata(context, ServiceTable.metadata))


def a_cycle(number: int) -> CycleRow:
    return CycleRow(
        cycle=number,
        at=float("inf"),
        policy="qos",
        predictor="p1",
        full=True,
        state=b"{\0}",
        plan=b"{}",
        decided_s=0.1,
    )


def test_a_migrated_sqlite_store_has_exactly_the_tables_of_the_code(tmp_path: Path) -> None:
    store = Store.open(f"sqlite:///{tmp_path}/new/laxity.db")
    assert differences(store) == []
    store.close()


def test_opening_a_store_again_changes_nothing_and_keeps_its_rows(tmp_path: Path) -> None:
    first = Store.open(f"sqlite:///{tmp_path}/laxity.db")
    first.write_rows([a_cycle(7)])
    first.close()
    again = Store.open(f"sqlite:///{tmp_path}/laxity.db")
    assert again.last_cycle() == 7
    again.close()


def test_a_second_service_cannot_write_a_cycle_that_the_first_has_decided(tmp_path: Path) -> None:
    one = Store.open(f"sqlite:///{tmp_path}/laxity.db")
    other = Store.open(f"sqlite:///{tmp_path}/laxity.db")
    one.write_rows([a_cycle(1)])
    with pytest.raises(StaleServiceError):
        other.write_rows([a_cycle(1)])
    one.close()
    other.close()


def test_a_store_keeps_its_identity_and_neither_another_one_nor_a_copy_has_it(
    tmp_path: Path,
) -> None:
    def identity(name: str) -> str:
        store = Store.open(f"sqlite:///{tmp_path}/{name}.db")
        try:
            return store.identity()
        finally:
            store.close()

    first = identity("one")
    shutil.copy(tmp_path / "one.db", tmp_path / "copy.db")
    assert identity("one") == first
    assert len({first, identity("other"), identity("copy")}) == 3


@pytest.mark.slow
def test_postgresql_gets_the_same_tables_and_the_same_fence(postgres_url: str) -> None:
    one, other = Store.open(postgres_url), Store.open(postgres_url)
    one.write_rows([a_cycle(1)])
    with pytest.raises(StaleServiceError):
        other.write_rows([a_cycle(1)])
    assert differences(one) == []
    assert one.identity() == other.identity() != ""
    assert [row.at for row in other.iter_cycles(1)] == [float("inf")]
    one.close()
    other.close()


@pytest.mark.slow
def test_of_two_replicas_one_leads_and_the_other_takes_over_when_it_is_gone(
    postgres_url: str,
) -> None:
    one, other = Store.open(postgres_url), Store.open(postgres_url)
    before = (one.try_lead(), other.try_lead(), one.try_lead())
    one.close()
    after = other.try_lead()
    other.close()
    assert before == (True, False, True)
    assert after is True
