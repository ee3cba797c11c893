"""Journalled cycles as they were decided: the snapshot, the plan, the predictor, and the policy."""

from collections.abc import Iterator

from laxity_scheduler.store.codec import load_plan
from laxity_scheduler.store.journal import (
    LoadPredictor,
    PolicyNamed,
    iter_entries,
    load_journalled_predictor,
)
from laxity_scheduler.store.store import Store
from laxity_scheduler.width_comparison import DecidedCycle


def iter_decided(
    store: Store,
    policies: PolicyNamed,
    load_predictor: LoadPredictor,
    *,
    first: int = 0,
    last: int | None = None,
) -> Iterator[DecidedCycle]:
    """Cycles from `first` to `last`; the last predictor is kept. ReplayError if one is damaged.

    Whatever `policies` raises is raised.
    """
    name, predictor = "", None
    for entry in iter_entries(store, first, last):
        if predictor is None or entry.predictor != name:
            name = entry.predictor
            predictor = load_journalled_predictor(store, name, load_predictor)
        decide, plan = policies(entry.policy), load_plan(entry.plan)
        yield DecidedCycle(entry.state, plan, predictor, decide, entry.policy)
