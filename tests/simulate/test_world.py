"""The simulated World: progress, costs and failures follow the rules that it states."""

from dataclasses import replace

import numpy as np
import pytest

from laxity_lab.simulate.run import Setting, nodes_of, simulate
from laxity_lab.world.noisy_predictor import NoisyPredictor
from laxity_lab.world.trace_truths import error_factors, ground_truths
from laxity_lab.world.world import Failures, SimWorld
from laxity_profiler.estimate import Predictor
from laxity_scheduler.engine import run_cycle
from laxity_scheduler.inflight import follow_ups, with_follow_ups
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.decision import Admit, Preempt, Resize, When
from laxity_scheduler.model.job import Job
from laxity_scheduler.model.reasons import reason
from laxity_scheduler.plan import Plan
from laxity_scheduler.policies.registry import find
from laxity_scheduler.simulated.change_costs import CostName, costs
from laxity_scheduler.simulated.execution import JobExecution
from laxity_scheduler.simulated.simulated_job import SimJob
from tests.support.simulated import LINEAR, job, random_trace, trace, world

WHY = reason("order", policy="test")


def start(sim: SimWorld, name: str, *nodes: str) -> None:
    sim.carry_out(Plan((Admit(name, len(nodes), nodes, WHY),)))


def rows(sim: SimWorld) -> list[SimJob]:
    return list(sim.live.values())


def cycle_of(sim: SimWorld, policy: str, predictor: Predictor) -> ClusterState:
    """One cycle; what is observed after it."""
    run_cycle(sim, with_follow_ups(find(policy).policy()), predictor)
    return sim.observe()


def test_an_admitted_job_pays_its_start_and_then_trains_to_its_end() -> None:
    sim, _ = world(trace(job("a", runs_s=1_200.0)), cost="flat", restart_s=60.0)
    sim.advance()
    start(sim, "default/a", "node-0")
    assert sim.advance()
    assert sim.now == pytest.approx(1_260.0)
    assert sim.done


def test_a_stop_waits_for_the_epoch_and_keeps_the_work() -> None:
    sim, _ = world(trace(job("a", runs_s=1_200.0)), cost="live")
    sim.advance()
    start(sim, "default/a", "node-0")
    sim.carry_out(Plan((Preempt("default/a", "epoch", "", WHY),)))
    sim.advance()
    while sim.observe().by_id["default/a"].parked_epoch is None:
        sim.advance()
    sim.carry_out(Plan(follow_ups(sim.observe())))
    row = sim.observe().by_id["default/a"]
    assert (row.workers, row.progress.epochs_done, row.preemptions) == (0, 0, 1)
    assert sim.observe().free_gpus == 8


def test_a_job_that_saves_before_a_stop_is_not_one_that_starts() -> None:
    """Its start would be overdue since the end of its first epoch."""
    sim, _ = world(
        trace(job("a", runs_s=1_200.0), job("b", at=100.0), job("c", at=625.0)), cost="live"
    )
    sim.advance()
    start(sim, "default/a", "node-0")
    sim.advance()
    sim.carry_out(Plan((Preempt("default/a", "epoch", "", WHY),)))
    while sim.now < 625.0:
        sim.advance()
    row = sim.observe().by_id["default/a"]
    assert (row.progress.epochs_done, row.parked_epoch) == (1, None)
    assert (row.formed, row.epoch_started_at) == (1, None)


def test_a_stop_at_once_loses_the_running_epoch() -> None:
    sim, _ = world(trace(job("a", runs_s=1_200.0), job("b", at=924.0)), cost="live")
    sim.advance()
    start(sim, "default/a", "node-0")
    sim.advance()
    sim.carry_out(Plan((Preempt("default/a", "now", "", WHY),)))
    row = sim.observe().by_id["default/a"]
    assert sim.now == 924.0
    assert row.progress.epochs_done == 1  # 24 s to start, 600 s for the first, 300 s are lost
    assert sim.live["default/a"].lost_gpu_s == pytest.approx(24.0 + 300.0)


@pytest.mark.parametrize("when", ["now", "epoch"])
def test_a_stop_loses_all_epochs_of_a_job_that_holds_no_state(when: When) -> None:
    sim, _ = world(trace(job("a", runs_s=3_000.0), job("b", at=1_500.0)), cost="live")
    sim.advance()
    sim.live["default/a"].row = replace(sim.live["default/a"].row, holds_state=False)
    start(sim, "default/a", "node-0")
    sim.advance()
    assert sim.observe().by_id["default/a"].progress.epochs_done == 2
    sim.carry_out(Plan((Preempt("default/a", when, "", WHY),)))
    while sim.observe().by_id["default/a"].workers:
        if when == "epoch":
            sim.advance()
        sim.carry_out(Plan(follow_ups(sim.observe())))
    stopped_at = sim.now
    assert sim.observe().by_id["default/a"].progress.epochs_done == 0
    start(sim, "default/a", "node-0")
    while "default/a" in sim.live:
        sim.advance()
    assert sim.now == pytest.approx(stopped_at + 24.0 + 3_000.0)


def test_more_workers_join_at_an_epochs_end_and_fewer_leave_after_reforming() -> None:
    jobs = trace(job("a", runs_s=1_800.0, table=LINEAR))
    sim, _ = world(jobs, cost="live")
    sim.advance()
    start(sim, "default/a", "node-0")
    sim.carry_out(Plan((Resize("default/a", 2, ("node-0", "node-0"), "now", WHY),)))
    sim.advance()
    assert sim.now == pytest.approx(624.0)
    assert sim.live["default/a"].formed == 2
    sim.carry_out(Plan((Resize("default/a", 1, ("node-0",), "epoch", WHY),)))
    sim.advance()
    assert sim.live["default/a"].formed == 1
    assert sim.observe().by_id["default/a"].workers == 2
    sim.wake_at(sim.now + 12.0)
    sim.advance()
    sim.carry_out(Plan(follow_ups(sim.observe())))
    assert sim.observe().by_id["default/a"].workers == 1


def test_only_the_instant_that_a_policy_named_last_wakes_it() -> None:
    """As live: the loop sleeps until what the last plan said, and forgets what earlier ones did."""
    sim, _ = world(trace(job("a", runs_s=1_200.0), job("b", at=50.0)), cost="free")
    sim.advance()
    sim.carry_out(Plan(wake_at=100.0))
    sim.advance()
    assert sim.now == 50.0
    sim.carry_out(Plan(wake_at=300.0))
    sim.advance()
    assert sim.now == 300.0
    sim.carry_out(Plan(wake_at=400.0))
    start(sim, "default/a", "node-0")  # of which nothing more is to be seen to
    sim.advance()
    assert sim.now == pytest.approx(1_500.0)


@pytest.mark.parametrize("cost", ["live", "free"])
def test_each_epochs_end_is_an_event_where_that_is_asked_for(cost: CostName) -> None:
    jobs = ground_truths(
        trace(job("a", runs_s=1_800.0)), elastic=False, gpus_per_node=4, pooled=False
    )
    sim = SimWorld(jobs, [("node-0", 4)], costs(cost, cluster_gpus=4), each_epoch=True)
    sim.advance()
    start(sim, "default/a", "node-0")
    seen = []
    while sim.advance():
        done = [row.progress.epochs_done for row in sim.observe().jobs]
        seen.append((sim.now, *done))
        sim.carry_out(Plan())
    begins = 24.0 if cost == "live" else 0.0
    epochs = [(begins + 600.0 * number, number) for number in (1, 2)]
    assert seen == [*map(pytest.approx, epochs), pytest.approx((begins + 1_800.0,))]


def test_a_stop_decided_at_an_epochs_end_waits_for_that_of_the_next_epoch() -> None:
    """It has begun: as live, no worker waits for decisions, and no policy counts on that."""
    jobs = ground_truths(
        trace(job("a", runs_s=2_400.0)), elastic=False, gpus_per_node=4, pooled=False
    )
    sim = SimWorld(jobs, [("node-0", 4)], costs("live", cluster_gpus=4), each_epoch=True)
    sim.advance()
    start(sim, "default/a", "node-0")
    sim.advance()
    assert sim.observe().by_id["default/a"].progress.epochs_done == 1
    sim.carry_out(Plan((Preempt("default/a", "epoch", "", WHY),)))
    while sim.observe().by_id["default/a"].parked_epoch is None:
        sim.advance()
    assert sim.observe().by_id["default/a"].progress.epochs_done == 2


def test_a_schedule_with_a_look_at_each_epochs_end_has_more_decisions_and_all_jobs_end() -> None:
    jobs = random_trace(5, jobs=25)
    setting = Setting("qos", 2, 8, cost_model="live", error=0.2, seed=7)
    seldom, often = simulate(jobs, setting), simulate(jobs, replace(setting, each_epoch=True))
    assert len(often.decisions_s) > len(seldom.decisions_s)
    ended = [np.isfinite(run.column("finished_at")).sum() for run in (seldom, often)]
    assert ended == [len(jobs.jobs) - len(run.refused) for run in (seldom, often)]


def test_a_failed_node_stops_its_jobs_which_finish_elsewhere() -> None:
    jobs = random_trace(3, jobs=20, levels=(1, 2))
    made = ground_truths(jobs, elastic=False, gpus_per_node=4, pooled=False)
    model = costs("live", cluster_gpus=16)
    sim = SimWorld(made, nodes_of(4, 4, pooled=False), model, failures=Failures(3_000.0, 500.0))
    run = simulate(jobs, Setting("fifo", 4, 4, fails_s=3_000.0, repair_s=500.0))
    assert sim.total_gpus == 16
    assert run.column("preemptions").sum() > 0
    assert (run.column("finished_at") < float("inf")).all()


@pytest.mark.parametrize("policy", ["elasticflow", "las", "srtf", "pickyman", "edf_elastic"])
def test_the_same_seed_gives_the_same_bytes(policy: str) -> None:
    jobs = random_trace(5, jobs=25)
    setting = Setting(policy, 2, 8, cost_model="live", error=0.2, seed=7)
    first, second = simulate(jobs, setting), simulate(jobs, setting)
    other = simulate(jobs, replace(setting, seed=8))
    for name in first.columns:
        assert first.column(name).tobytes() == second.column(name).tobytes()
    assert other.ids == first.ids


def test_errors_are_drawn_per_job_and_shrink_as_epochs_are_observed() -> None:
    jobs = ground_truths(
        trace(job("a", runs_s=6_000.0)), elastic=False, gpus_per_node=4, pooled=False
    )
    belief = NoisyPredictor(jobs, costs("free", cluster_gpus=4), error=0.4, seed=3)
    workload = jobs[0].workload
    fresh = belief.epoch_time(workload, 1)
    (factor,) = error_factors([workload.model], error=0.4, seed=3)
    assert fresh.p50_s == pytest.approx(600.0 * factor)
    assert fresh.p10_s < fresh.p50_s < fresh.mean_s < fresh.p90_s


def test_policies_never_see_the_truth_of_a_job() -> None:
    jobs = random_trace(1, jobs=5)
    made = ground_truths(jobs, elastic=False, gpus_per_node=8, pooled=False)
    sim = SimWorld(made, nodes_of(1, 16, pooled=False), costs("free", cluster_gpus=16))
    seen: list[ClusterState] = []

    def look(state: ClusterState, predictor: Predictor) -> Plan:
        seen.append(state)
        return Plan()

    sim.advance()
    run_cycle(sim, look, NoisyPredictor(made, sim.costs, error=0.5))
    assert not hasattr(seen[0].jobs[0], "epoch_s")
    assert seen[0].jobs[0].workload.user_epoch_s is None


def test_a_job_with_all_epochs_done_that_has_not_ended_yet_divides_nothing_by_zero() -> None:
    setting = Setting(
        "elasticflow", 4, 8, fails_s=3_000.0, repair_s=500.0, cost_model="live", literal_cycle=True
    )
    run = simulate(random_trace(1, jobs=40), setting)
    assert len(run.outcomes) == 40


def test_elasticflows_rounds_cost_once_in_a_slot_however_often_is_decided() -> None:
    long = job("long", runs_s=6_000.0, due_at=20_000.0)
    short = [job(f"short-{second}", at=float(second), due_at=20_000.0) for second in range(100)]
    setting = Setting("elasticflow", 16, 8, cost_model="elasticflow", epoch_s=60.0)
    run = simulate(trace(long, *short), setting)
    first = 2.0 + 2.0  # of a width that it has not had
    slots = run.column("finished_at")[0] / 60.0
    assert first < run.column("lost_gpu_s")[0] <= first + 2.0 * slots + 29.0 * (slots / 60.0 + 1)


@pytest.mark.parametrize("policy", ["las", "srtf", "drf"])
def test_no_gpu_is_lost_or_given_twice_while_pods_go_and_nodes_fail(policy: str) -> None:
    jobs = random_trace(2, jobs=25, levels=(1, 2, 4))
    made = ground_truths(jobs, elastic=False, gpus_per_node=4, pooled=False)
    model = replace(costs("live", cluster_gpus=8), gone_s=40.0)
    failures = Failures(3_000.0, 500.0)
    sim = SimWorld(made, nodes_of(2, 4, pooled=False), model, failures=failures)
    going = 0
    while not sim.done and sim.advance():
        state = cycle_of(sim, policy, NoisyPredictor(made, model))
        going += sum(row.terminating_workers for row in state.jobs)
        for node in state.nodes:
            used = sum(live.nodes.count(node.id) * live.truth.gpus_per_worker for live in rows(sim))
            assert 0 <= used + node.free_gpus <= node.gpus
            if not any(row.terminating_workers for row in state.jobs):
                assert used + node.free_gpus == node.gpus
    assert len(sim.finished) == len(jobs.jobs)
    assert going > 0


@pytest.mark.parametrize("policy", ["aryl", "qos"])
def test_rows_that_are_not_looked_at_have_not_changed(
    policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = JobExecution.rows
    seen = []

    def look_at_all(execution: JobExecution) -> tuple[Job, ...]:
        shown = look(execution)
        for live, row in zip(execution.live.values(), shown, strict=True):
            assert execution.row(live) is row, f"{row.id} at {execution.now}"
        seen.append(len(shown))
        return shown

    monkeypatch.setattr(JobExecution, "rows", look_at_all)
    simulate(random_trace(3, jobs=40), Setting(policy, 4, 8, literal_cycle=True))
    assert sum(seen) > 100
