"""The Lease on a real API server, by clocks that a test sets."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from laxity_k8s.cluster_api import ApiError, Json, Kind, Patch
from laxity_k8s.http.api_cluster import KubernetesApi
from laxity_k8s.lease import STORE, Brief, Lease, LeaseTimings
from laxity_scheduler.service.leadership import OtherStoreError
from tests.support.kubernetes.cluster import Cluster
from tests.support.waiting import until

pytestmark = pytest.mark.cluster

PACE = LeaseTimings(15.0)


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Room:
    """Candidates for one lease; `told` counts who was woken."""

    api: KubernetesApi
    namespace: str
    told: list[str] = field(default_factory=list)

    def candidate(
        self, me: str, clock: Clock, api: Brief | None = None, *, store: str = "ours"
    ) -> Lease:
        return Lease(
            api or self.api, namespace=self.namespace, me=me, store_id=store, pace=PACE,
            clock=clock, fence=lambda *_: None, on_change=lambda: self.told.append(me),
        )  # fmt: skip

    def store(self) -> str:
        found: str = self.api.get("leases", f"{self.namespace}/laxity")["metadata"]["annotations"][
            STORE
        ]
        return found

    def spec(self) -> Json:
        found: Json = self.api.get("leases", f"{self.namespace}/laxity")["spec"]
        return found


@dataclass
class Rival:
    """The same API; somebody else has a round of its own between our look and our word."""

    api: KubernetesApi
    other: Lease

    def get(self, kind: Kind, object_id: str) -> Json:
        try:
            return self.api.get(kind, object_id)
        finally:
            self.other.try_acquire()

    def create(self, kind: Kind, body: Json) -> Json:
        return self.api.create(kind, body)

    def patch(self, patch: Patch) -> Json:
        return self.api.patch(patch)


@dataclass
class Hanging:
    """The same API; while it hangs nobody is answered."""

    api: KubernetesApi
    hangs: bool = False

    def get(self, kind: Kind, object_id: str) -> Json:
        if self.hangs:
            raise ApiError("the API server does not answer")
        return self.api.get(kind, object_id)

    def create(self, kind: Kind, body: Json) -> Json:
        return self.api.create(kind, body)

    def patch(self, patch: Patch) -> Json:
        return self.api.patch(patch)


@pytest.fixture(scope="module")
def api(cluster: Cluster) -> Iterator[KubernetesApi]:
    made = KubernetesApi(cluster.kubeconfig)
    yield made
    made.close()


@pytest.fixture
def room(api: KubernetesApi, namespace: str) -> Room:
    return Room(api, namespace)


def test_the_first_has_it_and_keeps_it_while_it_renews(room: Room) -> None:
    mine, its = Clock(), Clock()
    one, other = room.candidate("one", mine), room.candidate("other", its)
    for _ in range(3):
        one.try_acquire()
        other.try_acquire()
        mine.now += PACE.acts_for_s - 1.0
        its.now += PACE.lease_s
    assert (one.leads(), other.leads()) == (True, False)
    assert (one.holder, other.holder) == ("one", "one")
    assert (one.reign, other.reign) == (1, 0)
    assert room.told == ["one"]


def test_who_is_not_answered_twice_says_so_until_it_is(room: Room, api: KubernetesApi) -> None:
    hanging = Hanging(api)
    clock = Clock()
    one = room.candidate("one", clock, hanging)
    one.try_acquire()
    told = len(room.told)
    hanging.hangs = True
    one.try_acquire()
    assert (one.silence, len(room.told)) == ("", told), "once may be an accident"
    one.try_acquire()
    assert one.silence == "who leads is not known: the API server does not answer"
    one.try_acquire()
    assert len(room.told) == told + 1, "told once"
    clock.now += PACE.acts_for_s
    one.try_acquire()
    assert len(room.told) == told + 2, "that it does not lead any more"
    hanging.hangs = False
    one.try_acquire()
    assert (one.silence, one.leads()) == ("", True)


def test_a_silent_holder_stops_by_its_own_clock_before_others_take_over_by_theirs(
    room: Room,
) -> None:
    mine, its = Clock(), Clock(9e9)
    one, other = room.candidate("one", mine), room.candidate("other", its)
    one.try_acquire()
    other.try_acquire()
    mine.now += PACE.acts_for_s
    assert not one.leads()
    its.now += PACE.lease_s - 0.01
    other.try_acquire()
    assert not other.leads()
    its.now += 0.01
    other.try_acquire()
    assert other.leads()
    one.try_acquire()
    assert (one.leads(), one.holder) == (False, "other")
    assert room.spec()["leaseTransitions"] == 1


def test_of_two_who_take_it_in_the_same_moment_one_has_it(room: Room) -> None:
    other = room.candidate("other", Clock())
    one = room.candidate("one", Clock(), Rival(room.api, other))
    one.try_acquire()
    assert (one.leads(), other.leads()) == (False, True)
    assert room.spec()["holderIdentity"] == "other"


def test_a_renewal_counts_from_before_it_was_asked_for(room: Room) -> None:
    mine = Clock()
    one = room.candidate("one", mine)
    one.try_acquire()
    slow = room.candidate("slow", Clock())  # its round never wins: it only takes up time
    late = room.candidate("one", mine, Rival(room.api, slow))
    late._wins, late._acts_until = one._wins, one._acts_until

    def round_that_takes_long() -> None:
        mine.now += PACE.acts_for_s

    slow.try_acquire = round_that_takes_long  # type: ignore[method-assign]
    late.try_acquire()
    assert not late.leads()


def test_a_lease_that_was_given_back_is_taken_at_once(room: Room) -> None:
    one, other = room.candidate("one", Clock()), room.candidate("other", Clock())
    one.begin()
    until(one.leads, "it leads")
    one.close()
    other.try_acquire()
    assert other.leads()
    assert not one.leads()


def test_a_lease_that_was_deleted_is_made_anew_and_counts_as_another_reign(room: Room) -> None:
    one = room.candidate("one", Clock())
    one.try_acquire()
    room.api.delete("leases", f"{room.namespace}/laxity")
    one.try_acquire()
    assert one.reign == 2


def test_an_api_server_that_does_not_answer_leaves_the_lease_as_it_was(room: Room) -> None:
    mine = Clock()
    one = room.candidate("one", mine)
    one.try_acquire()
    away = room.candidate("one", mine, Away())
    away._wins, away._acts_until = one._wins, one._acts_until
    away.try_acquire()
    assert away.leads()
    mine.now += PACE.acts_for_s
    assert not away.leads()


def test_a_restarted_holder_takes_its_own_lease_at_once(room: Room) -> None:
    room.candidate("one", Clock()).try_acquire()
    again = room.candidate("one", Clock())
    again.try_acquire()
    assert again.leads()
    assert room.spec()["leaseTransitions"] == 1


def test_a_lease_that_another_store_renews_ends_a_service_with_its_own(room: Room) -> None:
    mine = Clock()
    one, other = room.candidate("one", mine), room.candidate("other", Clock(), store="theirs")
    one.try_acquire()
    other.try_acquire()
    assert other.reign == 0, "one look does not say whether it is renewed"
    one.try_acquire()
    other.try_acquire()
    with pytest.raises(OtherStoreError, match=f"one acts .* in namespace {room.namespace}"):
        assert other.reign
    mine.now += 10 * PACE.lease_s
    assert room.spec()["holderIdentity"] == "one"
    with pytest.raises(OtherStoreError):
        other.begin()


@pytest.mark.parametrize("given_back", [True, False])
def test_a_lease_of_another_store_is_taken_once_it_was_left_alone_for_long(
    room: Room, *, given_back: bool
) -> None:
    mine = Clock()
    one, other = room.candidate("one", Clock()), room.candidate("other", mine, store="theirs")
    one.begin()
    if given_back:
        one.close()
    else:
        one._over.set()
        one._thread.join()
    other.try_acquire()
    mine.now += PACE.lease_s - 0.01
    other.try_acquire()
    assert not other.leads()
    mine.now += 0.01
    other.try_acquire()
    assert other.leads()
    assert room.store() == "theirs"


def test_a_service_that_restarts_in_time_keeps_its_lease_from_another_store(room: Room) -> None:
    its = Clock()
    one, other = room.candidate("one", Clock()), room.candidate("other", its, store="theirs")
    one.begin()
    one.close()
    other.try_acquire()
    again = room.candidate("again", Clock())
    again.try_acquire()
    its.now += PACE.lease_s
    other.try_acquire()
    assert again.leads()
    with pytest.raises(OtherStoreError, match="again acts"):
        assert other.reign


def test_without_the_right_to_its_lease_a_service_does_not_start(
    cluster: Cluster, namespace: str
) -> None:
    stranger = KubernetesApi(cluster.service_kubeconfig)
    lease = Room(stranger, namespace).candidate("stranger", Clock())
    with pytest.raises(ApiError, match=r"cannot get resource \"leases\".*rbac.yaml") as raised:
        lease.begin()
    stranger.close()
    assert raised.value.status == 403
    assert not lease.leads()


@dataclass
class Away:
    """Nobody answers."""

    def get(self, kind: Kind, object_id: str) -> Json:
        raise ApiError("no answer")

    def create(self, kind: Kind, body: Json) -> Json:
        raise ApiError("no answer")

    def patch(self, patch: Patch) -> Json:
        raise ApiError("no answer")
