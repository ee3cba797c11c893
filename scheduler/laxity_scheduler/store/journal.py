"""Every decided cycle, written before it is acted on, so that it can be decided again.

A full snapshot stands in every hundredth entry and what changed in the others; the parameters of a
predictor stand once per version. `replay_cycles` rebuilds each snapshot, decides it again with the same
code, and compares bytes: the answer to "why did it do that?", and the proof that a change of the
code changes no decision that it should not.
"""

import json
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Final

import orjson

from laxity_profiler.estimate import Predictor
from laxity_scheduler.engine import DecidedCycle
from laxity_scheduler.inflight import with_follow_ups
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.plan import Plan, Policy
from laxity_scheduler.store import differences
from laxity_scheduler.store.codec import encode_record, load_plan, load_state, plan_bytes
from laxity_scheduler.store.store import Store, StoreError
from laxity_scheduler.store.tables import CycleRow, PredictorRow

SNAPSHOT_EVERY: Final = 100
LoadPredictor = Callable[[dict[str, Any]], Predictor]
PolicyNamed = Callable[[str], Policy]


class ReplayError(RuntimeError):
    """The journal cannot be read from there: an entry or a predictor is missing or damaged."""


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One journalled cycle: the rebuilt snapshot and, as bytes, the plan."""

    cycle: int
    policy: str
    predictor: str
    state: ClusterState
    plan: bytes
    version: str


@dataclass(frozen=True, slots=True)
class ReplayedCycle:
    """One cycle decided again. `lines` show the differences; none if the plan is the same.

    `version` is the laxity that decided first, "" if its journal does not say.
    """

    cycle: int
    policy: str
    version: str
    lines: tuple[str, ...] = ()

    @property
    def is_same(self) -> bool:
        return not self.lines

    @property
    def is_of_this_version(self) -> bool:
        return self.version == version("laxity")


class Journal:
    """Writes entries. It keeps the last written snapshot in memory, which a restart can do without."""

    def __init__(self, store: Store, *, snapshot_every: int = SNAPSHOT_EVERY) -> None:
        self._store = store
        self._snapshot_every = snapshot_every
        self._last: ClusterState | None = None
        self._since_full = 0
        self._versions = set(store.predictor_versions())
        self._laxity = version("laxity")
        self.last_cycle = store.last_cycle()

    def write_cycle(
        self, state: ClusterState, plan: Plan, predictor: Predictor, *, policy: str,
        decided_s: float, text: bytes = b"",
    ) -> None:  # fmt: skip
        """One transaction: the entry, and its predictor if it is new.

        `text` are the plan's bytes, if they have been made already.
        """
        old = None if self._since_full + 1 >= self._snapshot_every else self._last
        state_bytes = (
            encode_record(state)
            if old is None
            else orjson.dumps(differences.snapshot_difference(old, state))
        )
        entry = CycleRow(
            cycle=state.cycle,
            at=state.now,
            policy=policy,
            predictor=predictor.version,
            full=old is None,
            state=state_bytes,
            plan=text or plan_bytes(plan),
            decided_s=decided_s,
            version=self._laxity,
        )
        self._store.write_rows([entry, *self._new_version(predictor, state.now)])
        self._versions.add(predictor.version)
        self._last, self.last_cycle = state, state.cycle
        self._since_full = 0 if old is None else self._since_full + 1

    def entry_without_rows(self) -> JournalEntry | None:
        """The last cycle, if it has decisions without rows for people; else None.

        ReplayError if it cannot be rebuilt.
        """
        store, last = self._store, self.last_cycle
        if store.last_audited_cycle() >= last or not orjson.loads(store.last_plan()).get(
            "decisions"
        ):
            return None
        return next(iter_entries(store, last), None)

    def drop_old(self, *, kept_cycles: int, kept_bytes: int, ended_before: float) -> None:
        """Drop cycles beyond the latest `kept_cycles` and `kept_bytes`, and jobs that ended before an instant."""
        first = max(self.last_cycle - kept_cycles, self._store.oldest_cycle_within(kept_bytes))
        self._store.delete_old(cycles_before=first, ended_before=ended_before)
        self._versions = set(self._store.predictor_versions())

    def resync(self) -> None:
        """Another service may have written meanwhile: start again from a full snapshot."""
        self._last = None
        self.last_cycle = self._store.last_cycle()
        self._versions = set(self._store.predictor_versions())

    def _new_version(self, predictor: Predictor, now: float) -> list[PredictorRow]:
        if predictor.version in self._versions:
            return []
        body = zlib.compress(json.dumps(predictor.to_json()).encode(), level=1)
        return [PredictorRow(version=predictor.version, at=now, body=body)]


def iter_entries(store: Store, first: int = 0, last: int | None = None) -> Iterator[JournalEntry]:
    """Rebuilt cycles from `first`; ReplayError names the one that is missing or damaged."""
    state: ClusterState | None = None
    before: int | None = None
    for row in store.iter_cycles(first, last):
        with _as_replay_error(row.cycle):
            if before is not None and row.cycle != before + 1:
                message = f"cycle {before + 1} is missing: the next in the journal is {row.cycle}"
                raise ReplayError(message)
            before = row.cycle
            state = _rebuild_state(row, state)
            wanted = row.cycle >= first
        if wanted:
            yield JournalEntry(row.cycle, row.policy, row.predictor, state, row.plan, row.version)
    if before is not None and last is None:
        with _as_replay_error(before):
            if store.last_audited_cycle() > before:
                message = f"cycle {before + 1} is missing: decisions of {store.last_audited_cycle()} are kept"
                raise ReplayError(message)


def _rebuild_state(row: CycleRow, before: ClusterState | None) -> ClusterState:
    if row.full:
        return load_state(row.state)
    if before is None:
        message = f"cycle {row.cycle} has no full snapshot before it: the journal is damaged"
        raise ReplayError(message)
    return differences.apply_difference(before, orjson.loads(row.state))


@contextmanager
def _as_replay_error(cycle: int) -> Iterator[None]:
    """Turn any error that a damaged entry causes into a ReplayError that names the cycle."""
    try:
        yield
    except (ReplayError, StoreError):
        raise
    except Exception as error:
        message = f"cycle {cycle} is damaged in the journal: {type(error).__name__}: {error}"
        raise ReplayError(message) from error


def replay_cycles(
    store: Store,
    policies: PolicyNamed,
    load_predictor: LoadPredictor,
    *,
    first: int = 0,
    last: int | None = None,
    policy: str = "",
) -> Iterator[ReplayedCycle]:
    """Decide every cycle again, by its own policy or by the one named `policy`, and compare."""
    if policy:
        policies(policy)  # an unknown name is the caller's mistake
    for entry, predictor in _with_predictors(store, load_predictor, first, last):
        name = policy or entry.policy
        with _as_replay_error(entry.cycle):
            again = plan_bytes(with_follow_ups(policies(name))(entry.state, predictor))
            lines = () if again == entry.plan else tuple(_diff_lines(entry.plan, again))
        yield ReplayedCycle(entry.cycle, name, entry.version, lines)


def iter_decided(
    store: Store,
    policies: PolicyNamed,
    load_predictor: LoadPredictor,
    *,
    first: int = 0,
    last: int | None = None,
) -> Iterator[DecidedCycle]:
    """Cycles as they were decided: snapshot, plan, predictor and policy. ReplayError if one is damaged.

    Whatever `policies` raises is raised.
    """
    for entry, predictor in _with_predictors(store, load_predictor, first, last):
        decide, plan = policies(entry.policy), load_plan(entry.plan)
        yield DecidedCycle(entry.state, plan, predictor, decide, entry.policy)


def _with_predictors(
    store: Store, load: LoadPredictor, first: int, last: int | None
) -> Iterator[tuple[JournalEntry, Predictor]]:
    """Entries, each with its predictor, of which the last one is kept."""
    name, predictor = "", None
    # In no local variable: an error would keep it open, and with it a connection to the store.
    for entry in iter_entries(store, first, last):
        if predictor is None or entry.predictor != name:
            name = entry.predictor
            with _as_replay_error(entry.cycle):
                predictor = _load_journalled_predictor(store, name, load)
        yield entry, predictor


def _load_journalled_predictor(store: Store, name: str, load: LoadPredictor) -> Predictor:
    """The predictor of a version as it was; ReplayError if it is not in the journal, or of another form."""
    body = store.predictor_body(name)
    if body is None:
        raise ReplayError(f"predictor {name} is not in the journal")
    try:
        return load(json.loads(zlib.decompress(body)))
    except (ValueError, zlib.error) as error:
        raise ReplayError(f"predictor {name} of the journal cannot be read: {error}") from error


def _diff_lines(was: bytes, again: bytes) -> Iterator[str]:
    """Decisions that were made then ("-") and that are made now ("+")."""
    before, after = orjson.loads(was), orjson.loads(again)
    old = [_decision_text(decision) for decision in before.get("decisions", ())]
    new = [_decision_text(decision) for decision in after.get("decisions", ())]
    yield from (f"- {line}" for line in old if line not in new)
    yield from (f"+ {line}" for line in new if line not in old)
    if sorted(old) == sorted(new) and old != new:
        yield f"the same {len(old)} decisions in another order"
    if before.get("wake_at") != after.get("wake_at"):
        yield f"- wake_at: {before.get('wake_at', 'never')}"
        yield f"+ wake_at: {after.get('wake_at', 'never')}"


def _decision_text(decision: dict[str, Any]) -> str:
    rest = {name: value for name, value in decision.items() if name not in ("kind", "job")}
    return f"{decision['kind']} {decision.get('job', '')} {orjson.dumps(rest).decode()}"
