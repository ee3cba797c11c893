"""How long nodes of pools took to come is kept in the store, so that a restart goes on with it."""

from laxity_scheduler.model.pool_arrivals import Arrival, PoolArrivals
from laxity_scheduler.store.store import Store
from laxity_scheduler.store.tables import NewRow, PoolArrivalRow


class PoolKeeper:
    """Reads the arrivals that a world adds to, and writes what is new of them."""

    def __init__(self, store: Store, arrivals: PoolArrivals) -> None:
        self._store, self._arrivals = store, arrivals
        rows = sorted(store.load_rows(PoolArrivalRow), key=lambda row: row.at)
        arrivals.restore([Arrival(row.pool, row.at, row.seconds) for row in rows])

    def save(self) -> None:
        """Write those that are new; StoreError: the next call writes them."""
        if arrivals := self._arrivals.find_unsaved():
            self._store.save_rows([NewRow(PoolArrivalRow, item._asdict()) for item in arrivals])
            self._arrivals.mark_saved(len(arrivals))
