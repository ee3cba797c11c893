"""What an inference scheduler that knows better says: how many GPUs of its fleet may be lent.

Its word takes the place of the forecast until it takes it back. GPUs that pods hold or wait for are
needed whatever it says. An order is in the store before it counts: it outlives the service, and the
next leader has it too.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from threading import Lock
from typing import Any

from laxity.durations import deadline_instant, parse_zoned_deadline
from laxity_scheduler.model.cluster import FLEET_POOLS, LENT_POOLS, ClusterState
from laxity_scheduler.model.job import FOREVER
from laxity_scheduler.store.tables import LoanOrderRow


class LoanOrderError(ValueError):
    """An order that cannot be carried out: `field` names what is wrong with it."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(problem)
        self.field = field


class LoanOrders:
    """GPUs that may be lent in all, and by when others must be back; None: the forecast counts.

    `save` writes what counts from now on. If it raises, the order before it counts. `unsaid_gpus`
    may be lent where there is no order; None: what the forecast allows.
    """

    def __init__(
        self, save: Callable[[LoanOrderRow], None], *, unsaid_gpus: int | None = None
    ) -> None:
        self._lock = Lock()
        self._save = save
        self._unsaid_gpus = unsaid_gpus
        self._allowed_gpus: int | None = None
        self._reclaim_by = FOREVER

    def restore(self, row: LoanOrderRow | None) -> None:
        """Take up the order that was saved; None: there is none."""
        with self._lock:
            self._allowed_gpus = row.allowed_gpus if row else None
            self._reclaim_by = row.reclaim_by if row else FOREVER

    def withdraw(self, state: ClusterState) -> dict[str, Any]:
        """Let the forecast count again; or what may be lent without an order."""
        with self._lock:
            self._set_order(None, FOREVER)
        fleet, lent = _count_fleet(state)
        return {"fleet_gpus": fleet, "lent_gpus": lent, "allowed_gpus": self._unsaid_gpus}

    def add_order(self, body: Mapping[str, Any], state: ClusterState, now: float) -> dict[str, Any]:
        """Take `{"loan": n}` or `{"reclaim": n, "by": ...}`; what may be lent from now on.

        LoanOrderError; whatever `save` raises.
        """
        unknown = sorted(map(str, body.keys() - {"loan", "reclaim", "by"}))
        if unknown or len(body.keys() & {"loan", "reclaim"}) != 1:
            raise LoanOrderError(
                unknown[0] if unknown else "loan",
                'say {"loan": GPUS}, or {"reclaim": GPUS, "by": INSTANT OR DURATION}',
            )
        verb = "loan" if "loan" in body else "reclaim"
        gpus = _read_gpus(verb, body[verb])
        by_at = _read_by(body, verb, now)
        fleet, lent = _count_fleet(state)
        with self._lock:
            before = lent if self._allowed_gpus is None else min(fleet, self._allowed_gpus)
            if verb == "loan" and before + gpus > fleet:
                problem = f"{before} of the fleet's {fleet} GPUs may be lent: at most {fleet - before} more"
                raise LoanOrderError(verb, problem)
            if verb == "reclaim" and gpus > before:
                raise LoanOrderError(
                    verb, f"only {before} GPUs may be lent: reclaim no more than that"
                )
            self._set_order(before + (gpus if verb == "loan" else -gpus), by_at)
            return {"fleet_gpus": fleet, "lent_gpus": lent, "allowed_gpus": self._allowed_gpus}

    def apply_to(self, state: ClusterState) -> ClusterState:
        """The snapshot in which the fleet needs what was said."""
        demand = state.inference
        with self._lock:
            allowed, reclaim_by = self._allowed_gpus, self._reclaim_by
        allowed = self._unsaid_gpus if allowed is None else allowed
        if demand is None or allowed is None:
            return state
        fleet, lent = _count_fleet(state)
        if demand.needed_gpus > fleet - lent:  # pods lack GPUs
            reclaim_by = min(reclaim_by, demand.reclaim_by)
        forecast = float(max(0, fleet - allowed))
        changed = replace(
            demand,
            forecast_gpus=forecast,
            reclaim_by=reclaim_by,
            outlook=((FOREVER, forecast),),  # until the next order
        )
        return replace(state, inference=changed)

    def _set_order(self, allowed_gpus: int | None, reclaim_by: float) -> None:
        self._save(LoanOrderRow(allowed_gpus=allowed_gpus, reclaim_by=reclaim_by))
        self._allowed_gpus, self._reclaim_by = allowed_gpus, reclaim_by


def _count_fleet(state: ClusterState) -> tuple[int, int]:
    """GPUs of inference in all, and those of them that are lent."""
    return state.count_gpus(FLEET_POOLS), state.count_gpus(LENT_POOLS)


def _read_gpus(verb: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise LoanOrderError(verb, f"{str(value)[:40]!r} is no number of GPUs; write 1 or more")
    return value


def _read_by(body: Mapping[str, Any], verb: str, now: float) -> float:
    """When GPUs must be back: now, if nothing is said."""
    if verb == "loan":
        if "by" in body:
            raise LoanOrderError("by", "a loan has no end: take it back with reclaim")
        return FOREVER
    if "by" not in body:
        return now
    try:
        due = parse_zoned_deadline(str(body["by"]))
    except ValueError as error:
        raise LoanOrderError("by", str(error)) from error
    due_at = deadline_instant(due, now)
    if due_at < now:
        late_s = now - due_at
        raise LoanOrderError("by", f"that was {late_s:.0f} s ago; leave it out to reclaim at once")
    return due_at
