"""What a job would be told, and what it would do to others: fast, and without touching anything."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from laxity_profiler.estimate import Ask, Estimate, Estimates, Workload
from laxity_scheduler.http.whatif import decide_whatif, whatif_view
from laxity_scheduler.inflight import with_follow_ups
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.job import Promise, Refusal
from laxity_scheduler.plan import Plan
from laxity_scheduler.plan_check import apply_plan
from laxity_scheduler.policies import qos
from tests.support.builders import Curve, cluster, job
from tests.support.memory_world import MemoryWorld
from tests.support.rows import new_row
from tests.support.services import manifest, staged

TRUTH = Curve(epoch_s=60.0)


def busy_cluster(jobs: int, nodes: int) -> ClusterState:
    """Jobs of many sizes, all judged and as many as fit started."""
    newcomers = [
        job(
            f"job-{number:04d}",
            epochs=10 + number % 50,
            workers=(1, 2, 4),
            due_at=4_000.0 + 97.0 * number if number % 3 else float("inf"),
            submitted_at=0.001 * number,
        )
        for number in range(jobs)
    ]
    state = cluster(gpus=[4] * nodes, jobs=newcomers, now=10.0)
    for _ in range(2):
        state = apply_plan(with_follow_ups(qos.decide)(state, TRUTH), state)
    return state


def test_a_job_that_would_be_preempted_is_named_as_an_effect() -> None:
    running = job("long", epochs=1000, running=1)
    state = cluster(gpus=1, jobs=[replace(running, asked=False)], now=30.0)
    newcomer = job("urgent", epochs=2, due_at=220.0, submitted_at=30.0)
    answer = decide_whatif(state, newcomer, TRUTH, qos.decide)
    effects = whatif_view(answer, state, newcomer)["effects"]
    assert isinstance(answer.verdict, Promise)
    assert [(effect["job"], effect["decision"]) for effect in effects] == [("team/long", "preempt")]


def test_a_job_that_would_start_later_is_named_as_an_effect() -> None:
    state = cluster(gpus=1, jobs=[job("patient", epochs=50)], now=5.0)
    newcomer = job("urgent", epochs=2, due_at=200.0, submitted_at=5.0)
    answer = decide_whatif(state, newcomer, TRUTH, qos.decide)
    effects = whatif_view(answer, state, newcomer)["effects"]
    assert [(effect["job"], effect["decision"]) for effect in effects] == [("team/patient", "wait")]


def test_a_refused_job_moves_nobody() -> None:
    running = job("long", epochs=1000, running=1)
    state = cluster(gpus=1, jobs=[replace(running, asked=False)], now=30.0)
    newcomer = job("hopeless", epochs=2, due_at=37.0, submitted_at=30.0)
    answer = decide_whatif(state, newcomer, TRUTH, qos.decide)
    assert isinstance(answer.verdict, Refusal)
    assert whatif_view(answer, state, newcomer)["effects"] == []


def test_a_policy_that_gives_no_verdicts_answers_none() -> None:
    state = cluster(gpus=1, now=5.0)
    answer = decide_whatif(state, job("a"), TRUTH, lambda _state, _predictor: Plan())
    assert whatif_view(answer, state, job("a"))["verdict"] == "none"


@pytest.mark.slow
def test_a_thousand_jobs_on_five_hundred_nodes_are_asked_about_in_less_than_a_second() -> None:
    state = busy_cluster(jobs=1_000, nodes=500)
    refused = replace(
        job("new", epochs=50, workers=(1, 2, 4), due_at=500.0, submitted_at=10.0), queued_at=10.0
    )
    decide_whatif(state, refused, TRUTH, qos.decide)
    began = time.process_time()
    answer = decide_whatif(state, refused, TRUTH, qos.decide)
    took_s = time.process_time() - began
    assert isinstance(answer.verdict, Refusal)
    assert answer.verdict.offers
    assert took_s < 1.0


def test_widths_beyond_the_cluster_are_never_asked_about() -> None:
    state = cluster(gpus=2)
    asked = {}
    for widths in ("1..2", "1..4096"):
        predictor = Counting(epoch_s=60.0)
        row = new_row(manifest(deadline="2h", widths=widths), state)
        decide_whatif(state, row, predictor, qos.decide)
        asked[widths] = predictor.rows
    assert asked["1..4096"] == asked["1..2"] > 0


def test_no_width_that_fits_is_refused_with_what_is_needed() -> None:
    state = cluster(gpus=2)
    row = new_row(manifest(deadline="2h", widths="512..4096"), state)
    told = decide_whatif(state, row, TRUTH, qos.decide).verdict
    assert isinstance(told, Refusal)
    assert told.reason.code == "does_not_fit_cluster"
    assert "512 workers" in told.reason.text


@dataclass(frozen=True)
class Counting(Curve):
    """A predictor that counts the rows it was asked for."""

    seen: list[int] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return sum(self.seen)

    def table(self, asks: Sequence[Ask]) -> Estimates:
        self.seen.append(len(asks))
        return super().table(asks)

    def epoch_time(self, workload: Workload, workers: int) -> Estimate:
        self.seen.append(1)
        return super().epoch_time(workload, workers)


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(RuntimeError("default/secret is odd"), id="a RuntimeError"),
        pytest.param(ValueError("default/secret is odd"), id="what a bad deadline raises, too"),
    ],
)
def test_a_policy_that_fails_is_told_as_that_and_names_nobody(
    tmp_path: Path, error: Exception
) -> None:
    def failing(state: ClusterState, predictor: object) -> Plan:
        raise error

    with staged(tmp_path, MemoryWorld(2)) as stage:
        stage.submit("a", deadline="1h", widths="1")
        before = stage.until("default/a", lambda view: view["workers"] == 1, "running")
        stage.service.policies.decide = failing
        answers = [
            stage.http.post("/v1/whatif", json=manifest("b", deadline="1h", widths="1")),
            stage.http.post("/v1/jobs/default/a/amend", json={"deadline": "2h"}),
        ]
        after = stage.http.get("/v1/jobs/default/a").json()
    assert [answer.status_code for answer in answers] == [503, 503]
    assert [answer.json()["error"]["code"] for answer in answers] == ["policy_fails"] * 2
    assert not any("secret" in answer.text for answer in answers)
    assert after["deadline_at"] == before["deadline_at"]
