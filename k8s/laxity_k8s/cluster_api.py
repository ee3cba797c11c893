"""ClusterApi: the five kinds of a cluster as plain JSON. A real API server, or this machine.

Both speak the same batch/v1 and core/v1 JSON, with resourceVersions, merge patches and 409s, so
everything above (objects, patches, world) is written once. Calls are synchronous; `patch_many`
may have many in flight.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

Kind = Literal["jobs", "pods", "nodes", "events", "leases", "resourcequotas", "limitranges"]
Json = dict[str, Any]
FORBIDDEN: Final = 403
NOT_FOUND: Final = 404
CONFLICT: Final = 409
REFUSED: Final = frozenset({400, FORBIDDEN, 413, 422})  # of this very object: not a lost race
NOT_ALLOWED: Final = "not sent: this replica does not lead (any more)"


def ignore_cut(_: bool, /) -> None:  # noqa: FBT001 - a callback
    """For who does not care whether a watch is cut."""


class ApiError(RuntimeError):
    """The API server did not do it: `status` is the HTTP status, 0 when it could not be reached."""

    def __init__(self, message: str, *, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Change:
    """One watched change. `kind` BOOKMARK carries only a resourceVersion."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    object: Json


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Listing:
    items: tuple[Json, ...]
    resource_version: str


@dataclass(frozen=True, slots=True)
class Patch:
    """A JSON merge patch. A resourceVersion in `body.metadata` makes it a compare-and-set."""

    kind: Kind
    id: str  # "namespace/name", or "name" for nodes
    body: Mapping[str, Any]
    subresource: Literal["", "status"] = ""


@dataclass(frozen=True, slots=True)
class PatchResult:
    """What became of a patch: 200 and the new object, or 404, 409, 422, ... and the message."""

    patch: Patch
    status: int
    object: Json | None = None
    message: str = ""

    @property
    def ok(self) -> bool:
        return self.status == 200

    @property
    def may_have_landed(self) -> bool:
        """The answer was lost: nobody knows whether the object is another one now."""
        return (self.status == 0 or self.status >= 500) and NOT_ALLOWED not in self.message


class ClusterApi(Protocol):
    """List, watch, create, patch, delete. 404, 409 and 422 are ApiErrors with that status.

    `is_local`: its workers are processes of this machine.
    """

    @property
    def is_local(self) -> bool: ...

    def list(self, kind: Kind, *, selector: str = "") -> Listing:
        """All objects of a kind, in all namespaces; `selector` is "label=value" or "label"."""
        ...

    def get(self, kind: Kind, object_id: str) -> Json: ...

    def watch(
        self,
        kind: Kind,
        *,
        since: str,
        on_change: Callable[[Change], None],
        on_cut: Callable[[bool], None] = ignore_cut,
    ) -> "Watch":
        """Call back for every change after resourceVersion `since`, from another thread.

        Broken connections are resumed; when `since` is too old (410) the kind is listed anew and
        the differences are called back as changes, so the caller never misses or doubles one.

        `on_cut(True)`, in turn with the changes: it cannot follow any more, what it has told is of
        the past. `on_cut(False)`: it follows again; what it had missed is still to come.
        """
        ...

    def create(self, kind: Kind, body: Mapping[str, Any]) -> Json: ...

    def patch(self, patch: Patch) -> Json: ...

    def patch_many(self, patches: Iterable[Patch]) -> Iterable[PatchResult]:
        """Many merge patches, several in flight, one at a time per object; outcomes in order.

        Returns when all are answered. No body may hold a list that a strategic merge would merge
        by keys (containers, taints).
        """
        ...

    def delete(self, kind: Kind, object_id: str, *, uid: str = "") -> None:
        """Delete with background propagation; 404 is an ApiError.

        With a `uid`, only the object that has it: 409 if another one has taken its name.
        """
        ...

    def log(self, pod_id: str, *, tail: int | None = None) -> str:
        """What a pod has written so far, or its last lines."""
        ...

    def log_left(self, job: Json, index: int) -> str:
        """What a worker of this Job wrote whose pod is gone; "" where nobody keeps it."""
        ...

    def log_path(self, job_id: str, index: int) -> str | None:
        """Where a worker's output is kept on this machine, if it is."""
        ...

    def reports_path(self, job: Json) -> str | None:
        """Where worker 0 of this Job writes its reports, if that is on this machine."""
        ...

    def collect(self, *, keep_s: float) -> int:
        """Remove what this machine keeps of Jobs that ended longer ago; of how many things."""
        ...

    def close(self) -> None: ...


class Watch(Protocol):
    def stop(self) -> None: ...
