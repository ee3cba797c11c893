"""SQLite takes its write-ahead log over into the file after a cycle has acted, not before."""

import random
from pathlib import Path

from laxity_scheduler.store.store import Store
from laxity_scheduler.store.tables import CycleRow, SavedView

MEGABYTE = 2**20


def cycle(number: int) -> CycleRow:
    return CycleRow(
        cycle=number, at=0.0, policy="qos", predictor="p1", full=True,
        state=random.Random(number).randbytes(MEGABYTE), plan=b"{}", decided_s=0.1,
    )  # fmt: skip


def view() -> SavedView:
    return SavedView("u", "n/a", "n", "running", "", 0.0, None, b"{}")


def test_a_cycle_leaves_the_checkpoint_to_what_is_written_when_it_has_acted(tmp_path: Path) -> None:
    file, log = tmp_path / "laxity.db", tmp_path / "laxity.db-wal"
    store = Store.open(f"sqlite:///{file}")
    before = file.stat().st_size
    for number in range(1, 13):
        store.write_rows([cycle(number)])
    assert file.stat().st_size == before
    logged = log.stat().st_size
    assert logged > 12 * MEGABYTE
    store.write_rows([], [view()])
    assert file.stat().st_size > before + 12 * MEGABYTE
    store.write_rows([cycle(13)])
    assert log.stat().st_size < logged + MEGABYTE, "the log begins again"
    store.close()
