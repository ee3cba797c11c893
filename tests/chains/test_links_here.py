"""A training with a wall-clock limit on this machine: links of one Job, each epoch exactly once."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from laxity.api.job_view import TERMINAL_STATES
from laxity.job.qos import QoS
from laxity.job.spec import TrainingSpec
from tests.support.programs import linked as program
from tests.support.programs.linked import BROKEN, EPOCHS, HURRY, SLOW_TO_CLOSE, STUCK
from tests.support.stage import Stage, stage
from tests.support.waiting import until
from tests.survive.test_killed import seen_epochs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
LIMIT_S = 16.0  # of which a slow machine may need ten to start a worker


class Chain:
    """One training on a service of its own."""

    def __init__(
        self,
        there: Stage,
        *,
        epochs: int = EPOCHS,
        epoch_s: float = 1.0,
        limit_s: float = LIMIT_S,
        grace_s: int = 30,
        **terms: Any,
    ) -> None:
        self.there, self.place = there, there.evidence
        estimate, limit = f"{epoch_s:g}s", f"{limit_s:g}s"
        qos = QoS.of(workers=1, epoch_estimate=estimate, wall_limit=limit, **terms)
        spec = TrainingSpec(
            name="chain",
            qos=qos,
            epochs=epochs,
            entry=f"{Path(program.__file__)}:linked",
            parameters={"folder": str(self.place), "epoch_s": epoch_s},
            template={"terminationGracePeriodSeconds": grace_s},
        )
        self.id = str(there.client.submit(spec.to_manifest()).id)

    def lines(self, name: str) -> list[str]:
        file = self.place / name
        return file.read_text(encoding="utf-8").splitlines() if file.exists() else []

    def until_link(self, number: int) -> None:
        until(lambda: len(self.lines("starts")) >= number, limit_s=150, what=f"link {number}")

    def hurry_from_link(self, number: int) -> None:
        """Once this link trains an epoch takes no time: what is left says no more of links."""
        self.until_link(number)
        (self.place / HURRY).touch()

    def until_ended(self) -> Any:
        return self.there.until(self.id, lambda job: job.state in TERMINAL_STATES)


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Stage]:
    with stage(tmp_path) as opened:
        yield opened


def test_each_epoch_is_trained_once_over_at_least_three_links(there: Stage) -> None:
    chain = Chain(there, deadline="20m")
    chain.hurry_from_link(3)

    job = chain.until_ended()

    assert (job.state, job.result) == ("finished", {"epochs": EPOCHS}), job
    assert chain.lines("epochs") == [str(epoch) for epoch in range(1, EPOCHS + 1)]
    begun = [int(line.split()[1]) for line in chain.lines("starts")]
    assert len(begun) >= 3
    assert begun == sorted(set(begun)), "each link goes on where the last one was"
    assert seen_epochs(there.home) == {job.uid: list(range(1, EPOCHS + 1))}
    assert job.preemptions == 0, "a link's end is no preemption"


def test_a_worker_that_is_killed_costs_its_epoch_and_no_link(there: Stage) -> None:
    chain = Chain(there)
    until(lambda: len(chain.lines("epochs")) >= 2, limit_s=150, what="two epochs")
    os.kill(int(chain.lines("starts")[-1].split()[0]), signal.SIGKILL)
    chain.hurry_from_link(4)

    job = chain.until_ended()

    assert job.state == "finished"
    assert seen_epochs(there.home) == {job.uid: list(range(1, EPOCHS + 1))}
    assert len(chain.lines("starts")) >= 4, "the killed one, and three links"


def test_a_service_that_is_killed_in_two_links_costs_no_epoch(there: Stage) -> None:
    chain = Chain(there, epochs=20, epoch_s=2.0, limit_s=30.0)
    for link in (1, 2):
        chain.until_link(link)
        there.kill()
        there.start()
    seen = len(chain.lines("epochs"))
    until(lambda: len(chain.lines("epochs")) > seen, limit_s=150, what="an epoch after the kill")
    chain.hurry_from_link(2)

    job = chain.until_ended()

    assert (job.state, job.result) == ("finished", {"epochs": 20}), job
    assert chain.lines("epochs") == [str(epoch) for epoch in range(1, 21)]
    assert len(chain.lines("starts")) >= 2
    assert seen_epochs(there.home) == {job.uid: list(range(1, 21))}


def test_a_chain_that_is_cancelled_while_its_next_link_starts_starts_no_other(there: Stage) -> None:
    chain = Chain(there)
    chain.until_link(2)
    there.client.cancel(chain.id)

    job = chain.until_ended()
    until(lambda: not there.workers(), limit_s=120, what="its worker to leave")

    assert job.state == "cancelled"
    assert len(chain.lines("starts")) == 2


def test_a_training_whose_result_is_in_is_not_started_again_when_its_link_is_cut(
    there: Stage,
) -> None:
    (there.evidence / SLOW_TO_CLOSE).touch()
    chain = Chain(there, epochs=3, grace_s=3)

    job = chain.until_ended()

    assert (job.state, job.result) == ("finished", {"epochs": 3}), job
    assert len(chain.lines("starts")) == 1
    assert chain.lines("epochs") == ["1", "2", "3"]
    assert (job.epochs_done, job.preemptions) == (3, 0)


def test_a_link_that_fails_ends_the_chain_with_its_error(there: Stage) -> None:
    chain = Chain(there)
    chain.until_link(2)
    (chain.place / BROKEN).touch()

    job = chain.until_ended()

    assert job.state == "failed"
    assert "the data has gone" in job.error


def test_links_that_finish_no_epoch_end_the_chain_with_a_reason(there: Stage) -> None:
    chain = Chain(there)
    until(lambda: len(chain.lines("epochs")) >= 2, limit_s=150, what="two epochs")
    (chain.place / STUCK).touch()

    job = chain.until_ended()

    assert job.state == "failed"
    assert "longer than the wall-clock limit" in job.error
