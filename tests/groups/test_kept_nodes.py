"""What is kept for later steps of a promised group is kept where these may run."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from laxity_lab.simulate.report import LATE_TOLERANCE_S
from laxity_lab.simulate.run import Setting, run_cycles
from laxity_profiler.estimate import Workload
from laxity_scheduler.frame.remaining import Forecasts
from laxity_scheduler.model.cluster import ClusterState, NodeSet, Reserved
from laxity_scheduler.promising.reservations import Reservations
from laxity_scheduler.promising.reserve import Claim
from laxity_scheduler.simulated.ground_truth import GroundTruth
from tests.support.builders import Curve, cluster, job

EPOCH_S = 60.0
SETS = {
    "left": NodeSet(frozenset({"node-0"}), "its GPUs are too small"),
    "right": NodeSet(frozenset({"node-1"}), "its GPUs are too small"),
}


def training(name: str, number: int, at_s: float, epochs: int, **more: Any) -> GroundTruth:
    given: dict[str, Any] = {
        "widths": (1,), "epoch_s": {1: EPOCH_S}, "service_class": "hard", "workload": Workload(name, epochs),
    }  # fmt: skip
    return GroundTruth(f"team/{name}", number, at_s, epochs, **(given | more))


def world_of(seed: int) -> list[GroundTruth]:
    """A workflow that begins on the left node and goes on on the right one; others want the right one."""
    rng = np.random.default_rng(seed)
    first, second = (int(epochs) for epochs in rng.integers(10, 30, size=2))
    due_s = float(rng.uniform(1.1, 1.5)) * (first + second) * EPOCH_S
    jobs = [
        training("a", 0, 0.0, first, group="g", step="a", deadline_at=due_s, eligible="left")
    ] + [
        training(
            f"b{place}", 1 + place, 0.0, second,
            group="g", step="b", after=("a",), deadline_at=due_s, eligible="right",
        )
        for place in range(int(rng.integers(2, 5)))
    ]  # fmt: skip
    for number in range(len(jobs), len(jobs) + 8):
        at_s, epochs = float(rng.uniform(1.0, first * EPOCH_S)), int(rng.integers(10, 60))
        due_at = at_s + float(rng.uniform(1.1, 2.0)) * epochs * EPOCH_S
        jobs.append(
            training(f"n{number}", number, at_s, epochs, deadline_at=due_at, eligible="right")
        )
    return sorted(jobs, key=lambda job: job.submitted_at)


@pytest.mark.parametrize("seed", [4, 5, 6, 10])
def test_newcomers_take_no_nodes_of_later_steps(seed: int) -> None:
    jobs = world_of(seed)
    run = run_cycles("small", Setting("qos", 2, 4, restart_s=5.0, seed=seed), jobs, sets=SETS)
    promised = np.isfinite(run.column("promised_at"))
    late = run.column("finished_at") > run.column("deadline_at") + LATE_TOLERANCE_S
    of_group = np.array([bool(job.group) for job in jobs])
    assert promised[of_group].all()
    assert [job.id for job, broken in zip(jobs, promised & late, strict=True) if broken] == []


MINUTE_S, KEPT_S = 60.0, 6000.0
BUSY = [
    job(f"busy-{name}", running=1, gpus_per_worker=4, nodes=(name,), pinned=True, epochs=1000)
    for name in ("n0", "n1")
]
SAMPLES = {
    "a set of nodes": (
        cluster(gpus=[1, 4], sets={"left": NodeSet(frozenset({"n0"}))}),
        {"eligible": "left"},
    ),
    "a quota": (cluster(gpus=8, quotas={"team": 1}), {"quota": "team"}),
    "whole nodes": (cluster(gpus=[8, 8, 8], jobs=BUSY), {"gpus_per_worker": 8}),
}


@pytest.mark.parametrize(("state", "asks"), SAMPLES.values(), ids=SAMPLES.keys())
def test_newcomer_is_planned_behind_what_is_kept_of(
    state: ClusterState, asks: dict[str, Any]
) -> None:
    gpus = asks.get("gpus_per_worker", 1)
    kept = Reserved("team/g/b", 0.0, KEPT_S, gpus, **asks)
    newcomer = job("new", due_at=20_000.0, asked=True, **asks)
    state = replace(state, jobs=(*state.jobs, newcomer), reserved=(kept,))
    reservations = Reservations(state, Forecasts(state, Curve(epoch_s=MINUTE_S)))
    share = reservations.fits(Claim(newcomer, 20_000.0))
    assert share is not None
    assert share.starts_s == pytest.approx(KEPT_S, abs=300.0)
