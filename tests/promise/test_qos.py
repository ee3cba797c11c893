"""The QoS framework (algorithms.md 3.4, 3.5): order of the queue, widths and donors, by hand.

Epochs take 60 s on one worker and speed up linearly.
"""

from laxity_scheduler.model.decision import Admit, Preempt, Promised, Refuse, Resize
from laxity_scheduler.policies import qos
from tests.support.builders import MINUTE_EPOCHS, Curve, cluster, job, promised
from tests.support.plans import started_widths


def test_the_least_slack_goes_first_not_the_earliest_deadline() -> None:
    """1 GPU, soft jobs. early: due in 990 s, 300 s of work, slack 690. tight: 1,000 - 660 = 340 s."""
    jobs = [
        job("early", epochs=5, due_at=990.0, service_class="soft"),
        job("tight", epochs=11, due_at=1_000.0, service_class="soft", submitted_at=1.0),
    ]
    plan = qos.decide(cluster(gpus=1, jobs=jobs, now=1.0), MINUTE_EPOCHS)
    assert list(started_widths(plan)) == ["tight"]


def test_a_promise_is_refused_by_how_much_it_would_be_late() -> None:
    """10 epochs on at most 2 workers: 300 s. Due in 290 s."""
    new = job("new", epochs=10, due_at=290.0, workers=(1, 2))
    plan = qos.decide(cluster(gpus=8, jobs=[new]), MINUTE_EPOCHS)
    (refuse,) = [d for d in plan.decisions if isinstance(d, Refuse)]
    assert refuse.reason.fact("late_s") == 10.0
    assert refuse.refusal.p90_at == 300.0


def test_the_verdict_counts_with_p90() -> None:
    """10 x 60 s x 1.3 = 780 s: due in 779 s it is refused on one worker, due in 780 s promised."""
    predictor = Curve(epoch_s=60.0, spread=0.3)

    def verdict(due_at: float) -> type:
        state = cluster(gpus=1, jobs=[job("new", epochs=10, due_at=due_at)])
        plan = qos.decide(state, predictor)
        return next(type(d) for d in plan.decisions if isinstance(d, Promised | Refuse))

    assert verdict(779.0) is Refuse
    assert verdict(780.0) is Promised


def test_a_running_job_that_would_be_late_grows_to_the_least_width_in_time() -> None:
    """20 epochs left: 1,200 s on 1, 600 s on 2, 300 s on 4; due in 700 s, 5 % of which is margin."""
    late = promised("late", 700.0, epochs=20, workers=(1, 2, 4), running=1, epoch_started_at=0.0)
    plan = qos.decide(cluster(gpus=2, jobs=[late], now=0.0), MINUTE_EPOCHS)
    assert [(d.job, d.workers) for d in plan.decisions if isinstance(d, Resize)] == [
        ("team/late", 2)
    ]


def test_a_best_effort_job_makes_way_for_a_promise_that_cannot_wait() -> None:
    """1 GPU: 600 s of promised work due in 700 s; the other one has an hour to go."""
    free = job("free", epochs=60, running=1, epoch_started_at=100.0, resumed_at=0.0)
    due = promised("due", 800.0, epochs=10, submitted_at=100.0)
    plan = qos.decide(cluster(gpus=1, jobs=[free, due], now=100.0), MINUTE_EPOCHS)
    (stop,) = [d for d in plan.decisions if isinstance(d, Preempt)]
    assert (stop.job, stop.at, stop.beneficiary) == ("team/free", "epoch", "team/due")


def test_hopeless_jobs_run_after_those_that_can_be_in_time() -> None:
    """1 GPU. lost (soft): 600 s of work, due in 100 s. can (soft): 300 s, due in 400 s."""
    jobs = [
        job("lost", epochs=10, due_at=100.0, service_class="soft"),
        job("can", epochs=5, due_at=400.0, service_class="soft", submitted_at=1.0),
    ]
    plan = qos.decide(cluster(gpus=1, jobs=jobs, now=1.0), MINUTE_EPOCHS)
    assert list(started_widths(plan)) == ["can"]


def test_a_start_into_idle_gpus_names_the_width_that_it_starts_on() -> None:
    new = job("new", epochs=2, due_at=4_000.0, workers=(1, 2))
    plan = qos.decide(cluster(gpus=2, jobs=[new]), MINUTE_EPOCHS)
    (admit,) = [d for d in plan.decisions if isinstance(d, Admit)]
    assert admit.workers == 2
    assert admit.reason.code == "due_first"
    assert admit.reason.text.endswith("on 2 workers")
