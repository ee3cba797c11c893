"""From submission to finish on a virtual clock: with exact predictions no promise is ever broken."""

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from laxity_profiler.estimate import Predictor
from laxity_scheduler.capacity.eligibility import may_ever_start
from laxity_scheduler.inflight import with_follow_ups
from laxity_scheduler.model.cluster import ClusterState, NodeSet
from laxity_scheduler.model.decision import Admit, Preempt, Promised, Refuse, Resize
from laxity_scheduler.model.job import FOREVER, Promise, Refusal
from laxity_scheduler.plan import Plan
from laxity_scheduler.plan_check import apply_plan
from laxity_scheduler.policies.qos import QosPolicy
from tests.support.builders import Curve, job
from tests.support.toy_world import ToyWorld

POLICY = with_follow_ups(QosPolicy())
SECONDS = Curve(epoch_s=2.0, start_s=1.0, stop_s=0.3)


def demo() -> ToyWorld:
    """Eight trainings on two slots, as a demo would submit them."""
    return ToyWorld(
        gpus=(2,),
        truth=SECONDS,
        arrivals=[
            job("be1", epochs=20),
            job("be2", epochs=20, workers=(1, 2)),
            job("first", epochs=8, due_at=60.0, submitted_at=5.0),
            job("second", epochs=8, due_at=45.0, workers=(1, 2), submitted_at=6.0),
            job("third", epochs=12, due_at=62.0, workers=(1, 2), submitted_at=10.0),
            job("soft", epochs=5, due_at=70.0, service_class="soft", submitted_at=12.0),
            job("hopeless", epochs=50, due_at=60.0, submitted_at=13.0),
            job("be3", epochs=4, submitted_at=14.0),
        ],
    )


def test_a_demo_runs_through_and_keeps_every_promise() -> None:
    world = demo()
    world.run(POLICY)

    promised = {name for name, verdict in world.verdicts.items() if isinstance(verdict, Promise)}
    assert promised == {"team/first", "team/second", "team/third"}
    assert world.broken() == {}
    assert isinstance(world.verdicts["team/hopeless"], Refusal)
    assert set(world.finished) == {one.id for one in world.arrivals} - {"team/hopeless"}


def test_a_best_effort_job_is_stopped_at_an_epochs_end_and_resumed() -> None:
    world = demo()
    world.run(POLICY)

    asked, stopped = world.of("team/be1", Preempt)
    assert (asked[1].at, stopped[1].at) == ("epoch", "now")  # type: ignore[union-attr]
    assert [type(one) for _, one in world.of("team/be1", Admit)] == [Admit, Admit]
    epochs_s = 20 * 2.0 + 2 * SECONDS.start_s
    ran_s = stopped[0] + world.finished["team/be1"] - world.of("team/be1", Admit)[1][0]
    assert ran_s == pytest.approx(epochs_s), "no epoch is lost, none is done twice"


def test_a_refused_job_that_accepts_the_offer_is_promised_and_in_time() -> None:
    world = demo()
    world.run(POLICY, until=15.0)
    refused = world.of("team/hopeless", Refuse)[0][1]
    assert isinstance(refused, Refuse)
    offer = next(one for one in refused.refusal.offers if one.kind == "deadline")

    again = job("again", epochs=50, due_at=offer.deadline_at, submitted_at=20.0)
    world = demo()
    world.arrivals = [*world.arrivals[:6], again, world.arrivals[7]]
    world.__post_init__()
    world.run(POLICY)

    assert isinstance(world.verdicts["team/again"], Promise)
    assert world.broken() == {}


def test_a_job_grows_to_meet_its_deadline_when_others_end() -> None:
    """On two slots both must start; the one that is due first needs both from then on."""
    world = ToyWorld(
        gpus=(2,),
        truth=Curve(epoch_s=10.0),
        arrivals=[
            job("short", epochs=3, due_at=31.0),
            job("wide", epochs=10, due_at=70.0, workers=(1, 2), submitted_at=1.0),
        ],
    )
    world.run(POLICY)
    assert world.broken() == {}
    starts = world.of("team/wide", Admit)
    grows = world.of("team/wide", Resize)
    assert starts[0][1].workers == 1  # type: ignore[union-attr]
    assert grows[0][1].workers == 2  # type: ignore[union-attr]


def test_two_hard_jobs_and_best_effort_share_two_slots() -> None:
    world = ToyWorld(
        gpus=(2,),
        truth=SECONDS,
        arrivals=[
            job("be", epochs=30, workers=(1, 2)),
            job("x", epochs=10, due_at=40.0, submitted_at=3.0),
            job("y", epochs=10, due_at=50.0, submitted_at=4.0),
        ],
    )
    world.run(POLICY)
    assert world.broken() == {}
    assert len(world.finished) == 3
    assert world.finished["team/be"] > world.finished["team/y"]


def test_an_empty_cluster_is_used_to_the_full_by_one_job() -> None:
    world = ToyWorld(gpus=(4,), truth=SECONDS, arrivals=[job("a", epochs=8, workers=(1, 2, 4))])
    world.run(POLICY)
    assert world.finished["team/a"] == pytest.approx(1.0 + 8 * 0.5)


def test_nobody_starves_behind_a_stream_of_shorter_jobs() -> None:
    stream = [job(f"s{number:03}", epochs=30, submitted_at=30.0 * number) for number in range(60)]
    world = ToyWorld(
        gpus=(2,), truth=SECONDS, arrivals=[job("wide", workers=(2,), submitted_at=1.0), *stream]
    )
    world.run(POLICY)
    waited_s = world.of("team/wide", Admit)[0][0] - 1.0
    assert 600.0 <= waited_s <= 600.0 + 60.0 + 10.0


def test_what_was_promised_moves_only_when_it_is_said() -> None:
    world = demo()
    world.run(POLICY)
    for one in world.arrivals:
        said = [told for _, told in world.of(one.id, Promised)]
        for before, after in pairwise(said):
            assert isinstance(before, Promised)
            assert isinstance(after, Promised)
            assert abs(after.promise.p90_at - before.promise.p90_at) > 0.0
            assert after.promise.deadline_at == before.promise.deadline_at


def random_world(seed: int) -> ToyWorld:
    """Few slots, many jobs with tight deadlines: mixed widths, sizes, nodes and speeds."""
    rng = random.Random(seed)
    sizes = rng.choice([(1,), (1,), (1, 2)])
    truth = Curve(
        models={f"m{number}": rng.uniform(0.5, 8.0) for number in range(6)},
        speedup=rng.choice([{}, {2: 1.7, 4: 2.5}]),
        start_s=rng.choice([0.0, 1.0, 3.0]),
        stop_s=rng.choice([0.0, 0.3, 1.0]),
    )
    arrivals, at = [], 0.0
    for number in range(rng.randint(5, 14)):
        at += rng.expovariate(1 / 8)
        kind = rng.choice(["hard", "hard", "soft", "best_effort"])
        epochs, model = rng.randint(2, 30), f"m{rng.randint(0, 5)}"
        due_at = at + 10.0 + truth.models[model] * epochs * rng.uniform(0.7, 4.0)
        arrivals.append(
            job(
                f"j{number}",
                epochs=epochs,
                model=model,
                due_at=FOREVER if kind == "best_effort" else due_at,
                workers=rng.choice([(1,), (1, 2), (1, 2, 4)]),
                service_class=kind,
                gpus_per_worker=rng.choice(sizes),
                submitted_at=at,
            )
        )
    gpus = rng.choice([(2,), (4,), (4, 4), (2, 2, 2), (8,)])
    return ToyWorld(gpus=gpus, truth=truth, arrivals=arrivals)


def runs_through(seed: int) -> None:
    keeps_all(random_world(seed))


def keeps_all(world: ToyWorld) -> None:
    """Each promise is kept, and who is not refused ends."""
    world.run(POLICY)
    refused = {name for name, told in world.verdicts.items() if isinstance(told, Refusal)}
    assert world.broken() == {}
    assert set(world.finished) | refused == {one.id for one in world.arrivals}


def is_interfered_with(seed: int) -> None:
    """Waiting jobs are cancelled, promised ones amended."""
    rng = random.Random(f"cancelled {seed}")
    world = random_world(seed)
    for at in sorted(rng.uniform(0.0, 120.0) for _ in range(4)):
        world.run(POLICY, until=at)
        world.now = max(world.now, at)
        jobs = world.observe().jobs
        waiting = [one for one in jobs if not (one.workers or one.terminating_workers)]
        held = [one for one in jobs if isinstance(one.verdict, Promise)]
        if waiting and rng.random() < 0.6:
            world.cancel(rng.choice(waiting).id)
        elif held:
            one = rng.choice(held)
            world.amend(one.id, max(at, one.deadline_at) + rng.uniform(-30.0, 60.0))
    world.run(POLICY)
    assert world.broken() == {}


def test_a_promise_that_needs_all_of_a_job_that_gives_some_workers_is_kept() -> None:
    """j0 is asked for one worker, and half a second later j2 needs both: all leave at once."""
    runs_through(1_963)


def test_of_two_that_may_make_way_the_one_goes_that_frees_its_gpu_in_time() -> None:
    """j2's epoch ends 4.1 s from when j5 asks, j3's 0.1 s; j5 has 1.3 s to spare."""
    runs_through(1_944)


def tied_world(seed: int) -> ToyWorld:
    """The same on several nodes, of which most jobs may use some only."""
    world, rng = random_world(seed), random.Random(f"sets of {seed}")
    if len(world.gpus) == 1:
        world.gpus = rng.choice([(4, 4), (2, 2, 2), (4, 2)])
    nodes = [f"n{number}" for number in range(len(world.gpus))]
    world.sets = {"first": NodeSet(frozenset(nodes[:1])), "rest": NodeSet(frozenset(nodes[1:]))}
    if len(nodes) > 2:
        world.sets = {**world.sets, "two": NodeSet(frozenset(nodes[:2]))}
    world.arrivals = [
        replace(one, eligible=rng.choice(["", *world.sets])) for one in world.arrivals
    ]
    world.__post_init__()
    return world


def keeps_to_sets(seed: int) -> None:
    world = tied_world(seed)
    world.run(POLICY)
    refused = {name for name, told in world.verdicts.items() if isinstance(told, Refusal)}
    state = replace(world.observe(), sets=world.sets)
    never = {one.id for one in world.arrivals if not may_ever_start(state, one)}
    assert world.broken() == {}
    assert set(world.finished) | refused | never == {one.id for one in world.arrivals}


def test_who_can_leave_a_node_stays_on_it_once_it_runs() -> None:
    """j4 needs n0 beside another node; j5, which can use n0 only, is promised to start after it."""
    keeps_to_sets(330)


def test_nobody_makes_way_for_one_that_then_sits_on_its_only_node() -> None:
    """j2 could wait for some seconds; j7 would be on n0 for a minute."""
    keeps_to_sets(1_563)


def test_who_can_leave_a_node_waits_where_that_helps_one_who_cannot() -> None:
    """j5 could start half a second sooner on the node that j6 needs."""
    keeps_to_sets(40)


def test_one_for_whom_a_node_is_held_keeps_a_seat_for_its_other_worker() -> None:
    """n1 is held for j9, whose second worker fits n2 only; j11, planned behind it, can use n0."""
    keeps_to_sets(1_677)


def test_who_awaits_one_gpu_of_a_node_gets_the_free_one_beside_it_as_well() -> None:
    """j1 was stopped for j3, whose worker needs both GPUs of n0, and may use no other free one."""
    keeps_to_sets(241)


@pytest.mark.parametrize("seed", [2_020, 2_027])
def test_a_promised_job_takes_both_seats_that_it_was_counted_with_beside_soft_claims(
    seed: int,
) -> None:
    """Two GPUs of n0 are free for it, and a soft job claims n0 after it."""
    keeps_to_sets(seed)


def shared_world(seed: int) -> ToyWorld:
    """The same in two namespaces whose quotas are less than the cluster has, and one without."""
    world, rng = tied_world(seed) if seed % 3 == 0 else random_world(seed), random.Random(seed)
    most = max(one.gpus_per_worker for one in world.arrivals)
    world.quotas = {name: rng.randint(most, most + 1) for name in ("a", "b")}
    arrivals = []
    for one in world.arrivals:
        namespace = rng.choice("aaabc")
        quota = namespace if namespace in world.quotas else ""
        within = world.quotas.get(quota, sum(world.gpus)) // one.gpus_per_worker
        named = replace(one, id=one.id.replace("team", namespace), quota=quota)
        arrivals.append(replace(named, widths=tuple(w for w in one.widths if w <= within)))
    world.arrivals = arrivals
    world.__post_init__()
    return world


def keeps_to_quotas(seed: int) -> None:
    world = shared_world(seed)

    def watched(state: ClusterState, predictor: Predictor) -> Plan:
        plan = POLICY(state, predictor)
        assert min(apply_plan(plan, state).quota_left.values()) >= 0, f"at {state.now}: {plan}"
        return plan

    world.run(watched)
    refused = {name for name, told in world.verdicts.items() if isinstance(told, Refusal)}
    state = world.observe()
    never = {one.id for one in world.arrivals if one.eligible and not may_ever_start(state, one)}
    assert world.broken() == {}
    assert set(world.finished) | refused | never == {one.id for one in world.arrivals}


def test_one_whose_quota_another_leaves_as_it_ends_has_its_nodes_freed_in_time() -> None:
    """j6 ends, and leaves j10 its quota and one GPU; j10 needs one more, which another gives."""
    keeps_to_quotas(763)


def test_one_who_lacks_its_quota_and_its_nodes_has_both_freed() -> None:
    """j4 needs the GPU of j2, of its quota and without a promise, and that of j3, of another."""
    keeps_to_quotas(1_084)


def test_who_waits_for_gpus_to_be_freed_takes_no_earlier_ones_that_another_needs() -> None:
    """j4 can wait for those of j0; j3 needs those of j1, which are free before."""
    keeps_to_quotas(1_786)


def test_no_two_are_stopped_for_one_where_one_of_them_is_back_at_once() -> None:
    """j9 comes: j6 makes way for it, and j5, which is due sooner, runs on."""
    keeps_to_quotas(730)


def test_for_one_that_must_start_wider_elsewhere_others_are_stopped_there() -> None:
    """j6 asks for 20 s less, and needs a second worker; its node has no room, and no other has."""
    is_interfered_with(1_688)


def test_a_stop_that_an_amended_promise_rests_on_is_not_taken_back() -> None:
    """j2 was stopped for j5, which has started elsewhere; by then j0 is promised its GPU."""
    is_interfered_with(1_652)


def test_an_amended_promise_is_counted_with_the_deadline_that_it_asks_for() -> None:
    """j6 asks for 8 s less; a second worker could join too late for that."""
    is_interfered_with(936)


def test_a_promised_job_moves_that_leaves_no_node_whole_for_wider_workers() -> None:
    """j0 needs two GPUs on one node; two nodes have half of theirs left, and j3 could use either."""
    is_interfered_with(1_179)


def whole_world(seed: int) -> ToyWorld:
    """Nodes of eight GPUs, workers of one to eight, of which half cannot be stopped."""
    world, rng = random_world(seed), random.Random(f"whole nodes {seed}")
    world.gpus = rng.choice([(8, 8), (8, 8, 8)])
    world.arrivals = [
        replace(
            one,
            gpus_per_worker=(size := rng.choice([1, 2, 4, 8])),
            widths=(1,) if size == 8 else one.widths,
            preemptible=rng.random() < 0.5,
        )
        for one in world.arrivals
    ]
    world.__post_init__()
    return world


def keeps_whole_nodes(seed: int) -> None:
    keeps_all(whole_world(seed))


every_world = pytest.mark.parametrize(
    "keeps_promises",
    [
        pytest.param(runs_through, id="predictions are right"),
        pytest.param(is_interfered_with, id="waiting jobs are cancelled or amended"),
        pytest.param(keeps_to_sets, id="jobs may use some nodes only"),
        pytest.param(keeps_to_quotas, id="namespaces have quotas"),
        pytest.param(keeps_whole_nodes, id="workers need whole nodes"),
    ],
)


@every_world
@pytest.mark.parametrize(
    "seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(6, 20))]
)
def test_no_promise_is_broken_where(keeps_promises: Callable[[int], None], seed: int) -> None:
    keeps_promises(seed)


@pytest.mark.soak
@every_world
@pytest.mark.parametrize("block", range(20))
def test_no_promise_is_broken_in_thousands_of_worlds_where(
    keeps_promises: Callable[[int], None], block: int
) -> None:
    for seed in range(100 * block, 100 * (block + 1)):
        keeps_promises(seed)
