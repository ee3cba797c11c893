"""What a job is told: each reason, worked out by hand. Epochs take a minute on one worker."""

from dataclasses import replace

import pytest

from laxity_profiler.estimate import Estimate, Workload
from laxity_scheduler.model.cluster import ClusterState, Hold, NodeSet
from laxity_scheduler.model.job import Forecast, Job, Offer, Promise, Refusal
from laxity_scheduler.plan_check import apply_plan
from laxity_scheduler.policies.qos import decide
from laxity_scheduler.promising.promise import judge
from tests.support.builders import MINUTE_EPOCHS, Curve, cluster, job, node, promised


def refusal(state: ClusterState, one: Job, predictor: Curve = MINUTE_EPOCHS) -> Refusal:
    verdict = judge(state, one, predictor)
    assert isinstance(verdict, Refusal), verdict
    return verdict


def offered(verdict: Refusal) -> dict[str, Offer]:
    return {offer.kind: offer for offer in verdict.offers}


def taken(one: Job, offer: Offer) -> Job:
    """What the user asks who accepts an offer."""
    if offer.kind == "soft":
        return replace(one, service_class="soft", asked=True)
    return replace(one, deadline_at=offer.deadline_at, widths=offer.widths, asked=True)


@pytest.mark.parametrize(
    ("due_at", "workers"),
    [
        pytest.param(600.0, 1, id="one worker is just enough"),
        pytest.param(599.0, 2, id="a second less takes a second worker"),
        pytest.param(150.0, 4, id="four are just enough"),
    ],
)
def test_a_promise_rests_on_the_fewest_workers_in_time(due_at: float, workers: int) -> None:
    state = cluster(gpus=8)
    verdict = judge(state, job(epochs=10, due_at=due_at, workers=(1, 2, 4)), MINUTE_EPOCHS)
    assert isinstance(verdict, Promise)
    assert verdict.runs == ((600.0 / workers, workers),)
    assert verdict.reason.code == "fits"
    assert verdict.rests_on == ("truth",)


def test_a_promise_is_made_at_p90_not_at_the_median() -> None:
    careful = Curve(spread=0.2)
    state = cluster(gpus=1)
    assert isinstance(judge(state, job(due_at=720.0), careful), Promise)
    assert isinstance(judge(state, job(due_at=719.0), careful), Refusal)


def test_starting_takes_its_time_from_the_deadline() -> None:
    slow = Curve(start_s=30.0)
    state = cluster(gpus=1)
    assert isinstance(judge(state, job(due_at=630.0), slow), Promise)
    assert isinstance(judge(state, job(due_at=629.0), slow), Refusal)


def test_a_deadline_in_the_past_is_refused_with_a_later_one() -> None:
    one = job(due_at=-60.0)
    verdict = refusal(cluster(gpus=1), one)
    assert verdict.reason.code == "deadline_in_the_past"
    assert verdict.reason.text == (
        "the deadline, 1969-12-31T23:59:00Z, had passed when a verdict was asked for"
    )
    assert offered(verdict)["deadline"].deadline_at == pytest.approx(660.0)


def test_a_worker_larger_than_any_node_is_refused() -> None:
    verdict = refusal(cluster(gpus=[4, 2]), job(due_at=9e3, gpus_per_worker=8))
    assert verdict.reason.code == "does_not_fit_any_node"
    assert verdict.reason.fact("largest_gpus") == 4
    assert verdict.offers == ()


def test_more_workers_than_fit_on_the_nodes_are_refused() -> None:
    """Two nodes of 3 GPUs hold two workers of 2 GPUs, not three."""
    verdict = refusal(cluster(gpus=[3, 3]), job(due_at=9e3, gpus_per_worker=2, workers=(3,)))
    assert verdict.reason.code == "does_not_fit_cluster"
    assert "3 workers of 2 GPUs, each on one node; 2 fit" in verdict.reason.text


def test_a_model_without_history_is_refused_with_a_probe() -> None:
    verdict = refusal(cluster(gpus=1), job(due_at=9e3), Curve(unknown=frozenset({"mlp"})))
    assert verdict.reason.code == "unknown_model_needs_profiling"
    assert "--estimate" in verdict.reason.text
    assert [offer.kind for offer in verdict.offers] == ["probe", "soft"]


def test_a_deadline_before_the_fastest_finish_is_refused_with_what_would_do() -> None:
    one = job(due_at=100.0, workers=(1, 2))
    verdict = refusal(cluster(gpus=8), one)
    assert verdict.reason.code == "deadline_before_fastest_finish"
    assert (verdict.reason.fact("workers"), verdict.reason.fact("late_s")) == (2, 200.0)
    assert offered(verdict)["deadline"].deadline_at == pytest.approx(360.0)
    assert offered(verdict)["widths"].widths == (1, 2, 8)


def test_code_that_cannot_be_wider_is_offered_no_widths() -> None:
    assert "widths" not in offered(refusal(cluster(gpus=8), job(due_at=100.0)))


def test_capacity_that_is_promised_to_others_is_not_promised_again() -> None:
    busy = promised("first", 1000.0, epochs=15, running=1)
    verdict = refusal(cluster(gpus=1, jobs=[busy]), job("second", due_at=1400.0))
    assert verdict.reason.code == "capacity_promised_to_others"
    assert verdict.reason.fact("free_gpus") == 0
    assert offered(verdict)["borrow"].gpus_borrowed == 1
    assert 1500.0 <= offered(verdict)["deadline"].deadline_at <= 1620.0


def test_a_refusal_by_the_cost_of_making_room_says_so() -> None:
    costly = Curve(start_s=30.0, stop_s=20.0)
    others = [job("b1", epochs=1000, running=1)]
    state = cluster(gpus=1, jobs=others, now=50.0)

    verdict = refusal(state, job("second", due_at=690.0), costly)

    assert verdict.reason.code == "capacity_freed_too_late"
    assert verdict.reason.fact("making_room_s") == pytest.approx(10.0 + 20.0 + 30.0, abs=3.0)
    assert verdict.reason.text == ("stopping team/b1 and starting takes 1m02s at P90: 22s too late")
    free = cluster(gpus=1, now=50.0)
    assert isinstance(judge(free, job("second", due_at=690.0), costly), Promise)


@pytest.mark.parametrize("waiting_class", ["soft", "best_effort"])
def test_a_promise_counts_on_nothing_that_is_held_for_another(waiting_class: str) -> None:
    """One GPU is held, the other is free at the epoch's end, in 60 s; the newcomer needs 600 s."""
    waits = job("waits", epochs=5, service_class=waiting_class, asked=False)
    state = cluster(
        gpus=[1, 1],
        jobs=[job("runs", epochs=10, running=1, nodes=("n1",)), waits],
        holds=[Hold("team/waits", "n0", 1, 600.0)],
    )
    late, in_time = job(epochs=10, due_at=640.0), job(epochs=10, due_at=700.0)
    assert refusal(state, late).reason.code == "capacity_freed_too_late"
    promise = judge(state, in_time, MINUTE_EPOCHS)
    assert isinstance(promise, Promise)
    assert promise.p90_at == 660.0


def test_a_promise_on_few_nodes_counts_on_nothing_there_that_is_held_for_another() -> None:
    """n0 is held, n1 is free: on n0 alone it starts when the other can be stopped, in 60 s."""
    waits = job("waits", epochs=5, asked=False)
    sets = {"n": NodeSet(frozenset({"n0"}))}
    holds = [Hold("team/waits", "n0", 1, 600.0)]
    state = cluster(gpus=[1, 1], jobs=[waits], holds=holds, sets=sets)
    promise = judge(state, job(epochs=10, due_at=700.0, eligible="n"), MINUTE_EPOCHS)
    assert isinstance(promise, Promise)
    assert promise.p90_at == 660.0


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(job("b1", epochs=1000, running=1, preemptible=False), id="never stopped"),
        pytest.param(promised("b1", 1000.0, epochs=14, running=1), id="promised"),
    ],
)
def test_a_refusal_for_want_of_gpus_blames_no_stop(other: Job) -> None:
    verdict = refusal(cluster(gpus=1, jobs=[other]), job("second", due_at=690.0))

    assert verdict.reason.code == "capacity_promised_to_others"


def test_jobs_of_other_namespaces_are_not_named_as_stopped() -> None:
    other = job("theirs/b1", epochs=1000, running=1)
    state = cluster(gpus=1, jobs=[other], now=30.0)

    verdict = refusal(state, job("second", due_at=640.0))

    assert "a job of another namespace" in verdict.reason.within("team").text
    assert "theirs" not in verdict.reason.within("team").text


def test_a_namespace_cannot_be_promised_more_than_its_budget() -> None:
    held = promised("first", 1000.0, running=1)
    state = cluster(gpus=8, jobs=[held], budgets={"team": 1000.0})
    verdict = refusal(state, job("second", due_at=1000.0))
    assert verdict.reason.code == "capacity_budget_spent"
    assert verdict.reason.text == (
        "namespace team has 0.11 promised GPU-hours left of 0.28; this job needs 0.17"
    )
    assert isinstance(judge(state, job("other/second", due_at=1000.0), MINUTE_EPOCHS), Promise)


def test_earlier_promises_are_not_broken_for_a_newcomer() -> None:
    """The newcomer is due first and would fit alone; the one promised before would be late."""
    first = promised("first", 700.0, running=1)
    state = cluster(gpus=1, jobs=[first])
    assert refusal(state, job("second", due_at=650.0)).reason.code == "capacity_promised_to_others"


def test_a_promised_job_makes_way_if_it_is_in_time_all_the_same() -> None:
    first = promised("first", 2000.0, running=1)
    state = cluster(gpus=1, jobs=[first])
    verdict = judge(state, job("second", due_at=700.0, epochs=5), MINUTE_EPOCHS)
    assert isinstance(verdict, Promise)
    starts_at, workers = verdict.runs[0]
    assert starts_at == pytest.approx(60.0, abs=20.0)
    assert workers == 0


def test_a_best_effort_job_is_in_nobodys_way_but_until_its_epoch_ends() -> None:
    state = cluster(gpus=1, jobs=[job("be", epochs=1000, running=1)], now=30.0)
    verdict = judge(state, job("hard", due_at=700.0), MINUTE_EPOCHS)
    assert isinstance(verdict, Promise)
    assert verdict.runs == ((60.0, 0), (660.0, 1))


def test_a_job_that_may_not_be_stopped_is_in_the_way_to_its_end() -> None:
    stays = job("be", epochs=20, running=1, preemptible=False)
    verdict = refusal(cluster(gpus=1, jobs=[stays]), job("hard", due_at=900.0))
    assert verdict.reason.code == "capacity_promised_to_others"
    assert isinstance(
        judge(cluster(gpus=1, jobs=[stays]), job("hard", due_at=1900.0), MINUTE_EPOCHS), Promise
    )


def test_gpus_of_other_peoples_pods_are_promised_to_nobody() -> None:
    state = cluster(gpus=2)
    nodes = (node("n0", 2, free_gpus=1),)
    busy = replace(state, nodes=nodes, jobs=(promised("first", 700.0),))
    assert isinstance(judge(busy, job("second", due_at=700.0), MINUTE_EPOCHS), Refusal)


@pytest.mark.parametrize("seconds", [0.0, 5.0, 10.0])
@pytest.mark.parametrize("kind", ["deadline", "widths", "soft"])
def test_an_offer_is_promised_when_it_is_accepted_a_little_later(kind: str, seconds: float) -> None:
    one = job("second", due_at=200.0, workers=(1, 2), submitted_at=1.0)
    state = cluster(gpus=8, jobs=[promised("first", 700.0, running=3, workers=(3,)), one])
    offers = offered(refusal(state, one))
    if kind == "soft":
        assert isinstance(judge(state, replace(one, service_class="soft"), MINUTE_EPOCHS), Forecast)
        return
    asks = taken(one, offers[kind])
    later = replace(state, now=seconds, jobs=(*state.jobs[:1], asks))
    assert isinstance(judge(later, asks, MINUTE_EPOCHS), Promise)


def test_an_offer_behind_others_is_promised_when_it_is_accepted_later() -> None:
    busy = [promised("x", 1000.0, epochs=15, running=1), promised("y", 950.0, running=1)]
    one = job("late", due_at=900.0)
    offer = offered(refusal(cluster(gpus=2, jobs=busy), one))["deadline"]
    asks = taken(one, offer)
    for seconds in (0.0, 10.0, 30.0, 59.0):  # its margin is a minute
        later = cluster(gpus=2, jobs=[*busy, asks], now=seconds)
        assert isinstance(judge(later, asks, MINUTE_EPOCHS), Promise), seconds


def test_soft_jobs_are_told_how_late_they_will_be() -> None:
    verdict = judge(cluster(gpus=1), job(due_at=500.0, service_class="soft"), MINUTE_EPOCHS)
    assert isinstance(verdict, Forecast)
    assert (verdict.p90_at, verdict.late_by_s) == (600.0, 100.0)
    assert verdict.reason.text == "P90 finish 1970-01-01T00:10:00Z, 1m40s after the deadline"


def test_a_waiting_job_is_forecast_behind_those_before_it() -> None:
    ahead = [job("runs", running=1), job("waits", epochs=5, asked=False)]
    verdict = judge(cluster(gpus=1, jobs=ahead), job("last", epochs=6), MINUTE_EPOCHS)
    assert isinstance(verdict, Forecast)
    assert verdict.p90_at == pytest.approx(600.0 + 300.0 + 360.0)


def test_who_asks_for_an_earlier_deadline_and_is_refused_keeps_the_promise() -> None:
    one = promised("a", 900.0, running=1, asked=True)
    amended = replace(one, deadline_at=300.0)
    state = cluster(gpus=1, jobs=[amended])
    after = apply_plan(decide(state, MINUTE_EPOCHS), state).by_id["team/a"]
    assert after.verdict == one.verdict
    assert not after.asked


def test_who_asks_for_a_deadline_that_can_be_kept_gets_a_new_promise() -> None:
    one = promised("a", 900.0, running=1, asked=True)
    state = cluster(gpus=1, jobs=[replace(one, deadline_at=650.0)])
    after = apply_plan(decide(state, MINUTE_EPOCHS), state).by_id["team/a"]
    assert isinstance(after.verdict, Promise)
    assert after.verdict.deadline_at == 650.0


def test_who_asks_for_a_deadline_that_takes_the_gpu_of_another_promise_is_refused() -> None:
    """At 400 s a would need both GPUs from the next epoch on; b has no second to spare."""
    one = promised("a", 900.0, running=1, asked=True, workers=(1, 2))
    other = promised("b", 610.0, running=1)
    state = cluster(gpus=2, jobs=[replace(one, deadline_at=400.0), other])
    after = apply_plan(decide(state, MINUTE_EPOCHS), state).by_id["team/a"]
    assert isinstance(after.verdict, Promise)
    assert after.verdict.deadline_at == 900.0


def test_a_running_job_without_a_promise_is_never_refused() -> None:
    running = job("a", due_at=300.0, running=1, asked=True)
    verdict = judge(cluster(gpus=1, jobs=[running]), running, MINUTE_EPOCHS)
    assert isinstance(verdict, Forecast)
    assert verdict.late_by_s == 300.0


def test_a_refused_job_that_asks_again_can_be_promised_and_started_at_once() -> None:
    refused = Refusal(judge(cluster(), job(due_at=-1.0), MINUTE_EPOCHS).reason)
    one = job("a", due_at=700.0, verdict=refused)
    state = cluster(gpus=1, jobs=[one])
    after = apply_plan(decide(state, MINUTE_EPOCHS), state).by_id["team/a"]
    assert isinstance(after.verdict, Promise)
    assert after.workers == 1


def test_a_best_effort_job_that_waited_too_long_is_counted_before_newcomers() -> None:
    """It needs the whole cluster for ten minutes, and goes first."""
    old = job("old", workers=(2,), asked=False)
    newcomer = job("hard", due_at=4600.0, workers=(1,), epochs=5, submitted_at=4000.0)
    fresh = cluster(gpus=2, jobs=[old], now=100.0)
    aged = cluster(gpus=2, jobs=[old], now=4000.0)
    assert isinstance(judge(fresh, replace(newcomer, deadline_at=700.0), MINUTE_EPOCHS), Promise)
    verdict = judge(aged, newcomer, MINUTE_EPOCHS)
    assert isinstance(verdict, Promise)
    assert verdict.runs[0][1] == 0
    assert verdict.runs[0][0] >= 4300.0


def test_each_link_of_a_chain_takes_another_start_and_stop_from_the_deadline() -> None:
    """Four epochs of a minute fit into a link of 300 s beside 50 s of restart: ten are three links."""
    restarts = Curve(start_s=30.0, stop_s=20.0)
    state = cluster(gpus=1)
    chain = replace(job(epochs=10, due_at=730.0), wall_limit_s=300.0)
    verdict = judge(state, chain, restarts)
    assert isinstance(verdict, Promise)
    assert verdict.p90_at == pytest.approx(30.0 + 600.0 + 2 * 50.0)
    assert isinstance(judge(state, replace(chain, deadline_at=729.0), restarts), Refusal)


class NeverSeen(Curve):
    """Stops and starts that nobody has measured."""

    def suspend_cost(self, workload: Workload, workers: int) -> Estimate:
        return replace(super().suspend_cost(workload, workers), n_points=0)

    def resume_cost(self, workload: Workload, workers: int) -> Estimate:
        return replace(super().resume_cost(workload, workers), n_points=0)


@pytest.mark.parametrize(
    ("kind", "basis"),
    [(Curve, "as seen"), (NeverSeen, "assumed: no restart of this model was seen yet")],
)
def test_a_refusal_for_the_restarts_of_links_says_what_they_cost_and_whether_that_was_seen(
    kind: type[Curve], basis: str
) -> None:
    restarts = kind(start_s=30.0, stop_s=20.0)
    chain = replace(job(epochs=10, due_at=700.0), wall_limit_s=300.0)
    words = refusal(cluster(gpus=1), chain, restarts).reason.text
    assert "30s after the deadline; 1m40s of that are stops and starts" in words
    assert f"between links of 5m00s, 50s each (P90, {basis})" in words
    late = refusal(cluster(gpus=1), replace(chain, deadline_at=620.0), restarts)
    assert late.reason.code == "deadline_before_fastest_finish", "late without links, too"


def test_a_limit_that_holds_all_epochs_costs_nothing() -> None:
    restarts = Curve(start_s=30.0, stop_s=20.0)
    short = replace(job(epochs=10, due_at=630.0), wall_limit_s=650.0)
    assert isinstance(judge(cluster(gpus=1), short, restarts), Promise)


def test_a_limit_shorter_than_an_epoch_is_refused_in_one_sentence() -> None:
    chain = replace(job(epochs=10, due_at=9000.0), wall_limit_s=45.0)
    verdict = refusal(cluster(gpus=1), chain)
    assert verdict.reason.text == (
        "the wall-clock limit, 45s, is shorter than one epoch, 1m00s (P90) on 1 worker: "
        "allow more time, or count smaller epochs"
    )
    wider = judge(cluster(gpus=2), replace(chain, widths=(1, 2)), MINUTE_EPOCHS)
    assert isinstance(wider, Promise), "two workers take 30 s"


@pytest.mark.parametrize(("preemptible", "kind"), [(True, Promise), (False, Refusal)])
def test_no_promise_rests_on_gpus_of_one_that_may_not_be_narrowed(
    preemptible: bool, kind: type[Promise | Refusal]
) -> None:
    """4 GPUs. `wide` would be in time with one of its two; 300 s by 400 s on three are asked for."""
    wide = promised("wide", 2_000.0, workers=(1, 2), running=2, preemptible=preemptible)
    asks = job("asks", epochs=5, due_at=400.0, gpus_per_worker=3)

    assert isinstance(judge(cluster(gpus=4, jobs=[wide, asks]), asks, MINUTE_EPOCHS), kind)
