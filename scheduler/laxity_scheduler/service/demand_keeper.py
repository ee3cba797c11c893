"""What inference needed is kept in the store, so that a restart goes on with the forecast."""

from math import isnan, nan

from laxity_scheduler.loans.demand_history import DemandHistory, DemandSlot
from laxity_scheduler.store.store import Store
from laxity_scheduler.store.tables import InferenceSlotRow


class DemandKeeper:
    """Reads the history that a world adds to, and writes what is new of it."""

    def __init__(self, store: Store, history: DemandHistory) -> None:
        self._store, self.history = store, history

    def restore(self) -> None:
        """Give the world the history of the service before."""
        self.history.restore(
            DemandSlot(
                row.slot, row.needed_gpus, nan if row.forecast_gpus is None else row.forecast_gpus
            )
            for row in self._store.load_inference_slots()
        )

    def save(self) -> None:
        """Write the slots that are new or have changed; StoreError: the next call writes them."""
        slots = self.history.find_unsaved()
        if not slots:
            return
        rows = [
            InferenceSlotRow(
                slot=slot.slot,
                needed_gpus=slot.needed_gpus,
                forecast_gpus=None if isnan(slot.forecast_gpus) else slot.forecast_gpus,
            )
            for slot in slots
        ]
        self._store.save_inference_slots(rows, first=self.history.first_slot)
        self.history.mark_saved()
