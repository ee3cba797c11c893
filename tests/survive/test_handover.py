"""Two services on one store: who takes over predicts with all that the other one has learned."""

import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from laxity_profiler.estimate import Estimate
from laxity_profiler.history.history import History
from laxity_profiler.history.history_database import open_engine
from laxity_profiler.learning.learner import Learner
from laxity_scheduler.model.job import Job
from laxity_scheduler.plan import Plan
from laxity_scheduler.policies import qos
from laxity_scheduler.process.start import RefreshingLearner, catching_up_first
from laxity_scheduler.service.feedback import Feedback
from laxity_scheduler.service.loop import Service
from laxity_scheduler.service.settings import Settings
from laxity_scheduler.store.store import Store
from laxity_scheduler.store.tables import NewRow, PendingRow, SavedView, ServiceTable
from tests.support.clocks import Clocks
from tests.support.journal import verdicts_of
from tests.support.memory_world import MemoryWorld
from tests.support.runs import epoch_line, line
from tests.support.services import manifest

EPOCHS = 6
EPOCH_S = 10.0


class Replica:
    """A service that looks when a test says so, and leads when it says so."""

    def __init__(self, folder: Path, world: MemoryWorld) -> None:
        settings = Settings(home=folder)
        self.store = Store.open(settings.store_url)
        self.engine = open_engine(settings.store_url)
        self.history = History(self.engine)
        self.learner = Learner(self.history)
        self.elected = False
        self.service = Service(
            settings=settings,
            world=world,
            store=self.store,
            learning=RefreshingLearner(self.history, self.learner),
            report_of=self.history.report,
            policy=qos.decide,
            feedback=Feedback(self.history, self.learner),
            leads=catching_up_first(lambda: self.elected, self.learner.reload_outcomes),
        )

    def step(self) -> None:
        self.service.run_cycle()

    def version(self) -> str:
        """Of the predictor that its last cycle decided with."""
        _, predictor = self.service.last_snapshot
        return predictor.version

    def close(self) -> None:
        self.engine.dispose()
        self.store.close()


@pytest.fixture
def world() -> MemoryWorld:
    return MemoryWorld(4)


@pytest.fixture
def pair(tmp_path: Path, world: MemoryWorld) -> Iterator[tuple[Replica, Replica]]:
    made = Replica(tmp_path, world), Replica(tmp_path, world)
    yield made
    for one in made:
        one.close()


def runs(
    world: MemoryWorld,
    number: int,
    leader: Replica,
    other: Replica,
    *,
    late: float,
    clocks: Clocks,
) -> None:
    """A job from its submission to its end, `late` times later than its P50 had said.

    Its workers report to the replica that does not lead, as half of the calls do.
    """
    name = f"job-{number}"
    job_id = f"default/{name}"
    world.submit(manifest(name, epochs=EPOCHS, widths="1", epoch_estimate=f"{EPOCH_S:g}s"))
    leader.step()
    row, uid = world.row(job_id), world.job(job_id)["metadata"]["uid"]
    lines = [line(1, "formed", width=1, epoch=0)]
    lines += [
        epoch_line(n + 1, n, epoch_s=EPOCH_S + 0.1 * (n % 3), width=1, warmup=n == 1)
        for n in range(1, EPOCHS + 1)
    ]
    other.history.ingest(uid, job_id, row.workload, lines, received_at=time.time())
    world.send_epochs(job_id, 1, epoch_s=EPOCH_S)
    leader.step()
    said = predicted(leader, world.row(job_id))
    clocks.pass_time(late * said.p50_s)
    world.finished(job_id, at=time.time())
    leader.step()


def predicted(one: Replica, row: Job) -> Estimate:
    _, predictor = one.service.last_snapshot
    return predictor.remaining(row.workload, row.progress, 1)


def test_a_handover_loses_nothing_that_was_learned(
    world: MemoryWorld, pair: tuple[Replica, Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = pair
    first.elected = True
    second.step()
    clocks = Clocks(monkeypatch)
    for number in range(8):
        runs(world, number, first, second, late=1.6, clocks=clocks)
        second.step()
    first.step()
    judged = first.learner.coverage()
    assert judged
    assert second.learner.coverage() == (), "it has judged none: it did not lead"

    first.elected, second.elected = False, True
    second.step()
    assert second.service.leading
    assert second.learner.coverage() == judged
    first.step()
    assert second.version() == first.version()


class Killed(BaseException):
    """As kill -9: nothing of the service runs after it."""


def killed_before_it_tells(store: Store) -> None:
    """The service of this store ends when it would write down what it said to whom."""
    record = store.write_rows

    def dies(rows: Iterable[ServiceTable | PendingRow], jobs: Iterable[SavedView] = ()) -> None:
        given = list(rows)
        if any(isinstance(row, NewRow) for row in given):
            raise Killed
        record(given, jobs)

    store.write_rows = dies  # type: ignore[method-assign]


def said(one: Replica, job_id: str = "default/job") -> list[tuple[int, str]]:
    return [(row.cycle, row.kind) for row in one.store.latest_decisions([job_id], limit=10)]


def test_what_was_decided_last_is_told_by_the_next_service_if_it_was_killed_before(
    world: MemoryWorld, pair: tuple[Replica, Replica]
) -> None:
    first, second = pair
    first.elected = second.elected = True
    job = world.submit(manifest("job", epochs=EPOCHS, widths="1", epoch_estimate="10s"))
    killed_before_it_tells(first.store)
    with pytest.raises(Killed):
        first.step()
    assert world.row("default/job").workers == 1, "it had acted"
    assert said(second) == []

    second.step()
    cycle = second.store.last_audited_cycle()
    assert said(second) == [(cycle, "admit"), (cycle, "forecasted")]
    verdicts = verdicts_of(second.store, job["metadata"]["uid"])
    assert [(row.cycle, row.kind) for row in verdicts] == [(cycle, "forecast")]
    second.step()
    assert len(said(second)) == 2, "and told once"


def test_who_is_no_leader_any_more_does_not_tell_what_its_successor_has_told(
    world: MemoryWorld, pair: tuple[Replica, Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = pair
    first.elected = True
    first.store.claim_term("first", 1.0)
    world.submit(manifest("job", epochs=EPOCHS, widths="1", epoch_estimate="10s"))
    carry_out = world.carry_out

    def paused(plan: Plan) -> None:
        monkeypatch.setattr(world, "carry_out", carry_out)
        carry_out(plan)
        second.store.claim_term("second", 2.0)
        second.elected = True
        second.step()

    monkeypatch.setattr(world, "carry_out", paused)
    first.step()
    told = said(second)
    first.elected = False
    first.step()
    second.step()
    assert [kind for _, kind in told] == ["admit", "forecasted"]
    assert said(second) == told


def test_a_journal_that_cannot_be_read_keeps_nobody_from_leading(
    world: MemoryWorld, pair: tuple[Replica, Replica], caplog: pytest.LogCaptureFixture
) -> None:
    first, second = pair
    first.elected = second.elected = True
    world.submit(manifest("job", epochs=EPOCHS, widths="1", epoch_estimate="10s"))
    killed_before_it_tells(first.store)
    with pytest.raises(Killed):
        first.step()
    with first.store.engine.begin() as connection:
        connection.exec_driver_sql("update cycles set state = cast('{' as blob)")
    second.step()
    assert second.service.leading
    assert "what was decided last cannot be shown" in caplog.text
