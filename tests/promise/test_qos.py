"""The QoS framework (algorithms.md 3.4, 3.5): order of the queue, widths and donors, by hand.

Epochs take 60 s on one worker and speed up linearly.
"""

from laxity_scheduler.model.decision import Admit
from laxity_scheduler.policies import qos
from tests.support.builders import MINUTE_EPOCHS, cluster, job
from tests.support.plans import started_widths


def test_the_least_slack_goes_first_not_the_earliest_deadline() -> None:
    """1 GPU, soft jobs. early: due in 990 s, 300 s of work, slack 690. tight: 1,000 - 660 = 340 s."""
    jobs = [
        job("early", epochs=5, due_at=990.0, service_class="soft"),
        job("tight", epochs=11, due_at=1_000.0, service_class="soft", submitted_at=1.0),
    ]
    plan = qos.decide(cluster(gpus=1, jobs=jobs, now=1.0), MINUTE_EPOCHS)
    assert list(started_widths(plan)) == ["tight"]


def test_a_start_into_idle_gpus_names_the_width_that_it_starts_on() -> None:
    new = job("new", epochs=2, due_at=4_000.0, workers=(1, 2))
    plan = qos.decide(cluster(gpus=2, jobs=[new]), MINUTE_EPOCHS)
    (admit,) = [d for d in plan.decisions if isinstance(d, Admit)]
    assert admit.workers == 2
    assert admit.reason.code == "due_first"
    assert admit.reason.text.endswith("on 2 workers")
