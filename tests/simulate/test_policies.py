"""Every policy in the simulator: each plan fits, and no job is forgotten."""

import pytest

from laxity_lab.simulate.run import Setting, simulate
from laxity_lab.traces.generate import Mix, generate
from laxity_scheduler.policies.registry import REGISTRY
from laxity_scheduler.simulated.change_costs import CostName


@pytest.mark.parametrize("policy", sorted(set(REGISTRY) - {"qos"}))
@pytest.mark.parametrize("cost_model", ["live", "flat"])
def test_every_plan_of_every_policy_fits_and_no_job_is_forgotten(
    policy: str, cost_model: CostName
) -> None:
    for seed in range(3):
        jobs = generate(Mix(jobs=25, jobs_per_hour=30.0, best_effort=0.3), seed=seed)
        setting = Setting(policy, 2, 8, cost_model=cost_model, error=0.2, literal_cycle=True)
        run = simulate(jobs, setting)  # each plan is checked before it is carried out
        for row, ended_at in enumerate(run.column("finished_at").tolist()):
            assert ended_at < float("inf") or row in run.refused
