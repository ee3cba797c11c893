"""Lending a node changes one label, and only of a node that is still what was decided on."""

import time
from collections.abc import Iterable, Iterator

import pytest

from laxity_k8s.act.event_writer import build_event
from laxity_k8s.act.node_loans import NodeLoans
from laxity_k8s.cluster_api import Json, Patch, PatchResult
from laxity_k8s.objects.node_rows.pool_label import POOL
from laxity_scheduler.model.decision import Loan, Reclaim
from laxity_scheduler.model.job import FOREVER
from laxity_scheduler.model.reasons import reason
from tests.support.manifests import node
from tests.support.seen_nodes import Seen

LENDS = Loan(("own",), reason("lend_idle", needed_gpus=1.0, pool_gpus=8, horizon_at=0.0, nodes=1))
BACK = Reclaim(("lent",), reason("hand_back", gpus=4, due_at=0.0, nodes=1))


class Answers:
    """An API server that answers every patch with one status, and takes Events."""

    def __init__(self, seen: Seen, status: int = 200) -> None:
        self.seen, self.status = seen, status
        self.sent: list[Patch] = []
        self.events: list[tuple[str, str]] = []
        self.stops: list[float] = []
        self.loans = NodeLoans(
            self,  # type: ignore[arg-type]
            seen.cache,
            self,  # type: ignore[arg-type]
            stop_lending=self.stops.append,
        )

    def patch_many(self, patches: Iterable[Patch]) -> Iterator[PatchResult]:
        for patch in patches:
            self.sent.append(patch)
            changed = node(patch.id, labels=dict(patch.body["metadata"]["labels"]))
            yield PatchResult(patch, self.status, changed if self.status == 200 else None, "no")

    def add_event(self, thing: Json, code: str, words: str, *, warning: bool = False) -> None:
        self.events.append((thing["metadata"]["name"], code))


@pytest.fixture
def seen() -> Seen:
    return Seen(node("own", labels={POOL: "inference"}), node("lent", labels={POOL: "loaned"}))


def test_a_loan_and_a_return_change_the_label_of_the_node_that_was_looked_at(seen: Seen) -> None:
    api = Answers(seen)
    revisions = {
        name: seen.cache.nodes[name]["metadata"]["resourceVersion"] for name in ("own", "lent")
    }
    api.loans.move_nodes([LENDS, BACK])
    assert [(patch.kind, patch.id, patch.body) for patch in api.sent] == [
        ("nodes", name, {"metadata": {"resourceVersion": revisions[name], "labels": {POOL: pool}}})
        for name, pool in (("own", "loaned"), ("lent", "inference"))
    ]
    assert api.events == [("own", "lend_idle"), ("lent", "hand_back")]
    assert api.stops == []


def test_a_node_that_somebody_else_has_labelled_or_deleted_is_let_be(seen: Seen) -> None:
    seen.put(node("own", labels={POOL: "training"}))
    seen.cache.drop_object("nodes", "lent")
    api = Answers(seen)
    api.loans.move_nodes([LENDS, BACK])
    assert (api.sent, api.events) == ([], [])


def test_a_race_that_is_lost_is_no_event_and_stops_no_loans(seen: Seen) -> None:
    api = Answers(seen, status=409)
    api.loans.move_nodes([LENDS])
    assert (len(api.sent), api.events, api.stops) == (1, [], [])


def test_without_the_right_nothing_is_lent_for_a_while_and_it_is_told_once(seen: Seen) -> None:
    api = Answers(seen, status=403)
    api.loans.move_nodes([LENDS])
    api.loans.move_nodes([LENDS])
    assert [code for _, code in api.events] == ["nodes_not_lent"]
    assert len(api.stops) == 2
    assert all(0.0 < until - time.time() <= 300.0 for until in api.stops)


def test_a_release_gives_all_lent_nodes_back_and_ends_lending(seen: Seen) -> None:
    api = Answers(seen)
    assert api.loans.give_back_all() == {}
    assert [patch.id for patch in api.sent] == ["lent"]
    assert api.stops == [FOREVER]


@pytest.mark.parametrize("status", [403, 409, 500])
def test_a_release_names_lent_nodes_that_could_not_be_given_back(seen: Seen, status: int) -> None:
    assert Answers(seen, status=status).loans.give_back_all() == {"lent": "no"}


def test_a_lent_node_that_is_gone_is_given_back(seen: Seen) -> None:
    assert Answers(seen, status=404).loans.give_back_all() == {}


def test_an_event_about_a_node_stands_in_the_namespace_that_kubernetes_takes() -> None:
    event = build_event(node("lent"), "hand_back", "words")
    about = event["involvedObject"]
    assert (event["metadata"]["namespace"], about["namespace"]) == ("default", None)
    assert (about["kind"], about["name"], event["reason"]) == ("Node", "lent", "HandBack")
