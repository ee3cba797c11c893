"""A coordination.k8s.io Lease: held by one service at a time, for as long as it renews it.

An annotation says whose store its holder has. Replicas of that store wait until it is free. A service
with another store ends when it sees that the lease is renewed; it takes the lease over when that has
been left alone for as long as a silent holder is waited for, so that its service may restart.

Times as in Kubernetes' own controllers: others wait 15 s after the last renewal that they saw, the
holder itself stops acting 10 s after its own, and everybody looks every 2 s. Others' clocks are not
compared: each measures on its own since when the lease has not changed. The clock goes on while a
machine sleeps, and a renewal counts from before it was asked for.
"""

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Protocol

from laxity import json_tree, names
from laxity.instants import format_instant
from laxity_k8s.cluster_api import CONFLICT, FORBIDDEN, NOT_FOUND, ApiError, Json, Kind, Patch
from laxity_scheduler.service.leadership import OtherStoreError

LOG = logging.getLogger("laxity.k8s.lease")
NAME: Final = "laxity"
STORE: Final = f"{names.DOMAIN}/store"  # annotation of the Lease: whose store its holder has
BOOT_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # macOS has one for both
NAMESPACE_FILE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
FAILURES_TOLD: Final = 2  # looks in a row
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
    return time.clock_gettime(BOOT_CLOCK)


def own_namespace() -> str:
    """Where this pod's service account lives; `laxity` outside of a cluster."""
    return NAMESPACE_FILE.read_text().strip() if NAMESPACE_FILE.exists() else "laxity"


class Lease:
    """Campaigns from a thread of its own until closed. An Election.

    `me` is a name that only one process can have at a time: who finds it on the lease without having
    won, finds the lease of a predecessor that has ended.
    """

    def __init__(
        self,
        api: Brief,
        *,
        namespace: str,
        me: str,
        store_id: str,
        pace: LeaseTimings,
        fence: Fence,
        on_change: Callable[[], None],
        clock: Callable[[], float] = boot_s,
    ) -> None:
        self.me, self.fence, self.holder, self.silence = me, fence, "", ""
        self._api, self._id, self._pace, self._clock = api, f"{namespace}/{NAME}", pace, clock
        self._on_change, self._store_id = on_change, store_id
        self._wins, self._failures, self._was_leading = 0, 0, False
        self._acts_until = -math.inf
        self._seen: tuple[str, str, str, int] | None = None
        self._seen_at = -math.inf
        self._awaits_other_store = False
        self._ended_by: OtherStoreError | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(
            target=self._renew_forever, name="laxity-lease", daemon=True
        )

    def begin(self) -> None:
        """Look at the lease, until that of another store is renewed or ours; then campaign.

        OtherStoreError if another store's is renewed; ApiError without the right to look.
        """
        was_late = True
        while was_late or self._awaits_other_store:
            was_late = False
            try:
                self._look()
            except ApiError as error:
                if error.status in (FORBIDDEN, NOT_FOUND):
                    raise self._explain_error(error) from error
                _log_error(error)
                was_late = error.status == CONFLICT
            if self._awaits_other_store:
                self._over.wait(self._pace.retry_s)
        self._thread.start()

    @property
    def reign(self) -> int:
        if self._ended_by is not None:
            raise self._ended_by
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
        try:
            self._look()
        except OtherStoreError as error:
            self._ended_by, self._acts_until = error, -math.inf
            self._over.set()
            self._on_change()
        except ApiError as error:
            _log_error(error)
            self._note_look("" if error.status == CONFLICT else f"who leads is not known: {error}")
        else:
            self._note_look("")

    def _note_look(self, problem: str) -> None:
        """One look without an answer may be an accident."""
        self._failures = self._failures + 1 if problem else 0
        silence = problem if self._failures >= FAILURES_TOLD else ""
        was_silent, self.silence = bool(self.silence), silence
        if bool(silence) != was_silent:
            self._on_change()

    def _look(self) -> None:
        asked_at = self._clock()
        try:
            if self._try_acquire(asked_at):
                self.holder, self._awaits_other_store, self._seen = self.me, False, None
                self._acts_until = asked_at + self._pace.acts_for_s
            else:
                self._acts_until = -math.inf
        finally:
            leads = self.leads()
            if leads != self._was_leading:  # it may have run out while nobody answered
                self._was_leading = leads
                LOG.info("%s %s", self.me, "leads" if leads else "does not lead any more")
                self._on_change()

    def _renew_forever(self) -> None:
        while not self._over.wait(self._pace.retry_s):
            self.try_acquire()

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
        if not self._is_free(lease, now):
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
                "metadata": {"name": name, "namespace": namespace, **self._annotations},
                "spec": spec,
            },
        )
        self._wins += 1
        return True

    def _write_lease(self, lease: Json, changes: Json) -> None:
        """On the version that was looked at: of two who take it, one is told 409."""
        body = {
            "metadata": {
                "resourceVersion": lease["metadata"]["resourceVersion"],
                **self._annotations,
            },
            "spec": self._build_renewal() | changes,
        }
        self._api.patch(Patch("leases", self._id, body))

    def _build_renewal(self) -> Json:
        return {"renewTime": _format_now(), "leaseDurationSeconds": math.ceil(self._pace.lease_s)}

    @property
    def _annotations(self) -> Json:
        return {"annotations": {STORE: self._store_id}}

    def _is_free(self, lease: Json, now: float) -> bool:
        """Nobody has it, or its holder has been silent for as long as it said it might be.

        A lease of another store has to be left alone for that long even if nobody has it.
        """
        spec, store = _spec_of(lease), json_tree.annotations_of(lease).get(STORE, self._store_id)
        is_other = store != self._store_id
        if self.holder == self.me or not (self.holder or is_other):
            return True
        transitions = int(spec.get("leaseTransitions") or 0)
        term = (store, self.holder, str(spec.get("renewTime")), transitions)
        if term != self._seen:
            if is_other and self.holder and self._seen is not None and self._seen[0] == store:
                raise self._build_refusal(spec)
            self._seen, self._seen_at = term, now
        wait_s = max(float(spec.get("leaseDurationSeconds") or 0), self._pace.lease_s)
        is_free = now >= self._seen_at + wait_s
        if is_other and not is_free and not self._awaits_other_store:
            LOG.info("lease %s is of another store: taken in %g s if left alone", self._id, wait_s)
        self._awaits_other_store = is_other
        return is_free

    def _build_refusal(self, spec: Json) -> OtherStoreError:
        return OtherStoreError(
            f"{self.holder} acts on this cluster with a store of its own, since "
            f"{spec.get('acquireTime')} (lease {NAME} in namespace {self._id.partition('/')[0]}): "
            "stop that service, or use its LAXITY_STORE"
        )

    def _explain_error(self, error: ApiError) -> ApiError:
        return ApiError(
            f"the lease {self._id} can be neither read nor written ({error}); a service acts only "
            "with it: apply namespace.yaml and rbac.yaml of k8s/manifests/base",
            status=error.status,
        )


def _log_error(error: ApiError) -> None:
    if error.status == CONFLICT:
        LOG.info("somebody else was quicker: %s", error)
    else:
        LOG.warning("the lease cannot be looked at: %s", error)


def _spec_of(lease: Json) -> Json:
    return json_tree.mapping_at(lease, "spec")


def _format_now() -> str:
    return format_instant(datetime.now(UTC), "microseconds")
