"""A cluster with GPUs of two products: on which a job is planned, promised and started."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from laxity_k8s.objects.status_annotation import verdict_text
from laxity_profiler.estimate import NO_PROGRESS, Progress, Workload
from laxity_scheduler.model.cluster import ClusterState, Hold, NodeSet
from laxity_scheduler.model.decision import Admit, Promised, Refuse
from laxity_scheduler.model.job import Job
from laxity_scheduler.plan import Plan
from laxity_scheduler.plan_check import check_plan
from laxity_scheduler.policies.registry import find
from laxity_scheduler.qos.product_choice import choose_products
from laxity_scheduler.service.views.verdict_view import parse_verdict
from tests.support.builders import MINUTE_S, Curve, cluster, job, promise

FAST, SLOW = "A100", "T4"
TIMES = {FAST: 1.0, SLOW: 4.0}


@dataclass(frozen=True)
class ByProduct(Curve):
    """An epoch of one worker takes a minute on the fast product, four on the slow one."""

    def one_epoch_s(self, workload: Workload, workers: int) -> float:
        return super().one_epoch_s(workload, workers) * TIMES.get(workload.gpu_type, 9.0)


KNOWS = ByProduct()
POLICY = find("qos").policy()


def mixed(*jobs: Job, fast: int = 2, slow: int = 2, **fields: Any) -> ClusterState:
    """Node n0 is fast, n1 slow."""
    state = cluster(gpus=(fast, slow), jobs=jobs, **fields)
    first, second = state.nodes
    return replace(state, nodes=(replace(first, gpu_type=FAST), replace(second, gpu_type=SLOW)))


def chosen(state: ClusterState) -> dict[str, str]:
    return {
        row.id.removeprefix("team/"): row.workload.gpu_type
        for row in choose_products(state, KNOWS).jobs
    }


def promises(plan: Plan) -> dict[str, str]:
    given = [one for one in plan.decisions if isinstance(one, Promised)]
    return {one.job.removeprefix("team/"): one.promise.gpu_type for one in given}


def started(plan: Plan) -> dict[str, Sequence[str]]:
    admitted = [one for one in plan.decisions if isinstance(one, Admit)]
    return {one.job.removeprefix("team/"): one.nodes for one in admitted}


def minutes(number: float) -> float:
    return number * MINUTE_S


def test_a_deadline_that_only_the_fast_product_keeps_is_promised_on_it() -> None:
    plan = POLICY(mixed(job("tight", epochs=10, due_at=minutes(15))), KNOWS)
    assert promises(plan) == {"tight": FAST}
    assert started(plan) == {"tight": ("n0",)}


def test_a_deadline_that_the_slow_product_keeps_leaves_the_fast_one_free() -> None:
    plan = POLICY(mixed(job("loose", epochs=10, due_at=minutes(60))), KNOWS)
    assert promises(plan) == {"loose": SLOW}
    assert started(plan) == {"loose": ("n1",)}


def test_a_loose_deadline_takes_the_fast_product_where_the_slow_one_is_promised_to_others() -> None:
    jobs = [
        job(f"loose{n}", epochs=10, due_at=minutes(60), submitted_at=-float(3 - n))
        for n in range(3)
    ]
    plan = POLICY(mixed(*jobs, slow=2), KNOWS)
    assert promises(plan) == {"loose0": SLOW, "loose1": SLOW, "loose2": FAST}


def test_a_deadline_that_no_product_keeps_is_refused_by_the_one_that_ends_first() -> None:
    plan = POLICY(mixed(job("late", epochs=10, due_at=minutes(5))), KNOWS)
    (refusal,) = [one.refusal for one in plan.decisions if isinstance(one, Refuse)]
    assert refusal.reason.code == "deadline_before_fastest_finish"
    assert refusal.p90_at == pytest.approx(minutes(10))
    assert refusal.offers[0].kind == "deadline"


def test_the_words_of_a_promise_name_the_product() -> None:
    plan = POLICY(mixed(job("tight", epochs=10, due_at=minutes(15))), KNOWS)
    (given,) = [one for one in plan.decisions if isinstance(one, Promised)]
    assert given.reason.text.endswith("on 1 worker of A100")


def test_a_promised_job_that_waits_stays_on_its_product() -> None:
    held = replace(promise(minutes(60)), gpu_type=FAST)
    assert chosen(mixed(job("waits", due_at=minutes(60), verdict=held, asked=False))) == {
        "waits": FAST
    }


def test_a_running_job_stays_and_grows_on_the_product_of_its_nodes() -> None:
    runs = job(
        "runs",
        running=1,
        nodes=("n1",),
        workers=(1, 2, 4),
        due_at=minutes(20),
        verdict=promise(minutes(20)),
    )
    state = choose_products(mixed(runs, fast=8, slow=2), KNOWS)
    assert state.jobs[0].workload.gpu_type == SLOW
    assert state.eligible_nodes(state.jobs[0]) == frozenset({"n1"})


def test_jobs_without_a_deadline_start_where_they_end_first() -> None:
    """Four jobs in turn on a fast GPU are done as soon as one on a slow GPU, which starts at once."""
    waiting = [job(f"w{n}", epochs=10, submitted_at=float(n)) for n in range(6)]
    assert chosen(mixed(*waiting, fast=1, slow=1, now=10.0)) == {
        "w0": FAST, "w1": FAST, "w2": FAST, "w3": FAST, "w4": SLOW, "w5": FAST
    }  # fmt: skip


def test_a_job_takes_the_gpus_that_others_were_stopped_for() -> None:
    held = (Hold("team/waits", "n1", 1, until_at=600.0),)
    assert chosen(mixed(job("waits"))) == {"waits": FAST}
    assert chosen(mixed(job("waits"), holds=held)) == {"waits": SLOW}
    stops = job("stops", running=1, nodes=("n1",), stop_for="team/waits", stop_requested_at=0.0)
    assert chosen(mixed(job("waits"), stops)) == {"stops": SLOW, "waits": SLOW}


def test_a_job_that_names_its_nodes_is_chosen_for_within_them() -> None:
    sets = {"kind=slow": NodeSet(frozenset({"n1"}), "n0: label kind is missing")}
    tied = job("tied", due_at=minutes(15), eligible="kind=slow")
    state = mixed(tied, sets=sets)
    assert choose_products(state, KNOWS).jobs == state.jobs


def test_a_job_that_is_on_no_known_product_again_keeps_its_own_epochs() -> None:
    """A preempted job without a promise may go on elsewhere; what it has trained counts there."""
    own = Progress(4, (240.0,) * 4, (1,) * 4, gpu_type=SLOW)
    state = choose_products(mixed(job("again", progress=own)), KNOWS)
    assert state.jobs[0].workload.gpu_type == FAST
    assert state.jobs[0].progress is own


def test_where_one_product_is_known_nothing_is_chosen() -> None:
    state = mixed(job("any", due_at=minutes(60)))
    same = replace(state, nodes=tuple(replace(one, gpu_type=FAST) for one in state.nodes))
    assert choose_products(same, KNOWS) is same
    late = replace(state, nodes=(state.nodes[0], replace(state.nodes[1], gpu_type="")))
    assert choose_products(late, KNOWS) is late, "one node is not labelled yet"


def test_rows_are_the_same_objects_as_long_as_nothing_changes() -> None:
    state = mixed(job("loose", due_at=minutes(60), progress=NO_PROGRESS), job("other"))
    first, again = choose_products(state, KNOWS), choose_products(state, KNOWS)
    assert all(one is other for one, other in zip(first.jobs, again.jobs, strict=True))


def test_plans_on_two_products_fit() -> None:
    jobs = [
        job(
            f"j{n}",
            epochs=5 + n,
            due_at=minutes(10 + 9 * n),
            workers=(1, 2),
            submitted_at=-float(n),
        )
        for n in range(8)
    ]
    state = mixed(*jobs, fast=2, slow=4)
    plan = POLICY(state, KNOWS)
    check_plan(plan, state)
    nodes = {name: FAST if name == "n0" else SLOW for name in ("n0", "n1")}
    given = promises(plan)
    assert given
    for name, there in started(plan).items():
        assert {nodes[one] for one in there} == {given.get(name, nodes[there[0]])}


def test_a_promise_keeps_its_product_when_it_is_read_again() -> None:
    held = replace(promise(minutes(60)), gpu_type=FAST)
    assert parse_verdict(verdict_text(held)) == held
