"""Deadline-elastic rules: small cases by hand, and published ratios."""

import numpy as np
import pytest

from laxity_lab.simulate.report import report
from laxity_lab.simulate.run import Setting, simulate
from laxity_lab.traces.throughput_tables import load_tables
from laxity_lab.traces.traces import Format, Trace, load
from tests.support.simulated import LINEAR, SAMPLES, TRACES, job, trace

SLOT_S = 60.0  # ElasticFlow's: jobs change their width at its end
PUBLISHED = {  # the higher of published and re-run: (GPUs, ratio)
    "itp/cluster01": (512, 0.848),
    "itp/cluster02": (512, 0.822),
    "itp/cluster03": (512, 0.455),
    "itp/cluster04": (1024, 0.631),
    "itp/cluster05": (512, 0.832),
    "itp/cluster10": (256, 0.981),
    "itp/195job": (128, 0.749),
    "elasticflow/elasticVpollux_e": (64, 0.728),
}
SOON = ("itp/cluster10", "itp/195job", "elasticflow/elasticVpollux_e")
PUBLISHED_TRACES = [  # the long ones take one to ten minutes each
    pytest.param(name, marks=() if name in SOON else (pytest.mark.slow, pytest.mark.timeout(3_600)))
    for name in PUBLISHED
]


def sample() -> Trace:
    tables = load_tables(SAMPLES / "elasticflow" / "throughputs_A100")
    return load(SAMPLES / "itp" / "195job.csv", "itp", tables=tables)


def test_a_job_gets_what_is_idle_and_gives_it_back_when_another_needs_it() -> None:
    jobs = trace(
        job("first", runs_s=4_000.0, due_at=4_000.0, table=LINEAR),
        job("second", at=500.0, runs_s=4_000.0, due_at=2_600.0, table=LINEAR),
    )
    run = simulate(jobs, Setting("elasticflow", 1, 4, cost_model="free"))
    assert (run.column("finished_at") <= run.column("deadline_at")).all()
    assert run.column("resizes")[0] >= 1


def test_a_newcomer_that_cannot_be_in_time_is_refused_and_nobody_suffers() -> None:
    jobs = trace(
        job("kept", runs_s=4_000.0, due_at=1_000.0, table=LINEAR),
        job("late", at=10.0, runs_s=4_000.0, due_at=1_010.0, table=LINEAR),
    )
    run = simulate(jobs, Setting("elasticflow", 1, 4, cost_model="free"))
    assert run.column("finished_at").tolist() == [1_000.0, float("inf")]
    assert set(run.refused) == {1}


def test_without_admission_it_runs_on_late() -> None:
    jobs = trace(
        job("kept", runs_s=4_000.0, due_at=1_000.0, table=LINEAR),
        job("late", at=10.0, runs_s=4_000.0, due_at=1_010.0, table=LINEAR),
    )
    run = simulate(jobs, Setting("elasticflow", 1, 4, cost_model="free", admission="none"))
    assert np.isfinite(run.column("finished_at")).all()


def test_who_cannot_be_in_time_runs_before_others_grow() -> None:
    jobs = trace(
        job("kept", runs_s=8_000.0, due_at=9_000.0, table=LINEAR),
        job("late", at=10.0, runs_s=8_000.0, due_at=1_000.0, table=LINEAR),
    )
    run = simulate(jobs, Setting("elasticflow", 1, 2, cost_model="free", admission="none"))
    epoch_s = 600.0 / 1.95  # on two GPUs, of which the first gives one at its end
    assert run.column("first_start_at").tolist() == pytest.approx([0.0, epoch_s])
    assert run.column("finished_at")[0] <= 9_000.0


def test_elasticflow_meets_the_published_ratio_on_the_shipped_sample() -> None:
    setting = Setting("elasticflow", 16, 8, pooled=True, cost_model="elasticflow", epoch_s=SLOT_S)
    ratio = report(simulate(sample(), setting))["deadline_met_ratio"]
    assert isinstance(ratio, float)
    assert ratio >= 0.749


@pytest.mark.skipif(TRACES is None, reason="LAXITY_TRACES names no folder of traces")
@pytest.mark.parametrize("name", PUBLISHED_TRACES)
def test_elasticflow_is_at_least_the_higher_of_published_and_rerun(name: str) -> None:
    assert TRACES is not None
    gpus, ratio = PUBLISHED[name]
    format_: Format = "itp" if name.startswith("itp") else "elasticflow"
    cards = "A100" if format_ == "itp" else "T4"
    tables = load_tables(TRACES / "elasticflow" / f"throughputs_{cards}")
    jobs = load(TRACES / f"{name}.csv", format_, tables=tables)
    setting = Setting(
        "elasticflow", gpus // 8, 8, pooled=True, cost_model="elasticflow", epoch_s=SLOT_S
    )
    met = report(simulate(jobs, setting))["deadline_met_ratio"]
    assert isinstance(met, float)
    assert met >= ratio
