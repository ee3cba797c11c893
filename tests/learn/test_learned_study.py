"""The study of the learned policy: borrowed arrivals, fitted curves, and a row of each kind."""

import numpy as np
import pytest

from laxity_lab.policy_training.made_jobs import ArrivalMix
from laxity_lab.traces.throughput_tables import ThroughputTable
from laxity_lab.traces.traces import Trace, TraceJob
from studies import learned_study
from studies.datasets import open_datasets
from studies.qos_study import compute_load
from studies.real_arrivals import borrow_arrivals

TABLES = {("m", 1): ThroughputTable((1, 2, 4), (1.0, 1.8, 3.0))}
SUBMITTED_AT = (0.0, 10.0, 10.0, 500.0, 90.0, 2_000.0)
REAL = Trace(
    "real",
    tuple(
        TraceJob(str(number), at, 30.0 + 900.0 * number, 3**number)
        for number, at in enumerate(sorted(SUBMITTED_AT))
    ),
)


def test_borrowed_arrivals_keep_gaps_and_run_times_and_reach_the_load() -> None:
    jobs = borrow_arrivals(REAL, TABLES, ArrivalMix(6, 8, 0.9), seed=1)
    gaps = np.diff([job.submitted_at for job in jobs.jobs])
    real_gaps = np.diff(sorted(SUBMITTED_AT))
    assert gaps / gaps.sum() == pytest.approx(real_gaps / real_gaps.sum())
    assert compute_load(jobs, gpus=8) == pytest.approx(0.9)
    assert [job.duration_s for job in jobs.jobs[:3]] == [60.0, 930.0, 1_830.0]
    assert [job.gpus for job in jobs.jobs] == [1, 2, 4, 4, 4, 4]
    assert jobs == borrow_arrivals(REAL, TABLES, ArrivalMix(6, 8, 0.9), seed=1)


def test_a_window_of_a_trace_is_drawn_by_the_seed() -> None:
    first = {
        borrow_arrivals(REAL, TABLES, ArrivalMix(2, 8, 0.9), seed=seed).jobs[1].duration_s
        for seed in range(8)
    }
    assert len(first) > 2


def test_a_curve_of_the_fitted_form_is_found_again_beyond_its_five_points() -> None:
    widths = [1, 2, 4, 8, 16, 32]
    took_s = [3.0 + 50.0 / width + 0.1 * width for width in widths]
    assert learned_study.fit_curve(widths, took_s) == pytest.approx(took_s)


def test_a_curve_of_another_form_is_believed_wrong() -> None:
    widths = [1, 2, 4, 8, 16, 32]
    took_s = [10.0, 9.9, 4.0, 3.9, 3.0, 20.0]
    assert learned_study.fit_curve(widths, took_s) != pytest.approx(took_s, rel=0.1)


@pytest.mark.slow
def test_rows_on_samples_tell_policies_and_errors_apart() -> None:
    trials = learned_study.trials(open_datasets(samples=True), range(1))
    assert {trial.labels["trace"] for trial in trials} == {"A100, generated", "A100, philly"}
    rows = {
        (row["policy"], row["error"]): row["avg_jct_s"]
        for row in (trial.row() for trial in trials if "generated" in str(trial.labels["trace"]))
    }
    assert set(rows) == {
        (policy, error) for policy in learned_study.POLICIES for error in (0.0, 0.2)
    } | {(learned_study.FITTED, 0.0)}
    assert len(set(rows.values())) > 4
