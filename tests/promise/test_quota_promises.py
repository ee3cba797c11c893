"""Promises within the quota of a namespace: what it holds at once, counted over time."""

from dataclasses import replace
from random import Random

from laxity_scheduler.frame.remaining import Forecasts
from laxity_scheduler.model.cluster import ClusterState
from laxity_scheduler.model.decision import Admit, Preempt, Promised, Refuse, Wait
from laxity_scheduler.model.job import Job, Promise, Refusal
from laxity_scheduler.plan import Plan
from laxity_scheduler.policies.qos import decide
from laxity_scheduler.promising.promise import Judge
from tests.support.builders import MINUTE_EPOCHS, cluster, job, promised
from tests.support.restricted_states import drawn, newcomers, workers_at

TEAM = "team/gpus"
STATES = 100


def told(plan: Plan, kind: type) -> dict[str, str]:
    """Codes of decisions of a kind, by the name of their job."""
    return {
        one.job.removeprefix("team/"): one.reason.code  # type: ignore[union-attr]
        for one in plan.decisions
        if isinstance(one, kind)
    }


def judged(state: ClusterState, *asking: Job) -> list[bool]:
    for one in asking:
        state = state.with_job(one)
    judge = Judge(state, Forecasts(state, MINUTE_EPOCHS))
    return [isinstance(judge.verdict(one), Promise) for one in asking]


def test_of_two_jobs_that_a_quota_holds_one_at_a_time_both_are_promised_only_one_after_the_other() -> (
    None
):
    state = cluster(gpus=8, quotas={TEAM: 1})
    first, soon = (job(name, due_at=800.0, quota=TEAM) for name in ("first", "soon"))
    later, other = job("later", due_at=1_500.0, quota=TEAM), job("other", due_at=800.0)

    assert judged(state, first, soon, later, other) == [True, False, True, True]
    assert judged(replace(state, quotas={TEAM: 2}), first, soon, later) == [True, True, True]
    plan = decide(replace(state, jobs=(first, later, soon, other)), MINUTE_EPOCHS)
    assert told(plan, Admit).keys() == {"first", "other"}
    assert told(plan, Promised).keys() == {"first", "later", "other"}
    (refused,) = (one for one in plan.decisions if isinstance(one, Refuse))
    assert refused.reason.text.startswith(
        "it needs 1 GPU in time; promised jobs and pods of others leave 0 of team/gpus: the P90 finish would be "
    )
    assert {offer.kind for offer in refused.refusal.offers} == {"deadline"}, "GPUs are not missing"
    assert told(plan, Wait) == {"later": "quota_used_up"}


def test_a_job_without_a_quota_is_not_told_that_one_is_used_up() -> None:
    """Although others without one start in the same decision, and some namespace has a quota."""
    jobs = [
        job("starts"),
        job("full", running=1, nodes=("n1",), gpus_per_worker=2),
        job("waits", gpus_per_worker=2),
    ]
    plan = decide(cluster(gpus=(1, 2), jobs=jobs, quotas={TEAM: 4}), MINUTE_EPOCHS)
    assert told(plan, Admit).keys() == {"starts"}
    assert set(told(plan, Wait).values()) == {"no_free_gpus"}


def test_a_job_of_the_same_quota_makes_room_for_a_promise_and_no_other() -> None:
    mine = job("mine", running=1, quota=TEAM, epochs=50)
    others = [job(f"other{number}", running=1, epochs=50) for number in range(3)]
    urgent = promised("urgent", 780.0, quota=TEAM)
    plan = decide(cluster(gpus=8, jobs=[mine, *others, urgent], quotas={TEAM: 1}), MINUTE_EPOCHS)
    assert told(plan, Preempt) == {"mine": "preempt_for"}
    assert not told(plan, Admit)


def test_at_no_instant_do_promised_jobs_have_more_than_their_quota() -> None:
    given = turned_away = 0
    for seed in range(STATES):
        draw = Random(f"quotas {seed}")
        quotas = {"a": draw.randint(1, 3), "b": draw.randint(1, 3)}
        state = replace(drawn(draw), quotas=quotas)
        rows = [replace(row, quota=draw.choice(["a", "b", ""])) for row in state.jobs]
        running = {name: sum(row.gpus for row in rows if row.quota == name) for name in quotas}
        state = replace(state, jobs=tuple(rows))
        if any(running[name] > quotas[name] for name in quotas):
            continue
        asking = newcomers(draw, state, epochs=4, slack=3.0)
        asking = [replace(row, quota=draw.choice(["a", "a", "b", ""])) for row in asking]
        state = replace(state, jobs=(*state.jobs, *asking))
        judge = Judge(state, Forecasts(state, MINUTE_EPOCHS))
        verdicts = [judge.verdict(one) for one in asking]
        shares = {one: judge.reservations.shares[one.id] for one in judge.reservations.claims.jobs}
        for at_s in sorted({at_s for share in shares.values() for at_s, _ in share.steps}):
            for name, gpus in quotas.items():
                used = sum(
                    workers_at(share, at_s) * row.gpus_per_worker
                    for row, share in shares.items()
                    if row.quota == name
                )
                assert used <= gpus, f"seed {seed}: {used} of {gpus} in {name}, {at_s} s from now"
        given += sum(isinstance(one, Promise) for one in verdicts)
        why = [one.reason.code for one in verdicts if isinstance(one, Refusal)]
        turned_away += why.count("quota_promised_to_others")
    assert given > STATES
    assert turned_away > STATES // 4


def test_of_jobs_that_must_run_at_once_a_quota_turns_away_none_that_fits() -> None:
    """Neither more nor fewer, one after the other: nothing is left out to be careful."""
    refused = 0
    for seed in range(STATES):
        draw = Random(f"at once {seed}")
        quotas = {"a": draw.randint(1, 4), "b": draw.randint(1, 4)}
        state, left = cluster(gpus=(4, 4), quotas=quotas), {**quotas, "": 8, "all": 8}
        asking = newcomers(draw, state, epochs=4, slack=0.0)
        asking = [replace(row, quota=draw.choice(["a", "b", ""])) for row in asking]
        for one, kept in zip(asking, judged(state, *asking), strict=True):
            fits = one.widths[0] <= min(left[one.quota], left["all"])
            assert kept is fits, f"seed {seed}: {one.id} with {left} left"
            left[one.quota] -= one.widths[0] * kept
            left["all"] -= one.widths[0] * kept
            refused += not kept
    assert refused > STATES // 2
