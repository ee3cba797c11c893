"""Workflows in traces are simulated with the service's own code."""

import math
from pathlib import Path

import numpy as np
import pytest

from laxity_lab.simulate.run import Setting, simulate
from laxity_lab.traces.traces import Trace, TraceError, load
from laxity_lab.world.outcome import Outcome
from laxity_scheduler.policies.registry import REGISTRY

HEAD = "job_id,num_gpu,submit_time,duration,expect_time_list,best_effort,model_name,user,group,step,after"
RELEASE = """
pre,1,0,60,{due},0,m,u,release,pretrain,
f1,1,0,60,{due},0,m,u,release,finetune,pretrain
f2,1,0,60,{due},0,m,u,release,finetune,pretrain
ev,1,0,30,{due},0,m,u,release,evaluate,finetune
"""
ONE_NODE = Setting("qos", 1, 2, cost_model="free")
MINUTE_S = 60.0


def trace_of(folder: Path, rows: str) -> Trace:
    path = folder / "release.csv"
    path.write_text(HEAD + rows)
    return load(path, "chronus")


def outcomes(trace: Trace, setting: Setting = ONE_NODE) -> dict[str, Outcome]:
    return {job.id.removeprefix("u/"): job for job in simulate(trace, setting).outcomes}


def test_steps_of_a_simulated_workflow_wait_for_those_before(tmp_path: Path) -> None:
    jobs = outcomes(trace_of(tmp_path, RELEASE.format(due=300)))
    assert jobs["f1"].first_start_at == jobs["f2"].first_start_at == jobs["pre"].finished_at
    assert jobs["ev"].first_start_at == jobs["f1"].finished_at
    assert jobs["ev"].finished_at == 150 * MINUTE_S


def test_simulated_workflow_that_cannot_be_in_time_never_starts(tmp_path: Path) -> None:
    jobs = outcomes(trace_of(tmp_path, RELEASE.format(due=140)))
    assert {job.refused for job in jobs.values()} == {"group_ended"}
    assert all(job.gpu_s == 0.0 for job in jobs.values())


def test_gpus_of_coming_steps_are_kept_from_others_in_a_simulation(tmp_path: Path) -> None:
    rows = RELEASE.format(due=160) + "wide,1,1,100,130,0,m,v,,,\n"
    jobs = outcomes(trace_of(tmp_path, rows))
    assert jobs["v/wide"].refused
    assert jobs["ev"].finished_at == 150 * MINUTE_S


@pytest.mark.parametrize("policy", sorted(REGISTRY))
def test_simulated_workflow_is_promised_only_where_the_policy_keeps_coming_steps(
    policy: str, tmp_path: Path
) -> None:
    trace = trace_of(tmp_path, RELEASE.format(due=300))
    run = simulate(trace, Setting(policy, 1, 2, cost_model="free"))
    promised = np.isfinite(run.column("promised_at"))
    assert promised.all() if REGISTRY[policy].plans_by_claims else not promised.any()


@pytest.mark.parametrize("policy", sorted(REGISTRY))
def test_each_policy_keeps_the_order_of_steps_and_ends_them(policy: str, tmp_path: Path) -> None:
    trace = trace_of(tmp_path, RELEASE.format(due=300))
    jobs = outcomes(trace, Setting(policy, 1, 2, cost_model="free"))
    assert all(job.finished_at < math.inf for job in jobs.values()), jobs
    assert jobs["f1"].first_start_at >= jobs["pre"].finished_at
    assert jobs["f2"].first_start_at >= jobs["pre"].finished_at
    assert jobs["ev"].first_start_at >= max(jobs["f1"].finished_at, jobs["f2"].finished_at)


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        pytest.param(
            RELEASE.replace(",pretrain\n", ",nobody\n"), "nobody, which is no step", id="step"
        ),
        pytest.param(
            RELEASE.replace("pretrain,\n", "pretrain,evaluate\n"), "a circle", id="circle"
        ),
    ],
)
def test_wrong_steps_of_a_trace_are_named(rows: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=sentence):
        simulate(trace_of(tmp_path, rows.format(due=300)), ONE_NODE)


def test_step_without_a_group_is_set_aside(tmp_path: Path) -> None:
    trace = trace_of(tmp_path, "\na,1,0,60,300,0,m,u,,pretrain,\nb,1,0,60,300,0,m,u,,,\n")
    assert [job.id for job in trace.jobs] == ["b"]
    assert "a job has both, or neither" in trace.bad_lines[0].problem
