"""Small worlds in which promises were broken that could be kept: each is one fault of before."""

from pathlib import Path

import pytest

from laxity_lab.simulate.report import Figures, report
from laxity_lab.simulate.run import Setting, simulate
from laxity_lab.traces.throughput_tables import load_tables
from laxity_lab.traces.traces import load
from laxity_scheduler.simulated.change_costs import CostName
from tests.support.simulated import SAMPLES

WORLDS = Path(__file__).parent / "worlds"


def figures_of(world: str, setting: Setting) -> Figures:
    tables = load_tables(WORLDS / "tables")
    return report(simulate(load(WORLDS / f"{world}.csv", "itp", tables=tables), setting))


@pytest.mark.parametrize("cost_model", ["free", "flat"])
def test_a_job_keeps_its_width_to_its_epochs_end_whatever_changes_cost(
    cost_model: CostName,
) -> None:
    """One that shrank at once from 8 workers to 1 in its last epoch ended 177 s late."""
    setting = Setting("qos", 4, 8, pooled=True, cost_model=cost_model, epoch_s=60.0)
    figures = figures_of("qos_breaks_free", setting)
    assert figures["deadlines_met"] in range(6, 8)
    assert figures["promises_broken"] == 0


@pytest.mark.parametrize("each_epoch", [False, True])
def test_no_promise_rests_on_gpus_that_are_held_for_another_job(each_epoch: bool) -> None:
    """It was promised while 8 GPUs were held for a job that was due later: 929 s late."""
    setting = Setting("qos", 4, 8, cost_model="live", epoch_s=60.0, each_epoch=each_epoch)
    figures = figures_of("qos_breaks_live", setting)
    assert figures["promises"] in range(4, 6)
    assert figures["promises_broken"] == 0


@pytest.mark.slow
def test_no_job_starts_on_gpus_that_are_held_for_a_wider_restart() -> None:
    """One did, in a plan that stopped the other for 32 workers: the plan was refused for everybody."""
    tables = load_tables(SAMPLES / "elasticflow" / "throughputs_A100")
    trace = load(WORLDS / "qos_holds_for_restart.csv", "itp", tables=tables)
    figures = report(simulate(trace, Setting("qos", 64, 8, cost_model="elasticflow")))
    assert figures["decisions_dropped"] == 0
    assert figures["finished"] + figures["refused"] == figures["jobs"]


@pytest.mark.parametrize("policy", ["elasticflow", "qos"])
@pytest.mark.parametrize("cost_model", ["free", "flat", "live"])
def test_seven_jobs_that_crowd_32_gpus_break_no_promise(policy: str, cost_model: CostName) -> None:
    setting = Setting(policy, 4, 8, pooled=True, cost_model=cost_model, epoch_s=60.0)
    figures = figures_of("seven_jobs", setting)
    assert figures["promises"] in range(1, 7)
    assert figures["promises_broken"] == 0
