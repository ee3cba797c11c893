"""A simulation gives the same columns whichever way it takes: orders have a quicker one beside the cycle."""

from dataclasses import replace

import pytest

from laxity_lab.simulate.run import Setting, simulate
from laxity_lab.traces.traces import Trace
from laxity_scheduler.policies.registry import REGISTRY
from tests.simulate.test_share_loops import small

NEVER_FAILS_S = 1e15
TRACES = [small(seed, 12) for seed in range(3)]


def columns(jobs: Trace, setting: Setting) -> dict[str, bytes]:
    return {name: column.tobytes() for name, column in simulate(jobs, setting).columns.items()}


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_nodes_that_never_fail_change_no_column_of_the_literal_cycle(name: str) -> None:
    for cost_model in ("flat", "live"):
        cycle = Setting(name, 1, 4, cost_model=cost_model, epoch_s=600.0, literal_cycle=True)
        whole = replace(cycle, literal_cycle=False, fails_s=NEVER_FAILS_S)
        for jobs in TRACES:
            assert columns(jobs, whole) == columns(jobs, cycle)


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_the_quickest_way_has_the_columns_of_the_literal_cycle(name: str) -> None:
    for setting in (Setting(name, 1, 4, epoch_s=600.0), Setting(name, 2, 2, error=0.2, seed=3)):
        for jobs in TRACES:
            assert columns(jobs, setting) == columns(jobs, replace(setting, literal_cycle=True))
