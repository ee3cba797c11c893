"""A queue that is run down by the policy ends as the simulated cluster then really does."""

import math
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from laxity_lab.simulate.replay import replay
from laxity_lab.simulate.report import report
from laxity_lab.simulate.run import Setting, open_world, simulate
from laxity_lab.traces.traces import Trace
from laxity_lab.world.noisy_predictor import NoisyPredictor
from laxity_profiler.estimate import Predictor, Workload
from laxity_scheduler.inflight import with_follow_ups
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.job import Forecast, Promise, Refusal, Verdict
from laxity_scheduler.model.reasons import reason
from laxity_scheduler.plan import Plan, Policy
from laxity_scheduler.policies.registry import find
from laxity_scheduler.simulated.ground_truth import GroundTruth
from laxity_scheduler.simulated.overtaking import EndedFinish, Overtaking
from laxity_scheduler.simulated.rollout import roll_out
from laxity_scheduler.simulated.told_finish import told_finish
from tests.support.builders import Curve, cluster
from tests.support.builders import job as row
from tests.support.random_states import cases, cordoned, held, lending, restricted_cases
from tests.support.simulated import random_trace, trace, world

Told = list[tuple[float, dict[str, float]]]


def run(
    jobs: Trace, policy: str, *, error: float = 0.0, looks_from: float
) -> tuple[Told, dict[str, float]]:
    """What was told at each cycle from then on, and when jobs really ended."""
    cluster_world, made = world(jobs, cost="live")
    told: Told = []

    def looking(decide: Policy) -> Policy:
        follow = with_follow_ups(decide)

        def decide_and_look(state: ClusterState, predictor: Predictor) -> Plan:
            plan = follow(state, predictor)
            if state.now >= looks_from:
                told.append((state.now, roll_out(state, plan, follow, predictor)))
            return plan

        return decide_and_look

    predictor = NoisyPredictor(made, cluster_world.costs, error=error)
    replay(cluster_world, find(policy).policy(), predictor, finish=looking)
    return told, {name: at for name, (_, at) in cluster_world.finished.items()}


def crowd(seed: int, jobs: int = 20) -> Trace:
    """Within a quarter of an hour; every second job is due, the others wait for their turn."""
    drawn = random_trace(seed, jobs=jobs, levels=(1, 2, 4)).jobs
    early = [replace(one, submitted_at=one.submitted_at / 4.0) for one in drawn]
    free = [replace(one, deadline_at=math.inf, service_class="best_effort") for one in early]
    return trace(*early[::2], *free[1::2])


def last_arrival(jobs: Trace) -> float:
    return max(one.submitted_at for one in jobs.jobs)


@pytest.mark.parametrize("policy", ["qos", "fifo", "srtf", "pickyman", "elasticflow"])
def test_once_nobody_comes_any_more_the_finishes_of_all_jobs_are_foreseen(policy: str) -> None:
    jobs = crowd(3)

    told, ended = run(jobs, policy, looks_from=last_arrival(jobs))

    now, first = told[0]
    waiting = {name: at for name, at in ended.items() if at > now}
    assert len(waiting) > 5
    assert first == pytest.approx(waiting, abs=1.0)


def test_in_the_middle_of_stops_starts_and_epochs_finishes_are_foreseen_too() -> None:
    jobs = crowd(5)

    told, ended = run(jobs, "qos", looks_from=last_arrival(jobs))

    far = [
        abs(at - ended[name]) / (ended[name] - now + 60.0)
        for now, ends in told
        for name, at in ends.items()
    ]
    assert len(far) > 50
    assert sorted(far)[int(0.9 * len(far))] < 0.02


def test_a_rollout_leaves_the_snapshot_and_the_world_as_they_are() -> None:
    jobs = crowd(3, jobs=10)

    _, ended = run(jobs, "qos", looks_from=0.0)
    _, alone = run(jobs, "qos", looks_from=float("inf"))

    assert ended == alone


@pytest.mark.parametrize("policy", ["qos", "pickyman"])
def test_any_snapshot_can_be_run_down(policy: str) -> None:
    follow = with_follow_ups(find(policy).policy())
    drawn = [*cases(40), *restricted_cases(20)]
    drawn += [cordoned(each, Random(n)) for n, each in enumerate(cases(10))]
    drawn += [lending(each, Random(n)) for n, each in enumerate(cases(10))]
    drawn += [held(each) for each in cases(10)]

    ended = 0
    for each in drawn:
        state, predictor = each.state, each.predictor
        ends = roll_out(state, follow(state, predictor), follow, predictor)
        assert all(at >= state.now for at in ends.values()), each
        assert ends.keys() <= state.by_id.keys(), each
        ended += len(ends)

    assert ended > 2 * len(drawn)


def test_a_job_on_a_node_that_has_gone_starts_elsewhere_and_one_on_too_small_a_node_runs_on() -> (
    None
):
    jobs = [
        row("lost", running=1, nodes=("gone",), epochs=10),
        row("large", running=2, nodes=("n0", "n0"), epochs=10),
    ]
    state = replace(cluster(gpus=[4, 4], jobs=jobs[1:]), jobs=tuple(jobs))
    small = replace(state.nodes[0], gpus=1, free_gpus=-1)
    state, predictor = replace(state, nodes=(small, state.nodes[1])), Curve(epoch_s=60.0)
    follow = with_follow_ups(find("fifo").policy())

    ends = roll_out(state, follow(state, predictor), follow, predictor)

    assert ends == {"team/lost": pytest.approx(600.0), "team/large": pytest.approx(300.0)}


def test_a_job_is_told_the_finish_of_the_product_that_it_will_run_on() -> None:
    """An epoch takes 100 s on the slow product, 25 s on the fast one."""
    times = {"slow": {1: 100.0}, "fast": {1: 25.0}}
    made = [
        GroundTruth(
            name, 0, 0.0, 10, (1,), times["slow"], deadline_at=due_at, service_class="hard",
            workload=Workload(name, 10), epoch_s_on=times,
        )
        for name, due_at in (("team/tight", 300.0), ("team/loose", 1_500.0))
    ]  # fmt: skip
    setting = Setting("qos", 2, 1, cost_model="free", literal_cycle=True)
    both = open_world(setting, made, products={"node-0": "slow", "node-1": "fast"})
    both.advance()
    state, follow = both.observe(), with_follow_ups(find("qos").policy())
    predictor = NoisyPredictor(made, both.costs)

    ends = roll_out(state, follow(state, predictor), follow, predictor)

    assert ends == {"team/tight": pytest.approx(250.0), "team/loose": pytest.approx(1_000.0)}


def test_what_jobs_took_beyond_the_queue_is_learned_by_kind() -> None:
    waited = [EndedFinish("best_effort", 100.0 + n, 2.0 * (100.0 + n)) for n in range(20)]
    in_time = [EndedFinish("promised", 100.0 + n, 100.0 + n) for n in range(20)]

    overtaking = Overtaking([*waited, *in_time])

    assert overtaking.factors("best_effort", 100.0) == pytest.approx((2.0, 2.0))
    assert overtaking.factors("promised", 100.0) == pytest.approx((1.0, 1.0))
    assert overtaking.factors("soft", 100.0) is None, "none has ended yet"


def test_long_jobs_are_overtaken_as_long_jobs_were_and_short_ones_as_short_ones() -> None:
    short = [EndedFinish("soft", 60.0 + n, 60.0 + n) for n in range(40)]
    long = [EndedFinish("soft", 6_000.0 + n, 3.0 * (6_000.0 + n)) for n in range(40)]

    overtaking = Overtaking([*long, *short])

    assert overtaking.factors("soft", 70.0) == pytest.approx((1.0, 1.0))
    assert overtaking.factors("soft", 5_000.0) == pytest.approx((3.0, 3.0))


def test_nine_of_ten_jobs_like_those_that_ended_end_by_the_p90() -> None:
    draw = np.random.default_rng(4)
    spread = draw.lognormal(0.0, 0.5, size=2_000)
    overtaking, kept = Overtaking(), []
    for ratio in spread:
        factors = overtaking.factors("soft", 500.0)
        held = factors is None or bool(ratio <= factors[1])
        kept += [] if factors is None else [held]
        overtaking.learn(EndedFinish("soft", 500.0, 500.0 * ratio, kept=held))

    assert 0.87 < np.mean(kept) < 0.96


@pytest.mark.parametrize(
    ("plan_p90_at", "told_p90_at"),
    [
        pytest.param(900.0, 1_000.0, id="a promise in time: by its deadline"),
        pytest.param(1_100.0, 1_500.0, id="a promise in danger: as late as it may be"),
    ],
)
def test_the_p90_told_with_a_promise_is_no_later_than_it_promises(
    plan_p90_at: float, told_p90_at: float
) -> None:
    slow = Overtaking([EndedFinish("promised", 500.0, 1_500.0)] * 20)
    promise = Promise(1_000.0, 800.0, plan_p90_at, (), reason("fits"))

    told = told_finish(row("a", service_class="hard"), promise, 500.0, 0.0, slow)

    assert told is not None
    assert told.p90_at == told_p90_at
    assert told.p50_at <= told.p90_at


def test_without_an_end_in_sight_the_verdicts_own_finish_is_told() -> None:
    verdict: Verdict = Forecast(800.0, 900.0, 0.0, reason("forecast"))

    told = told_finish(row("a"), verdict, None, 100.0, Overtaking())

    assert told is not None
    assert told.finite == (800.0, 900.0)
    assert told.queue_s is None, "nothing is learned from it"


def test_a_job_that_somebody_has_stopped_by_hand_is_told_no_end() -> None:
    promise = Promise(1_000.0, 800.0, 900.0, (), reason("fits"))
    pinned = replace(row("a"), pinned=True)

    stopped = told_finish(pinned, promise, None, 100.0, Overtaking())
    runs = told_finish(replace(pinned, workers=1), promise, None, 100.0, Overtaking())

    assert stopped is not None
    assert stopped.finite == (None, None)
    assert runs is not None
    assert runs.finite == (800.0, 900.0)


def test_a_refused_job_is_told_no_finish() -> None:
    refused = Refusal(reason("fits"))

    assert told_finish(row("a"), refused, 500.0, 0.0, Overtaking()) is None


def test_a_simulation_says_how_far_off_the_finishes_were_that_jobs_were_told() -> None:
    setting = Setting("qos", nodes=2, gpus_per_node=4, cost_model="live")
    jobs = crowd(3)

    plain, told = simulate(jobs, setting), simulate(jobs, replace(setting, tells=True))

    figures = report(told)
    assert figures["finishes_told"] == figures["finished"] > 10
    assert 0.0 < figures["finish_mape"] < 0.5
    assert 0.7 < figures["finish_p90_coverage"] <= 1.0
    assert "finish_mape" not in report(plain)
    assert told.column("finished_at").tolist() == plain.column("finished_at").tolist()
    assert simulate(jobs, replace(setting, tells=True)).told == told.told, "the same again"
