"""Inference nodes in the simulated cluster: lent at night, back in the morning."""

from math import isnan
from pathlib import Path

import numpy as np
import pytest

from laxity_lab.simulate.replay import literal
from laxity_lab.simulate.report import report
from laxity_lab.traces.inference_load import (
    MEAN,
    PEAK,
    TROUGH,
    InferenceLoad,
    read_load,
    scale_to_shares,
)
from laxity_lab.traces.trace_lookup import SAMPLES, trace_at
from laxity_lab.traces.traces import Trace, TraceError, TraceJob, load
from laxity_lab.world.inference_fleet import RECLAIM_S, InferenceFleet
from laxity_lab.world.noisy_predictor import NoisyPredictor
from laxity_lab.world.outcome import Run
from laxity_lab.world.trace_truths import ground_truths
from laxity_lab.world.world import SimWorld
from laxity_scheduler.inflight import with_follow_ups
from laxity_scheduler.loans.demand_forecast import SeasonalForecast
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.policies.registry import find
from laxity_scheduler.simulated.change_costs import costs
from laxity_scheduler.simulated.ground_truth import GroundTruth

HOUR_S = 3_600.0
NODES, GPUS = 4, 8


def sample_load() -> InferenceLoad:
    return read_load(SAMPLES / "servegen" / "rates.csv")


def night_and_surge() -> InferenceLoad:
    """A day of nothing, then all of the fleet at once: no forecast could see it come."""
    return InferenceLoad(600.0, np.array([0.0] * 144 + [1.0] * 144 + [0.0] * 1_300))


def some_jobs(count: int, hours: float = 5.0, epoch_s: float = 600.0) -> list[GroundTruth]:
    """Jobs of 4 GPUs, half an hour apart, by one and the same model."""
    rows = tuple(
        TraceJob(f"j{number}", 1_800.0 * number, hours * HOUR_S, 4) for number in range(count)
    )
    trace = Trace("jobs", rows)
    return ground_truths(trace, elastic=False, gpus_per_node=GPUS, pooled=False, epoch_s=epoch_s)


def run_with(
    jobs: list[GroundTruth], load: InferenceLoad, *, lends: bool = True, training: int = 1
) -> Run:
    names = [f"i{number}" for number in range(NODES)]
    fleet = InferenceFleet(names, GPUS, load, lends=lends)
    model = costs("live", cluster_gpus=GPUS)
    nodes = [(f"t{number}", GPUS) for number in range(training)]
    return literal(
        "aryl",
        "jobs",
        world=SimWorld(jobs, nodes, model, inference=fleet),
        policy=find("aryl").policy(),
        predictor=NoisyPredictor(jobs, model, error=0.0, seed=0),
    )


def test_loans_shorten_waits_and_raise_the_usage_of_all_gpus() -> None:
    jobs = some_jobs(40)
    lent, alone = (report(run_with(jobs, sample_load(), lends=lends)) for lends in (True, False))
    assert lent["finished"] == alone["finished"] == 40
    assert float(str(lent["avg_wait_s"])) < 0.85 * float(str(alone["avg_wait_s"]))
    assert float(str(lent["usage_all_gpus"])) > float(str(alone["usage_all_gpus"]))
    assert float(str(lent["lent_gpus_mean"])) > 0
    assert alone["lent_gpus_mean"] == alone["lent_servers"] == 0


@pytest.mark.parametrize("epoch_s", [60.0, 200.0, 3_600.0])
def test_inference_never_lacks_a_gpu_longer_than_the_reclaim_time(epoch_s: float) -> None:
    run = run_with(some_jobs(60, epoch_s=epoch_s), night_and_surge())
    assert run.loans is not None
    assert run.loans.preemptions > 0
    assert run.loans.longest_short_s <= RECLAIM_S
    assert (run.loans.longest_short_s > 0) is (epoch_s < RECLAIM_S), "it ends its epoch if it can"
    figures = report(run)
    assert figures["reclaimed_servers"] == NODES
    assert figures["preempted_per_reclaimed_server"] == run.loans.preemptions / NODES


def test_each_job_that_was_stopped_for_inference_ends_all_the_same() -> None:
    run = run_with(some_jobs(12), night_and_surge())
    assert np.isfinite(run.column("finished_at")).all()


def test_what_the_forecast_sees_comes_back_before_it_is_needed() -> None:
    day = [0.2] * 100 + [0.9] * 44
    run = run_with(some_jobs(60), InferenceLoad(600.0, np.array(day)))
    assert run.loans is not None
    assert run.loans.reclaimed_servers > 0
    assert run.loans.longest_short_s == 0.0
    assert run.loans.forecast_coverage == 1.0


def test_snapshots_show_lent_nodes_and_when_they_may_be_wanted_back() -> None:
    seen: list[ClusterState] = []
    jobs = some_jobs(6)
    fleet = InferenceFleet(("i0", "i1"), GPUS, InferenceLoad(600.0, np.array([0.3, 0.3])))
    model = costs("free", cluster_gpus=GPUS)
    world = SimWorld(jobs, [("t0", GPUS)], model, inference=fleet)
    policy = with_follow_ups(find("aryl").policy())
    while not world.done and world.advance():
        state = world.observe()
        seen.append(state)
        world.carry_out(policy(state, NoisyPredictor(jobs, model, error=0.0, seed=0)))
    pools = {node.id: node for node in seen[1].nodes}
    assert (pools["i0"].pool, pools["i0"].free_gpus) == ("inference", 3)
    assert (pools["i1"].pool, pools["i1"].reclaim_at) == ("loaned", 1_800.0)
    assert seen[1].inference is not None
    assert seen[1].inference.needed_gpus == 5
    assert seen[1].inference.peak_gpus == 6  # with head-room


def test_a_fleet_that_lacks_gpus_wants_them_back_within_the_reclaim_time() -> None:
    fleet = InferenceFleet(("i0",), GPUS, InferenceLoad(600.0, np.array([0.0] * 200 + [1.0])))
    for slot in range(200):
        fleet.begin_slot(600.0 * slot)
    fleet.move(("i0",), 100_000.0, lent=True)
    fleet.begin_slot(120_000.0)
    demand = fleet.demand()
    assert demand is not None
    assert (demand.needed_gpus, demand.reclaim_by) == (GPUS, 120_000.0 + RECLAIM_S)
    fleet.move(("i0",), 120_100.0, lent=False)
    totals = fleet.totals(120_200.0)
    assert (totals.longest_short_s, totals.short_gpu_s) == (100.0, 100.0 * GPUS)
    assert totals.lent_gpu_s == 20_100.0 * GPUS


def test_the_sample_has_the_trough_mean_and_peak_of_the_paper() -> None:
    shares = sample_load().shares
    assert len(shares) == 14 * 144
    assert (shares.min(), shares.max()) == pytest.approx((TROUGH, PEAK))
    assert shares.mean() == pytest.approx(MEAN, abs=1e-3)
    assert scale_to_shares(np.array([4.0, 4.0])).tolist() == [MEAN, MEAN]


def test_forecasts_cover_most_slots_of_the_sample() -> None:
    load = sample_load()
    fleet = InferenceFleet([f"i{number}" for number in range(52)], GPUS, load)
    for slot in range(2_016):
        fleet.begin_slot(600.0 * slot)
    assert 0.9 < fleet.totals(2_016 * 600.0).forecast_coverage <= 1.0
    assert isnan(InferenceFleet(("i0",), GPUS, load).totals(0.0).forecast_coverage)
    assert SeasonalForecast().horizon_s == 1_800.0


HEADER = "model,start_s,requests_per_s\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param(
            "model,start_s\na,0\n",
            "load.csv: columns requests_per_s are missing; found model",
            id="no rates",
        ),
        pytest.param("", "columns model, .* are missing", id="empty"),
        pytest.param(HEADER, "0 slots", id="no rows"),
        pytest.param(f"{HEADER}a,0,-1\n", "line 2: .*is -1", id="negative"),
        pytest.param(f"{HEADER}a,0,nan\n", "line 2: requests_per_s", id="NaN"),
        pytest.param(
            f"{HEADER}a,0,1\na,600\n", "line 3: requests_per_s is missing", id="short row"
        ),
        pytest.param(f"{HEADER}a,0,1e300\n", "line 2: .*is 1e.300", id="more than any fleet has"),
        pytest.param(f"{HEADER}a,0,1\na,0,2\n", "line 3: model a has start_s 0 twice", id="twice"),
        pytest.param(f"{HEADER}a,0,1\n", "1 slot; ", id="one slot"),
        pytest.param(f"{HEADER}a,0,1\na,1e-9,2\n", "slots are 1e-09 s long; 1 s to", id="no time"),
        pytest.param(f"{HEADER}a,0,1\na,1e6,2\n", "slots are 1e.06 s long; 1 s to", id="weeks"),
        pytest.param(
            f"{HEADER}a,0,1\na,600,1\na,900,1\n",
            "slots are 600 s long at first and 300 s later",
            id="uneven slots",
        ),
    ],
)
def test_a_load_that_cannot_be_used_is_an_error_that_says_where(
    tmp_path: Path, text: str, words: str
) -> None:
    path = tmp_path / "load.csv"
    path.write_text(text)
    with pytest.raises(TraceError, match=words):
        read_load(path)


def test_the_shortest_models_of_a_load_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "load.csv"
    rows = ["long,0,1", "long,600,3", "short,0,99"]
    path.write_text("model,start_s,requests_per_s\n" + "\n".join(rows))
    assert read_load(path).shares.tolist() == pytest.approx([TROUGH, PEAK])


def test_the_sample_trace_of_jobs_is_not_taken_for_a_load() -> None:
    with pytest.raises(TraceError, match=r"columns model, .* are missing"):
        read_load(trace_at(Path("itp/195job.csv")))
    assert load(trace_at(Path("philly/philly.csv")), "philly").jobs
