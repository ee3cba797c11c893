"""Each metric of a report (algorithms.md 8), by hand: of a made-up run and of tiny real ones."""

import math
from collections.abc import Mapping

import numpy as np
import pytest

from laxity_lab.simulate.pages import _from_jobs, page
from laxity_lab.simulate.report import interval, report, summary
from laxity_lab.simulate.run import Setting, simulate
from laxity_lab.traces.generate import Mix, generate
from laxity_lab.world.outcome import FIELDS, Run, columns_with_defaults
from laxity_scheduler.simulated.change_costs import CostName
from tests.support.simulated import LINEAR, job, trace

JOBS: Mapping[str, Mapping[str, float]] = {
    "kept": {
        "submitted_at": 0,
        "deadline_at": 100,
        "ideal_s": 80,
        "first_start_at": 0,
        "finished_at": 90,
        "running_s": 80,
        "gpu_s": 160,
        "lost_gpu_s": 20,
        "preemptions": 1,
        "promised_at": 95,
    },
    "broken": {
        "submitted_at": 0,
        "deadline_at": 150,
        "ideal_s": 100,
        "first_start_at": 50,
        "finished_at": 200,
        "running_s": 140,
        "gpu_s": 280,
        "resizes": 2,
        "promised_at": 150,
    },
    "refused": {"submitted_at": 10, "deadline_at": 60, "ideal_s": 10},
    "free": {
        "submitted_at": 20,
        "ideal_s": 60,
        "first_start_at": 20,
        "finished_at": 100,
        "running_s": 80,
        "gpu_s": 80,
        "preemptions": 2,
    },
    "unfinished": {
        "submitted_at": 30,
        "ideal_s": 90,
        "first_start_at": 150,
        "running_s": 50,
        "gpu_s": 50,
    },
}


def made() -> Run:
    """Five jobs on 4 GPUs; figures of them are worked out below."""
    empty = columns_with_defaults(len(JOBS))
    columns = {
        name: np.array([row.get(name, empty[name][0]) for row in JOBS.values()], dtype=np.float64)
        for name in FIELDS
    }
    return Run(
        policy="by hand",
        trace="made",
        gpus=4,
        ids=list(JOBS),
        columns=columns,
        refused={2: "capacity_promised_to_others"},
        cpu_s=2.0,
        events=10,
        decisions_s=[0.001 * at for at in range(1, 102)],
        ape_at={10: np.array([0.2, 0.4, 9.0, 0.3, 9.0]), 50: np.array([0.1, 0.2, 9.0, 0.0, 9.0])},
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("jobs", 5),
        ("finished", 3),
        ("refused", 1),
        ("unfinished", 2),
        # f - a: kept 90, broken 200, free 80
        ("avg_jct_s", 370 / 3),
        ("avg_jct_due_s", 145.0),
        ("avg_jct_free_s", 80.0),
        ("p50_jct_s", 90.0),
        ("p95_jct_s", 90 + 0.9 * 110),  # at place 1.9 of 80, 90, 200
        ("p99_jct_s", 90 + 0.98 * 110),
        # (f - a) - with GPUs: 10, 60, 0; from submission to the first start: 0, 50, 0
        ("avg_wait_s", 70 / 3),
        ("p95_wait_s", 10 + 0.9 * 50),
        ("avg_first_wait_s", 50 / 3),
        ("makespan_s", 200.0),
        # three have a deadline, the refused one too; kept is in time, broken is 50 s late
        ("deadlines", 3),
        ("deadlines_met", 1),
        ("deadline_met_ratio", 1 / 3),
        ("promises", 2),
        ("promised_ratio", 2 / 3),
        ("promises_broken", 1),
        ("promised_met_ratio", 0.5),
        # told 95 and 150, ended after 90 and 200: 5 / 90 and -50 / 200
        ("prediction_mape", (5 / 90 + 50 / 200) / 2),
        ("prediction_ape_p50", (5 / 90 + 50 / 200) / 2),
        ("prediction_ape_p90", 5 / 90 + 0.9 * (50 / 200 - 5 / 90)),
        # of the finished ones
        ("prediction_mape_at_10", 0.3),
        ("prediction_mape_at_50", 0.1),
        ("prediction_bias", (5 / 90 - 50 / 200) / 2),
        ("p90_coverage", 0.5),
        ("tardiness_mean_s", 50.0),
        ("tardiness_p95_s", 50.0),
        # held: 160 + 280 + 80 + 50 = 570 of 4 x 200 = 800 GPU-s, of which 20 were lost
        ("gpu_utilisation", 570 / 800),
        ("gpu_busy", 550 / 800),
        ("gpu_hours", 570 / 3600),
        ("lost_gpu_hours", 20 / 3600),
        ("lost_share", 20 / 570),
        ("preemptions", 3),
        ("preemptions_per_job", 0.6),
        ("preemption_ratio", 2 / 5),
        ("resizes", 2),
        ("resizes_per_job", 0.4),
        # ideal / JCT: 8/9, 1/2, 3/4; JCT / ideal: 9/8, 2, 4/3
        ("fairness_jain", (8 / 9 + 1 / 2 + 3 / 4) ** 2 / (3 * (64 / 81 + 1 / 4 + 9 / 16))),
        ("slowdown_p95", 4 / 3 + 0.9 * (2 - 4 / 3)),
        ("slowdown_max", 2.0),
        # 1, 2, ... 101 ms
        ("decision_p50_ms", 51.0),
        ("decision_p95_ms", 96.0),
        ("decision_p99_ms", 100.0),
        ("jobs_per_s", 2.5),
    ],
)
def test_a_metric_is_what_its_definition_says(name: str, value: float) -> None:
    assert report(made())[name] == pytest.approx(value)


def test_what_does_not_exist_is_none_and_not_zero() -> None:
    figures = report(simulate(trace(job("big", gpus=64)), Setting("fifo", 1, 4)))
    for name in ("avg_jct_s", "makespan_s", "deadline_met_ratio", "gpu_utilisation"):
        assert figures[name] is None
    assert (figures["finished"], figures["refused"]) == (0, 1)


def test_a_refused_job_that_ran_on_late_is_finished_and_not_refused() -> None:
    """One GPU for both; the second cannot be in time, is not promised, and runs afterwards."""
    jobs = trace(job("first", runs_s=1_000.0, due_at=1_000.0), job("second", at=10.0, due_at=610.0))
    setting = Setting("edf_elastic", 1, 1, cost_model="free", admission="greedy")
    figures = report(simulate(jobs, setting))
    assert (figures["finished"], figures["refused"], figures["deadlines_met"]) == (2, 0, 1)
    assert figures["promises_broken"] == 0


def test_waiting_lost_hours_and_utilisation_of_a_run_with_one_preemption() -> None:
    """One GPU, 30 s a start, epochs of 10 s. long (6,000 s) runs 0-110, short (600 s) 110-740, long 740-6,690.

    short comes at 100, as an epoch ends: the next one has begun. long has done 110 - 30 = 80 s by
    then; 30 + 5,920 s are left. It waits 630 s, short 10 s. Three starts of 30 s are lost; the GPU is
    held throughout.
    """
    jobs = trace(job("long", runs_s=6_000.0), job("short", at=100.0, runs_s=600.0))
    setting = Setting("srtf", 1, 1, cost_model="flat", restart_s=30.0, epoch_s=10.0)
    figures = report(simulate(jobs, setting))
    assert figures["makespan_s"] == pytest.approx(6_690.0)
    assert figures["avg_jct_s"] == pytest.approx((6_690.0 + 640.0) / 2)
    assert figures["avg_wait_s"] == pytest.approx((630.0 + 10.0) / 2)
    assert figures["lost_gpu_hours"] == pytest.approx(90.0 / 3600.0)
    assert figures["gpu_utilisation"] == pytest.approx(1.0)
    assert figures["gpu_busy"] == pytest.approx(6_600.0 / 6_690.0)
    assert (figures["preemptions"], figures["preemption_ratio"]) == (1, 0.5)


@pytest.mark.parametrize("policy", ["las", "srtf", "pickyman_blind", "fifo"])
@pytest.mark.parametrize("cost_model", ["free", "flat", "live", "elasticflow"])
@pytest.mark.parametrize("fails_s", [0.0, 4_000.0])
def test_gpu_time_that_is_held_is_useful_or_lost(
    policy: str, cost_model: CostName, fails_s: float
) -> None:
    """Starts, saving, pauses cut short by a stop or a failure, epochs done twice: all of it."""
    jobs = generate(Mix(jobs=15, jobs_per_hour=40.0, best_effort=0.3), seed=1)
    setting = Setting(
        policy, 2, 8, cost_model=cost_model, restart_s=60.0, fails_s=fails_s, repair_s=500.0
    )
    run = simulate(jobs, setting)
    useful = sum(one.duration_s * one.gpus for one in jobs.jobs)
    held, lost = run.column("gpu_s").sum(), run.column("lost_gpu_s").sum()
    assert np.isfinite(run.column("finished_at")).all()
    assert held == pytest.approx(useful + lost)
    assert bool(lost > 0) is (fails_s > 0 or (cost_model != "free" and policy != "fifo"))


@pytest.mark.parametrize(
    "policy", ["elasticflow", "edf_elastic", "drf", "pollux", "las", "pickyman"]
)
def test_gpus_held_are_never_more_than_there_are(policy: str) -> None:
    jobs = trace(
        *[
            job(f"j{n}", at=100.0 * n, runs_s=1_500.0, due_at=100.0 * n + 4_000.0, table=LINEAR)
            for n in range(9)
        ]
    )
    run = simulate(jobs, Setting(policy, 1, 8, restart_s=20.0))
    assert max(held for _, held in run.busy) <= 8
    figures = report(run)
    used = figures["gpu_utilisation"]
    assert isinstance(used, float)
    assert 0.0 < used <= 1.0
    area = sum(
        held * (after - at)
        for (at, held), (after, _) in zip(run.busy, [*run.busy[1:], run.busy[-1]], strict=True)
    )
    assert run.column("gpu_s").sum() == pytest.approx(area)


def test_an_interval_is_student_s_over_the_runs() -> None:
    """1, 2, 3: mean 2, deviation 1, t(0.975, 2) = 4.303, half width 4.303 / sqrt(3)."""
    assert interval([1.0, 2.0, 3.0]) == pytest.approx((2.0, 4.303 / math.sqrt(3)))
    assert interval([5.0]) == (5.0, 0.0)
    found = summary([{"x": 1.0}, {"x": 2.0}, {"x": None}, {"x": 3.0}], ["x"])
    assert found["x"] == 2.0
    assert found["x_ci95"] == pytest.approx(4.303 / math.sqrt(3))


@pytest.mark.parametrize(
    ("policy", "learns"), [("edf_elastic", True), ("pickyman", True), ("sjf", False)]
)
def test_the_error_of_predictions_shrinks_with_a_jobs_own_epochs(
    policy: str, *, learns: bool
) -> None:
    jobs = generate(Mix(jobs=25, jobs_per_hour=30.0, best_effort=0.3), seed=1)

    said = report(simulate(jobs, Setting(policy, 2, 8, error=0.4)))
    sure = report(simulate(jobs, Setting(policy, 2, 8)))

    at_10, at_50 = said["prediction_mape_at_10"], said["prediction_mape_at_50"]
    assert isinstance(at_10, float)
    assert isinstance(at_50, float)
    assert (at_50 < 0.7 * at_10) if learns else (at_50 == at_10 > 0.2)
    assert (sure["prediction_mape_at_10"], sure["prediction_mape_at_50"]) == (0.0, 0.0)


def test_at_one_instant_who_ends_makes_room_for_who_starts() -> None:
    columns = columns_with_defaults(
        2,
        first_start_at=np.array([100.0, 0.0]),
        finished_at=np.array([200.0, 100.0]),
        gpus=np.array([4.0, 4.0]),
    )
    run = Run(policy="edf", trace="made", gpus=4, ids=["b", "a"], columns=columns, refused={})
    _, held = _from_jobs(run)
    assert held.tolist() == [4.0, 0.0, 4.0, 0.0]


def test_the_page_has_a_column_for_each_run_and_whole_large_figures() -> None:
    runs = [{"policy": "edf", "makespan_s": 650_553.3913}, {"policy": "fifo", "makespan_s": 9.5}]

    written = page(runs, {})

    assert "<tr><th>policy</th><td>edf</td><td>fifo</td></tr>" in written
    assert "<tr><th>makespan_s</th><td>650,553</td><td>9.5</td></tr>" in written
