"""A coordination.k8s.io Lease: held by one replica at a time, for as long as it renews it.

Times as in Kubernetes' own controllers: others wait 15 s after the last renewal that they saw, the
holder itself stops acting 10 s after its own, and everybody looks every 2 s. Others' clocks are not
compared: each measures on its own since when the lease has not changed. The clock goes on while a
machine sleeps, and a renewal counts from before it was asked for.
"""

import logging
import math
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Protocol

from laxity import json_tree
from laxity.instants import format_instant
from laxity_k8s.cluster_api import CONFLICT, NOT_FOUND, ApiError, Json, Kind, Patch

LOG = logging.getLogger("laxity.k8s.lease")
NAME: Final = "laxity"
NAMESPACE_FILE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
Fence = Callable[[Sequence[str], int], None]


class Brief(Protocol):
    """The calls that a lease needs: tried once, and given up in good time."""

    def get(self, kind: Kind, object_id: str) -> Json: ...

    def create(self, kind: Kind, body: Json) -> Json: ...

    def patch(self, patch: Patch) -> Json: ...


@dataclass(frozen=True, slots=True)
class LeaseTimings:
    """How long a silent holder is waited for, and what follows from it."""

    lease_s: float = 15.0

    @property
    def acts_for_s(self) -> float:
        """After a renewal; shorter than others wait, by more than a renewal takes."""
        return self.lease_s * 2.0 / 3.0

    @property
    def retry_s(self) -> float:
        return self.lease_s * 2.0 / 15.0


def boot_s() -> float:
    """Seconds that have passed, those in which this process or its machine slept too."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def replica_name() -> str:
    """A name that no other process has, nor this one after a restart."""
    return f"{os.environ.get('POD_NAME') or socket.gethostname()}_{uuid.uuid4().hex[:8]}"


def own_namespace() -> str:
    """Where this pod's service account lives; `laxity` outside of a cluster."""
    return NAMESPACE_FILE.read_text().strip() if NAMESPACE_FILE.exists() else "laxity"


class Lease:
    """Campaigns from a thread of its own until closed. An Election."""

    def __init__(
        self,
        api: Brief,
        *,
        namespace: str,
        me: str,
        pace: LeaseTimings,
        fence: Fence,
        on_change: Callable[[], None],
        clock: Callable[[], float] = boot_s,
    ) -> None:
        self.me, self.fence, self.holder = me, fence, ""
        self._api, self._id, self._pace, self._clock = api, f"{namespace}/{NAME}", pace, clock
        self._on_change = on_change
        self._wins = 0
        self._acts_until = -math.inf
        self._seen: tuple[str, str, int] | None = None
        self._seen_at = -math.inf
        self._over = threading.Event()
        self._thread = threading.Thread(
            target=self._renew_forever, name="laxity-lease", daemon=True
        )

    def begin(self) -> None:
        self._thread.start()

    @property
    def reign(self) -> int:
        return self._wins if self.leads() else 0

    def leads(self) -> bool:
        """Without a call, so that it can be asked before every patch."""
        return self._clock() < self._acts_until

    def close(self) -> None:
        """Give the lease back, so that nobody has to wait for its end."""
        self._over.set()
        self._thread.join(timeout=2.0 * self._pace.lease_s)
        held, self._acts_until = self.leads(), -math.inf
        if held:
            try:
                lease = self._api.get("leases", self._id)
                if _spec_of(lease).get("holderIdentity") == self.me:
                    self._write_lease(lease, {"holderIdentity": None, "leaseDurationSeconds": 1})
            except ApiError as error:
                LOG.info("the lease was not given back, it will run out: %s", error)

    def try_acquire(self) -> None:
        """Look at the lease once; take or renew it if it is there to be taken or ours."""
        asked_at, led = self._clock(), self.leads()
        try:
            won = self._try_acquire(asked_at)
        except ApiError as error:
            won = None
            if error.status == CONFLICT:
                LOG.info("somebody else was quicker: %s", error)
            else:
                LOG.warning("the lease cannot be looked at: %s", error)
        if won is False:
            self._acts_until = -math.inf
        elif won:
            self.holder = self.me
            self._acts_until = asked_at + self._pace.acts_for_s
        if led != self.leads():
            LOG.info("%s %s", self.me, "leads" if self.leads() else "does not lead any more")
            self._on_change()

    def _renew_forever(self) -> None:
        while not self._over.is_set():
            self.try_acquire()
            self._over.wait(self._pace.retry_s)

    def _try_acquire(self, now: float) -> bool:
        """Whether it is ours now. ApiError if that is not known."""
        try:
            lease = self._api.get("leases", self._id)
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise
            return self._create_lease()
        spec = _spec_of(lease)
        self.holder = str(spec.get("holderIdentity") or "")
        if self.holder == self.me and self._wins:
            self._write_lease(lease, {})
            return True
        if not self._is_free(spec, now):
            return False
        transitions = int(spec.get("leaseTransitions") or 0) + 1
        taken = {
            "holderIdentity": self.me,
            "leaseTransitions": transitions,
            "acquireTime": _format_now(),
        }
        self._write_lease(lease, taken)
        self._wins += 1
        return True

    def _create_lease(self) -> bool:
        namespace, _, name = self._id.partition("/")
        spec = self._build_renewal() | {
            "holderIdentity": self.me, "acquireTime": _format_now(), "leaseTransitions": 0,
        }  # fmt: skip
        self._api.create(
            "leases",
            {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": name, "namespace": namespace},
                "spec": spec,
            },
        )
        self._wins += 1
        return True

    def _write_lease(self, lease: Json, changes: Json) -> None:
        """On the version that was looked at: of two who take it, one is told 409."""
        body = {
            "metadata": {"resourceVersion": lease["metadata"]["resourceVersion"]},
            "spec": self._build_renewal() | changes,
        }
        self._api.patch(Patch("leases", self._id, body))

    def _build_renewal(self) -> Json:
        return {"renewTime": _format_now(), "leaseDurationSeconds": math.ceil(self._pace.lease_s)}

    def _is_free(self, spec: Json, now: float) -> bool:
        """Nobody has it, or its holder has been silent for as long as it said it might be."""
        if not self.holder:
            return True
        transitions = int(spec.get("leaseTransitions") or 0)
        term = (self.holder, str(spec.get("renewTime")), transitions)
        if term != self._seen:
            self._seen, self._seen_at = term, now
        wait_s = max(float(spec.get("leaseDurationSeconds") or 0), self._pace.lease_s)
        return now >= self._seen_at + wait_s


def _spec_of(lease: Json) -> Json:
    return json_tree.mapping_at(lease, "spec")


def _format_now() -> str:
    return format_instant(datetime.now(UTC), "microseconds")
