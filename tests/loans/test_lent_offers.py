"""A refused deadline says what lent GPUs would do: a best guess that is checked, and no promise."""

from dataclasses import replace
from typing import Any

import pytest

from laxity.api.job_view import offer_view as read_offer
from laxity.api.status_text import offer_text
from laxity.cli.kubectl_plugin import offer_annotation
from laxity.cli.render.job_panel import offer_words
from laxity_k8s.act.offer_annotations import describe_offers
from laxity_scheduler.inflight import with_follow_ups
from laxity_scheduler.model.cluster import ClusterState, InferenceDemand, NodeSet
from laxity_scheduler.model.decision import Admit, Forecasted, Refuse, Resize
from laxity_scheduler.model.job import Job, Offer
from laxity_scheduler.model.plan_application import apply_decisions
from laxity_scheduler.plan_check import check_plan
from laxity_scheduler.policies.registry import find
from laxity_scheduler.service.offers import annotations_for
from laxity_scheduler.service.views.verdict_view import offer_view
from tests.support.builders import Curve, job, node, promised

NOW, HOUR_S = 1_000.0, 3_600.0
TRUTH = Curve(spread=0.1, start_s=30.0, stop_s=10.0)


def cluster(*jobs: Job, lent: int = 8, **demand: Any) -> ClusterState:
    """t0's two GPUs are promised to another for days without slack; l0 is lent."""
    holder = promised(
        "holder", NOW + 330_200.0, epochs=10_000, workers=(2,), running=2, nodes=("t0",) * 2
    )
    busy = sum(row.nodes.count("l0") for row in jobs)
    nodes = (
        node("t0", 2, free_gpus=0),
        node("l0", lent, free_gpus=lent - busy, pool="loaned"),
        node("f0", 8, free_gpus=0, pool="inference"),
    )
    needs = {"needed_gpus": 8.0, "horizon_at": NOW + HOUR_S, **demand}
    return ClusterState(NOW, nodes, (holder, *jobs), inference=InferenceDemand(**needs))


def asking(*, minutes: int = 40, due_in_s: float = 1_200.0, **fields: Any) -> Job:
    """A job that takes so many minutes on one GPU."""
    given = {"workers": (1, 2, 4), **fields}
    return job("due", epochs=minutes, due_at=NOW + due_in_s, asked=True, **given)


def offer_to(state: ClusterState, policy: str = "qos") -> Offer | None:
    plan = with_follow_ups(find(policy).policy())(state, TRUTH)
    check_plan(plan, state)
    refusals = [row.refusal for row in plan.decisions if isinstance(row, Refuse)]
    assert len(refusals) == 1, plan.decisions
    return next((offer for offer in refusals[0].offers if offer.kind == "lent"), None)


@pytest.mark.parametrize("policy", ["qos", "elasticflow"])
def test_a_refused_deadline_is_offered_the_fewest_lent_gpus_that_would_be_in_time(
    policy: str,
) -> None:
    offer = offer_to(cluster(asking(), lent=4), policy)
    assert offer is not None
    assert offer.gpus_borrowed == 4
    assert offer.deadline_at == NOW + 1_200.0
    # it starts (30 s), does an epoch of a minute on one GPU, widens (10 and 30 s), and does the others
    assert offer.p50_at == pytest.approx(NOW + 30.0 + 60.0 + 60.0 + 38 * 15.0, abs=61.0)
    assert offer.p50_at < offer.p90_at


def test_one_that_is_in_time_on_its_least_width_needs_no_more() -> None:
    offer = offer_to(cluster(asking(minutes=10)))
    assert offer is not None
    assert (offer.gpus_borrowed, offer.p50_at) == (1, NOW + 30.0 + 600.0)


@pytest.mark.parametrize(
    "state",
    [
        pytest.param(cluster(asking(due_in_s=300.0)), id="late even there"),
        pytest.param(cluster(asking(), lent=2), id="too few are lent"),
        pytest.param(
            cluster(asking(), job("other", workers=(6,), running=6, nodes=("l0",) * 6)),
            id="others use them",
        ),
        pytest.param(
            cluster(asking(), horizon_at=NOW + 600.0), id="the forecast ends before it does"
        ),
        pytest.param(cluster(asking(), needed_gpus=12.0, reclaim_by=NOW + 60.0), id="wanted back"),
        pytest.param(cluster(asking(), job("other", workers=(6,))), id="another starts on them"),
        pytest.param(cluster(asking(preemptible=False)), id="it must not be stopped"),
        pytest.param(cluster(asking(model="new")), id="nobody knows how long it takes"),
    ],
)
def test_nothing_is_offered_where_lent_gpus_would_not_do(state: ClusterState) -> None:
    predictor = replace(TRUTH, unknown=frozenset({"new"}))
    plan = with_follow_ups(find("qos").policy())(state, predictor)
    offers = [row.refusal.offers for row in plan.decisions if isinstance(row, Refuse)]
    assert len(offers) == 1
    assert "lent" not in [offer.kind for offer in offers[0]]


@pytest.mark.parametrize(("own_gpus", "is_offered"), [(0, True), (1, False)])
def test_a_job_that_would_start_on_a_training_node_is_offered_no_lent_gpus(
    own_gpus: int, *, is_offered: bool
) -> None:
    """Too late at P90, in time at P50: it would not borrow where one of its own GPUs is free."""
    state = cluster(asking(minutes=10, due_in_s=640.0, workers=(1,)))
    own = replace(state.nodes[0], gpus=2 + own_gpus, free_gpus=own_gpus)
    offer = offer_to(replace(state, nodes=(own, *state.nodes[1:])))
    assert (offer is not None) == is_offered


def test_a_job_that_may_not_use_them_is_offered_none() -> None:
    sets = {"own": NodeSet(frozenset({"t0"}), "it asks for t0")}
    state = replace(cluster(asking(eligible="own")), sets=sets)
    assert offer_to(state) is None


@pytest.mark.parametrize(
    ("gpus_later", "is_offered"), [pytest.param(8.0, True), pytest.param(9.0, False)]
)
def test_beyond_the_horizon_the_outlook_of_a_day_counts(
    gpus_later: float, *, is_offered: bool
) -> None:
    outlook = ((NOW + 600.0, 8.0), (NOW + 2 * HOUR_S, gpus_later))
    state = cluster(asking(), horizon_at=NOW + 600.0, outlook=outlook)
    assert (offer_to(state) is not None) == is_offered


def test_who_takes_it_starts_on_lent_nodes_and_widens_to_what_was_offered() -> None:
    state = cluster(asking())
    offer = offer_to(state)
    assert offer is not None
    soft = replace(state.jobs[1], service_class="soft", verdict=None)
    decide = with_follow_ups(find("qos").policy())
    state = replace(state, jobs=(state.jobs[0], soft))
    told = decide(state, TRUTH).decisions
    assert [row.forecast.p90_at for row in told if isinstance(row, Forecasted)]
    state = apply_decisions(state, [row for row in told if isinstance(row, Forecasted)])
    state = replace(state, jobs=tuple(replace(row, asked=False) for row in state.jobs))
    starts = decide(state, TRUTH).decisions
    assert [row.nodes for row in starts if isinstance(row, Admit)] == [("l0",)]
    later = replace(apply_decisions(state, starts), now=NOW + 90.0)
    rows = [replace(row, formed=row.workers, start_seen=True) for row in later.jobs]
    widths = decide(replace(later, jobs=tuple(rows)), TRUTH).decisions
    assert [row.workers for row in widths if isinstance(row, Resize)] == [offer.gpus_borrowed]


def test_the_offer_is_told_as_a_forecast_everywhere() -> None:
    end_at = 2_000_000_000.0
    offer = Offer("lent", end_at + 60.0, (1, 2, 4), end_at + 600.0, 1.0, 4, end_at)
    view = read_offer(offer_view(offer))
    texts = (
        offer_words(view, end_at - 60.0),
        offer_text(view),
        describe_offers((offer,)),
        offer_annotation(offer_view(offer)),
    )
    for text in texts:
        assert "likely" in text
        assert "a forecast, no promise" in text
        assert "soft" in text
        assert "4" in text
    assert annotations_for(offer) == {"laxity.dev/class": "soft"}
