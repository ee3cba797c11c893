"""Hundreds of claims are planned at once as they are one by one: the same shares, the same free GPUs."""

from collections.abc import Iterator
from random import Random

import numpy as np
import pytest

from laxity_scheduler.frame import compiled, fields, kernels, loops
from laxity_scheduler.frame.remaining import Forecasts
from laxity_scheduler.model.job import FOREVER
from laxity_scheduler.promising import claim_plans, planning, room
from laxity_scheduler.promising.claims import AS_PLANNED, ORDERS, Terms
from laxity_scheduler.promising.reserve import Claim, Profile, Share, slot_edges
from laxity_scheduler.promising.room import Room
from tests.support.crowded import crowded
from tests.support.random_states import PREDICTORS, Case, drawn

pytestmark = [
    pytest.mark.slow,  # compiles
    pytest.mark.skipif(not compiled.COMPILES, reason="there is only one way without numba"),
]
CASES = tuple(drawn(150))


@pytest.fixture
def one_is_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "MANY", 1)


def claims_of(case: Case) -> list[Claim]:
    draw = Random(case.seed)
    return [
        Claim(job, draw.choice((FOREVER, draw.uniform(1.0, 200.0), draw.uniform(1.0, 20_000.0))))
        for job in case.state.jobs
    ]


def profiles(case: Case) -> Iterator[Profile]:
    """Busy here and there, finer and coarser, and one that is all but empty of time."""
    draw = np.random.default_rng(case.seed)
    for horizon_s in (1e-3, 300.0, 2e5):
        profile = Profile(slot_edges(horizon_s), 8)
        profile.free -= draw.integers(0, 9, size=len(profile.free)) * (draw.random() < 0.7)
        yield profile


def test_a_row_says_of_every_width_what_its_job_says() -> None:
    """Rest, epoch's end, join and freed GPUs; by the bit."""
    for case in CASES:
        forecasts = Forecasts(case.state, case.predictor)
        now = case.state.now
        for place, one in enumerate(case.state.jobs):
            row, levels = forecasts.frame.table[place], forecasts.frame.levels("p90")[place]
            widths = forecasts.curve(one).widths
            assert loops.trajectory_s(row, levels, now) == forecasts.trajectory_s(one)
            for at, width in enumerate(widths):
                assert loops.rest_s(row, levels, at, now) == forecasts.rest_s(one, width)
            if one.workers:
                assert loops.freed_s(row, levels, now) == forecasts.freed_s(one)


def test_a_walk_ends_when_the_same_steps_do() -> None:
    for case in CASES:
        draw = Random(case.seed)
        forecasts = Forecasts(case.state, case.predictor)
        for place, one in enumerate(case.state.jobs):
            row, levels = forecasts.frame.table[place], forecasts.frame.levels("p90")[place]
            widths = forecasts.curve(one).widths
            many = draw.randint(1, 4)
            chosen = [draw.randrange(-1, len(widths)) for _ in range(many)]
            from_s = sorted([0.0, *(draw.uniform(0.0, 900.0) for _ in range(many - 1))])
            steps = tuple(
                (at_s, widths[at] if at >= 0 else 0)
                for at_s, at in zip(from_s, chosen, strict=True)
            )
            level = np.array([at if at >= 0 else fields.NOBODY for at in chosen])
            found = loops.end_s(row, levels, case.state.now, np.array(from_s), level, many)
            assert found == forecasts.finish_s(one, steps), (case.seed, one.id, steps)


@pytest.mark.parametrize("grow_anywhere", [False, True])
@pytest.mark.parametrize("stay", [False, True])
def test_claims_planned_together_have_the_shares_of_those_planned_one_by_one(
    *, stay: bool, grow_anywhere: bool
) -> None:
    for case in CASES:
        together_as_one_by_one(case, Terms(grow_anywhere=grow_anywhere), stay=stay)


def together_as_one_by_one(case: Case, terms: Terms, *, stay: bool) -> None:
    forecasts, claims = Forecasts(case.state, case.predictor), claims_of(case)
    where = Room(case.state, forecasts, terms, tuple(claims))
    for profile in profiles(case):
        one_by_one, together = profile.copy(), profile.copy()
        expected = where.in_order(claims, one_by_one, stay=stay)
        rules = where.rules(stay=stay)
        shares, late = claim_plans.plan_claims(forecasts.frame, claims, rules, together)
        assert (late, shares.names()) == (expected.late, set(expected.shares))
        assert {name: shares[name] for name in shares.names()} == dict(expected.shares)
        assert together.free.tolist() == one_by_one.free.tolist()


def test_a_table_of_shares_says_of_each_what_the_share_says() -> None:
    for case in CASES:
        forecasts, claims = Forecasts(case.state, case.predictor), claims_of(case)
        where = Room(case.state, forecasts, Terms(grow_anywhere=True), tuple(claims))
        for profile in profiles(case):
            rules = where.rules(stay=False)
            shares, _ = claim_plans.plan_claims(forecasts.frame, claims, rules, profile)
            names = [claim.job.id for claim in claims if claim.job.id in shares]
            shares.plain["plain"] = (2, 90.0)
            shares["given"] = Share(((0.0, 0), (60.0, 1), (120.0, 4)), 300.0)
            names += ["plain", "given"]
            told = shares.outline([*names, "nobody"], due_s=60.0)
            assert told.workers.tolist() == [*(shares[name].workers for name in names), -1]
            assert told.workers_now.tolist() == [*(shares[name].workers_now for name in names), -1]
            assert told.widest.tolist() == [*(shares[name].widest for name in names), -1]
            assert told.starts_s.tolist() == [*(shares[name].starts_s for name in names), FOREVER]
            assert told.finish_s.tolist() == [*(shares[name].finish_s for name in names), FOREVER]
            due = [max(w for at_s, w in shares[name].steps if at_s <= 60.0) for name in names]
            assert told.due_width.tolist() == [*due, -1]


def test_newcomers_are_admitted_together_up_to_the_first_that_is_late() -> None:
    for case in CASES:
        forecasts = Forecasts(case.state, case.predictor)
        where = Room(case.state, forecasts, Terms(), ())
        claims = [claim for claim in claims_of(case) if not claim.job.workers]
        rows = forecasts.frame.rows([claim.job for claim in claims])
        assert rows is not None
        for profile in profiles(case):
            one_by_one, together = profile.copy(), profile.copy()
            expected = []
            for claim in claims:
                share = where.planner.least(claim, one_by_one)
                if share is None:
                    break
                one_by_one.reserve(share, claim.job.gpus_per_worker)
                expected.append(share)
            due_s = np.array([claim.deadline_s for claim in claims])
            plans, ones = claim_plans.Plans(forecasts.frame, rows), slice(0, len(rows))
            many = claim_plans.admit_all(plans, ones, due_s, where.rules(stay=False), together)
            assert [plans.share(at) for at in range(many)] == expected
            assert together.free.tolist() == one_by_one.free.tolist()


def test_the_room_for_claims_is_the_same_from_columns(
    request: pytest.FixtureRequest,
) -> None:
    """Who is in the way, how far plans look, in which order claims are planned."""

    def asked() -> list[object]:
        return [answer for case in (*CASES, *together()) for answer in answers(case)]

    one_by_one = asked()
    request.getfixturevalue("one_is_many")
    assert asked() == one_by_one


def together() -> Iterator[Case]:
    """Pools in which promised jobs widen at each other's cost."""
    return (Case(seed, crowded(seed), PREDICTORS[seed % 3]) for seed in range(40))


def answers(case: Case) -> list[object]:
    forecasts, claims = Forecasts(case.state, case.predictor), claims_of(case)
    where = Room(case.state, forecasts, Terms(), tuple(claims[: len(claims) // 2]))
    profile = where.empty_profile(where.rows.horizon_s(claims))
    kept = where.kept(where.ordered(where.claims, AS_PLANNED), where.rows.horizon_s(claims))
    return [
        where.drain_s,
        profile.marks,
        profile.free.tolist(),
        *([claim.job.id for claim in where.ordered(claims, order)] for order in ORDERS),
        {name: kept.shares.get(name) for name in (claim.job.id for claim in claims)},
        kept.late,
        kept.profile.free.tolist(),
    ]


def test_loops_plan_in_cpython_as_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    for page in (loops, planning):
        for name, value in list(vars(page).items()):
            if hasattr(value, "py_func"):
                monkeypatch.setattr(page, name, value.py_func)
    monkeypatch.setattr(kernels, "width_of", loops._width_of)
    for case in CASES[:25]:
        together_as_one_by_one(case, Terms(grow_anywhere=bool(case.seed % 2)), stay=False)
