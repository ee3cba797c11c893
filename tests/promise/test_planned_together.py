"""Claims are planned by the same functions compiled and as they stand: the same shares, the same free GPUs."""

from collections.abc import Iterator
from random import Random

import numpy as np
import pytest

from laxity_scheduler.frame import compiled, fields, kernels, loops
from laxity_scheduler.frame.remaining import Forecasts
from laxity_scheduler.model.job import FOREVER
from laxity_scheduler.promising.claimants import hold_nothing
from laxity_scheduler.promising.claims import AS_PLANNED, ORDERS, Claims, claims_of
from laxity_scheduler.promising.planner import Plans
from laxity_scheduler.promising.reserve import Claim, Profile, Share, ShareTable, slot_edges
from laxity_scheduler.promising.room import Room
from tests.support.crowded import crowded
from tests.support.random_states import PREDICTORS, Case, drawn

CASES = tuple(drawn(150))


def drawn_claims(case: Case, forecasts: Forecasts) -> Claims:
    draw, jobs = Random(case.seed), case.state.jobs
    due_s = [
        draw.choice((FOREVER, draw.uniform(1.0, 200.0), draw.uniform(1.0, 20_000.0))) for _ in jobs
    ]
    return claims_of(forecasts.frame, jobs, due_s)


def one_by_one(claims: Claims) -> Iterator[Claim]:
    return map(Claim, claims.jobs, claims.deadline_s.tolist())


def profiles(case: Case, parts: int) -> Iterator[Profile]:
    """Busy here and there, finer and coarser, and one that is all but empty of time."""
    draw = np.random.default_rng(case.seed)
    for horizon_s in (1e-3, 300.0, 2e5):
        profile = Profile.of(slot_edges(horizon_s), *[8.0] * parts)
        profile.parts[:] -= draw.integers(0, 9, size=profile.parts.shape) * (draw.random() < 0.7)
        yield profile


def test_a_row_says_of_every_width_what_its_job_says() -> None:
    """Rest, epoch's end, join and freed GPUs; by the bit."""
    for case in CASES:
        forecasts = Forecasts(case.state, case.predictor)
        now = case.state.now
        for place, one in enumerate(case.state.jobs):
            row, levels = forecasts.frame.table[place], forecasts.frame.levels("p90")[place]
            work = loops.work_of(row, levels)
            for at, width in enumerate(forecasts.curve(one).widths):
                assert loops.rest_s(work, levels, at, now) == forecasts.rest_s(one, width)
            if one.workers:
                assert kernels.time_to_free_s(work, now) == forecasts.time_to_free_s(one)


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
            work = loops.work_of(row, levels)
            found = loops.end_s(work, levels, case.state.now, np.array(from_s), level, many)
            assert found == forecasts.finish_s(one, steps), (case.seed, one.id, steps)


def test_a_table_of_shares_says_of_each_what_the_share_says() -> None:
    for case in CASES:
        forecasts = Forecasts(case.state, case.predictor)
        claims = drawn_claims(case, forecasts)
        where = Room(case.state, forecasts, claims)
        for profile in profiles(case, where.parts):
            held = hold_nothing(len(claims.jobs), where.parts)
            shares, _ = where.planner.plan_all(claims, held, profile, stay=False).keep()
            shares.add_widths(["plain"], np.array([2]), np.array([90.0]))
            shares.add("given", Share(((0.0, 0), (60.0, 1), (120.0, 4)), 300.0))
            names = [name for name in claims.names if name in shares]
            names += ["plain", "given"]
            rows = shares.rows_of([*names, "nobody"])
            assert rows.workers.tolist() == [*(shares[name].workers for name in names), -1]
            assert rows.workers_now.tolist() == [*(shares[name].workers_now for name in names), -1]
            assert rows.widest[:-1].tolist() == [shares[name].widest for name in names]
            assert rows.starts_s.tolist() == [*(shares[name].starts_s for name in names), FOREVER]
            assert rows.finish_s.tolist() == [*(shares[name].finish_s for name in names), FOREVER]
            due = [max(w for at_s, w in shares[name].steps if at_s <= 60.0) for name in names]
            assert rows.widest_by(60.0)[:-1].tolist() == due


def test_newcomers_are_admitted_up_to_the_first_that_is_late_as_each_alone_would_be() -> None:
    for case in CASES:
        forecasts = Forecasts(case.state, case.predictor)
        claims = drawn_claims(case, forecasts)
        claims = claims.at(np.flatnonzero([not job.workers for job in claims.jobs]))
        where = Room(case.state, forecasts, claims_of(forecasts.frame, (), ()))
        for profile in profiles(case, where.parts):
            alone, together = profile.copy(), profile.copy()
            expected = []
            for claim in one_by_one(claims):
                share = where.planner.least(claim, alone)
                if share is None:
                    break
                alone.reserve(share, where.planner.gpu_needs(claim.job))
                expected.append(share)
            plans, shares = Plans(where.planner, claims), ShareTable()
            made = where.planner.plan_newcomers(plans, 0, claims.deadline_s, together)
            names = claims.names[:made]
            shares.add_rows(names, plans.share_rows(np.arange(made)))
            assert [shares[name] for name in names] == expected
            assert together.parts.tolist() == alone.parts.tolist()


@pytest.mark.slow  # compiles
@pytest.mark.skipif(not compiled.COMPILES, reason="there is only one way without numba")
def test_compiled_functions_plan_as_they_do_uncompiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def asked() -> list[object]:
        return [answer for case in (*CASES, *contended()) for answer in answers(case)]

    uncompiled = asked()
    monkeypatch.setattr(compiled, "MANY_ROWS", 1)
    assert asked() == uncompiled


def contended() -> Iterator[Case]:
    """Pools in which promised jobs widen at each other's cost."""
    return (Case(seed, crowded(seed), PREDICTORS[seed % 3]) for seed in range(40))


def answers(case: Case) -> list[object]:
    """What is in the way of claims, their order, their shares, and what offers rest on."""
    forecasts = Forecasts(case.state, case.predictor)
    claims = drawn_claims(case, forecasts)
    where = Room(case.state, forecasts, claims.at(np.arange(len(claims.jobs) // 2)))
    horizon_s = where.rows.horizon_s(claims)
    profile = where.empty_profile(horizon_s)
    kept = where.find_best_plan(where.sort_claims(where.claims, AS_PLANNED), horizon_s)
    busy = next(profiles(case, where.parts))
    return [
        where.rows.drain_s,
        profile.parts.tolist(),
        *(where.sort_claims(claims, order).names for order in ORDERS),
        {name: kept.shares.get(name) for name in claims.names},
        kept.late,
        kept.profile.parts.tolist(),
        [where.planner.least(claim, kept.profile) for claim in one_by_one(claims)],
        [where.planner.earliest(job, busy) for job in claims.jobs],
    ]
