"""The QoS framework (algorithms.md 3.4, 3.5): order of the queue, widths and donors, by hand.

Epochs take 60 s on one worker and speed up linearly.
"""

import pytest

from laxity_scheduler.model.decision import Admit, Promised
from laxity_scheduler.policies import qos
from tests.support.builders import MINUTE_EPOCHS, cluster, job, promise, promised
from tests.support.plans import stopped_jobs


def test_a_start_into_idle_gpus_names_the_width_that_it_starts_on() -> None:
    new = job("new", epochs=2, due_at=4_000.0, workers=(1, 2))
    plan = qos.decide(cluster(gpus=2, jobs=[new]), MINUTE_EPOCHS)
    (admit,) = [d for d in plan.decisions if isinstance(d, Admit)]
    assert admit.workers == 2
    assert admit.reason.code == "due_first"
    assert admit.reason.text.endswith("on 2 workers")


def test_who_is_stopped_in_a_decision_is_told_when_it_goes_on() -> None:
    """2 GPUs. wide (300 s on both) makes way for two that need 600 s each by 780 s, side by side."""
    jobs = [
        promised("wide", 1_200.0, workers=(2,), running=2),
        promised("one", 780.0),
        promised("other", 780.0),
    ]
    plan = qos.decide(cluster(gpus=2, jobs=jobs), MINUTE_EPOCHS)
    assert stopped_jobs(plan) == ["team/wide"]
    (told,) = [d for d in plan.decisions if isinstance(d, Promised) and d.job == "team/wide"]
    (waits_until_at, waiting), (ends_at, workers) = told.promise.runs
    assert (waiting, workers) == (0, 2)
    assert 630.0 <= waits_until_at < 660.0
    assert ends_at == told.promise.p90_at == pytest.approx(waits_until_at + 270.0)


@pytest.mark.parametrize(("done", "codes"), [(9, ["promise_moved"]), (10, [])])
def test_the_clock_alone_moves_no_promise(done: int, codes: list[str]) -> None:
    """10 epochs by 1,000 s; promised for 600 s. After the last one its pods may still be there."""
    told = promise(1_000.0, p90_at=600.0)
    late = promised("late", 1_000.0, running=1, done=done, epoch_started_at=800.0, verdict=told)
    plan = qos.decide(cluster(gpus=1, jobs=[late], now=800.0), MINUTE_EPOCHS)
    assert [d.reason.code for d in plan.decisions if isinstance(d, Promised)] == codes
