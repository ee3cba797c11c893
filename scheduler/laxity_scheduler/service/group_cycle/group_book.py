"""The groups of one service: declared by clients, kept in the store, brought up to date with their jobs."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from threading import RLock
from typing import Any, Final

from laxity.durations import deadline_instant, parse_instant, parse_zoned_deadline
from laxity.instants import format_rfc3339
from laxity.job.qos import QoSError, check_class
from laxity.job.spec import LONGEST_NAME, dns_label
from laxity_scheduler.groups.group import ENDED, Group, State
from laxity_scheduler.groups.structure import read_steps
from laxity_scheduler.service.group_cycle.group_rows import group_of, row_of
from laxity_scheduler.service.views.view_fields import Json
from laxity_scheduler.service_clock import CLOCK
from laxity_scheduler.store.store import Store
from laxity_scheduler.store.tables import GroupRow

KINDS: Final = ("workflow", "sweep")
VERDICTS: Final = ("promised", "forecast", "refused")
LONGEST_REASON: Final = 500


class UnknownGroupError(KeyError):
    """No group of that name."""


class GroupBook:
    """All groups by id. Safe to call from several threads."""

    def __init__(self, store: Store) -> None:
        self._store, self._lock = store, RLock()
        self.load()

    def group(self, group_id: str) -> Group:
        """UnknownGroupError if there never was one of this id."""
        try:
            return self._groups[group_id]
        except KeyError:
            raise UnknownGroupError(group_id) from None

    def groups(self, may_see: Callable[[str], bool]) -> list[Group]:
        """Those of the namespaces that `may_see` accepts, in order of submission."""
        with self._lock:
            groups = [group for group in self._groups.values() if may_see(group.namespace)]
        return sorted(groups, key=lambda group: (group.submitted_at, group.id))

    def find_declared(self, document: Mapping[str, Any]) -> tuple[Group, bool]:
        """The group that a client declares, and whether it asks for a verdict; nothing is kept.

        The deadline of one that failed or was cancelled counts from its first submission. QoSError
        says what is wrong with the declaration, or that it is another one than that which runs.
        """
        declared = read_group(document, CLOCK.now())
        before = self._groups.get(declared.id)
        if before is not None and before.state == "active":
            if declared.is_sweep:  # its client knows more by now
                return replace(before, verdict=declared.verdict), True
            _check_alike(before, declared)
            return before, False
        if before is not None and before.state in {"failed", "cancelled"}:
            since = format_rfc3339(before.submitted_at, "milliseconds")
            declared = read_group({**document, "submitted_at": since}, CLOCK.now())
        return declared, True

    def refresh(self) -> None:
        """See the groups that other replicas have declared."""
        if not self._store.is_exclusive:
            self.load()

    def load(self) -> None:
        """See the groups that the store has now."""
        with self._lock:
            rows = self._store.load_rows(GroupRow)
            self._groups = {row.id: group_of(row) for row in rows}

    def keep(self, group: Group) -> None:
        """Write the group as it is now."""
        with self._lock:
            self._store.replace_rows([row_of(group)])
            self._groups[group.id] = group

    def end(self, group_id: str, state: State) -> Group:
        """The group, ended; one that has ended before stays as it is."""
        with self._lock:
            group = self.group(group_id)
            if group.state in ENDED:
                return group
            group = group.ended(state, CLOCK.now())
            self.keep(group)
            return group


def _check_alike(there: Group, asked: Group) -> None:
    shapes = [
        [(step.name, step.count, step.after) for step in group.steps] for group in (there, asked)
    ]
    if asked.steps and there.steps and shapes[0] != shapes[1]:
        names = ", ".join(f"{step.count} of {step.name}" for step in there.steps)
        what = f"group {there.id} runs with other steps ({names}); cancel it, or choose another key"
        raise QoSError("steps", what)


def read_group(document: Mapping[str, Any], now: float) -> Group:
    """The group of a client's JSON. QoSError names the wrong field."""
    namespace, name = str(document.get("namespace") or "default"), document.get("name")
    for where, label in (("namespace", namespace), ("name", name)):
        if not isinstance(label, str) or not label or dns_label(label) != label:
            what = f"{label!r:.80} is no DNS label: 1 to {LONGEST_NAME} of a-z, 0-9 and '-'"
            raise QoSError(where, what)
    kind = document.get("kind") or "workflow"
    if kind not in KINDS:
        raise QoSError("kind", f"{kind!r:.40} is none of {', '.join(KINDS)}")
    submitted_at = _read_submission(document.get("submitted_at"), now)
    return Group(
        id=f"{namespace}/{name}",
        workflow=str(document.get("workflow") or name)[:200],
        deadline_at=_read_deadline(document.get("deadline"), submitted_at),
        submitted_at=submitted_at,
        kind=kind,
        service_class=_read_class(document.get("class")),
        open=document.get("open") is True,
        steps=read_steps(document.get("steps") or []),
        verdict=_read_verdict(document.get("verdict"), document.get("reason")),
    )


def _read_verdict(verdict: Any, text: Any) -> Json:
    """What the client of a sweep says; that of a workflow is the service's own."""
    known = verdict if verdict in VERDICTS else "none"
    said = {"verdict": known, "reason_code": "", "reason": str(text or "")[:LONGEST_REASON]}
    return said | {"offers": [], "p50_at": None, "p90_at": None}


def _read_submission(text: Any, now: float) -> float:
    """The claimed instant; it is believed where it is no later than now, as for a Job."""
    try:
        return now if text is None else min(now, parse_instant(str(text)).timestamp())
    except ValueError as error:
        raise QoSError("submitted_at", str(error)) from error


def _read_deadline(text: Any, submitted_at: float) -> float:
    try:
        return deadline_instant(parse_zoned_deadline(str(text)), submitted_at)
    except ValueError as error:
        raise QoSError("deadline", str(error)) from error


def _read_class(text: Any) -> str:
    try:
        return check_class(text) or "hard"
    except ValueError as error:
        raise QoSError("class", str(error)) from error
