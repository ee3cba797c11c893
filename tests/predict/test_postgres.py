"""The profiler's memory on PostgreSQL is the same as on SQLite, also for several replicas at once."""

import multiprocessing
import threading
from collections.abc import Iterator
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from laxity_profiler.estimate import Estimate
from laxity_profiler.history import history_database
from laxity_profiler.history.history import Epoch, History, HistoryError
from laxity_profiler.history.store_lease import LeaseHeldError, hold_lease
from laxity_profiler.learning.learner import Learner
from laxity_scheduler.store.store import Store
from tests.support.runs import LATER_AT, epoch_line, history_in, line, trained, workload

pytestmark = pytest.mark.slow


@pytest.fixture
def history(postgres_url: str) -> Iterator[History]:
    """A history on an emptied database."""
    engine = history_database.open_engine(postgres_url)
    history_database.HistoryTable.metadata.drop_all(engine)
    yield History(engine)
    engine.dispose()


def fill(history: History) -> None:
    """Runs of two models, stops, nonsense, and a prediction that met the truth."""
    for run in range(4):
        trained(history, f"a{run}", "mlp", epoch_s=[2.0 + 0.1 * run] * 6, width=1 + run % 2)
    trained(history, "b", "cnn", epoch_s=[9.0, 8.0, 8.5], batch_size=64, samples=900)
    what = workload("mlp", epochs=6)
    bad = [epoch_line(20, 3, epoch_s="soon"), {"seq": 21, "kind": "epoch"}, "no line\0at all"]
    history.ingest("a0", "default/a0", what, bad, received_at=LATER_AT)
    history.observe_stop("a0", what, kind="suspend", workers=2, seconds=3.5, at=5.0, size_bytes=7)
    history.observe_stop("a0", what, kind="suspend", workers=2, seconds=3.5, at=5.0, size_bytes=7)
    learner = Learner(history)
    said = Estimate(1.0, 2.0, 2.1, 3.0, "history", 4)
    learner.note_prediction("a0", what, stage="start", at=10.0, estimate=said, version="v")
    learner.observe_finish("a0", at=12.5)


def test_the_same_reports_come_to_the_same_predictor(history: History, tmp_path: Path) -> None:
    other = history_in(tmp_path)
    for one in (history, other):
        fill(one)

    assert Learner(history).predictor().version == Learner(other).predictor().version
    assert Learner(history).coverage() == Learner(other).coverage()
    assert history.stops() == other.stops()
    assert [run.epochs for run in history.epochs("mlp")] == [
        run.epochs for run in other.epochs("mlp")
    ]
    assert [row[:3] for row in history.rejections()] == [row[:3] for row in other.rejections()]
    assert history.report("a0") == other.report("a0")
    other.engine.dispose()


def test_a_restart_goes_on_where_the_first_left_off(history: History, postgres_url: str) -> None:
    fill(history)

    again = History(history_database.open_engine(postgres_url))

    assert again.report("a0").progress == history.report("a0").progress
    assert again.news(epochs_after=0, stops_after=0) == history.news(epochs_after=0, stops_after=0)
    again.engine.dispose()


def test_replicas_that_are_told_the_same_at_once_count_it_once(
    history: History, postgres_url: str
) -> None:
    others = [History(history_database.open_engine(postgres_url)) for _ in range(4)]
    what = workload(epochs=50)
    lines = [line(1, "formed", width=2, epoch=0)]
    lines += [epoch_line(n + 1, n) for n in range(1, 41)]
    failed: list[BaseException] = []

    def tell(one: History) -> None:
        try:
            for first in range(0, len(lines), 4):
                one.ingest("u", "default/u", what, lines[first : first + 8])
        except HistoryError as error:
            failed.append(error)

    threads = [threading.Thread(target=tell, args=(one,)) for one in others]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failed == []
    (run,) = history.epochs("mlp")
    assert [epoch.epoch for epoch in run.epochs] == list(range(1, 41))
    assert history.rejections("u") == []
    for one in others:
        one.engine.dispose()


def test_epochs_from_mlflow_join_those_that_were_reported(history: History) -> None:
    history.ingest("u", "default/u", workload(), [epoch_line(1, 1, epoch_s=5.0)])

    for _ in range(2):
        history.add_epochs("u", "default/u", workload(), [Epoch(1, 2, 9.0), Epoch(2, 2, 6.0)])

    (run,) = history.epochs("mlp")
    assert [epoch.epoch_s for epoch in run.epochs] == [5.0, 6.0]


def test_replicas_that_open_a_new_store_at_once_make_its_tables_once(
    history: History, postgres_url: str
) -> None:
    history_database.HistoryTable.metadata.drop_all(history.engine)
    gate = threading.Barrier(4)
    opened: list[History] = []

    def opens() -> None:
        gate.wait(30)
        opened.append(History(history_database.open_engine(postgres_url)))

    threads = [threading.Thread(target=opens) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert len(opened) == 4
    opened[0].add_epochs("v", "default/v", workload(), [Epoch(1, 2, 9.0, nodes=2)])
    runs = opened[1].epochs("mlp")
    assert {run.uid: run.epochs[0].nodes for run in runs} == {"v": 2}
    for one in opened:
        one.engine.dispose()


def test_of_many_that_want_the_lease_one_gets_it(history: History, postgres_url: str) -> None:
    engines = [history_database.open_engine(postgres_url) for _ in range(6)]
    gate, let_go = threading.Barrier(6), threading.Event()
    got: list[str] = []

    def want(engine: object) -> None:
        gate.wait()
        try:
            with hold_lease(engine, "exam") as lease:  # type: ignore[arg-type]
                got.append(lease.position)
                let_go.wait(60.0)
        except LeaseHeldError:
            got.append("")
            if got.count("") == 5:
                let_go.set()

    threads = [threading.Thread(target=want, args=(engine,)) for engine in engines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert got.count("") == 5
    with hold_lease(history.engine, "exam"):
        pass
    for engine in engines:
        engine.dispose()


def test_a_database_that_is_away_is_an_error_of_the_history() -> None:
    with pytest.raises(HistoryError, match=r"the history at postgresql.*did not do it"):
        history_database.open_engine("postgresql://laxity@127.0.0.1:1/postgres")


STARTS = 20


def open_all(addresses: list[str], both: Barrier, ends: "SimpleQueue[str]") -> None:
    """A replica that opens its stores, as the other one does at the same moment."""
    for address in addresses:
        both.wait(60.0)
        try:
            Store.open(address).close()
            history_database.open_engine(address).dispose()
        except Exception as error:  # noqa: BLE001 - told to the test
            ends.put(f"{type(error).__name__}: {error}")
        else:
            ends.put("")


@pytest.mark.timeout(180)
def test_two_replicas_start_at_once_on_an_empty_database(postgres_url: str) -> None:
    engine = create_engine(postgres_url.replace("postgresql:", "postgresql+psycopg:"))
    names = [f"fresh{number}" for number in range(STARTS)]
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for name in names:
            connection.execute(text(f"create database {name}"))
    engine.dispose()
    spawn = multiprocessing.get_context("spawn")
    ends, both = spawn.SimpleQueue(), spawn.Barrier(2)
    addresses = [postgres_url.rpartition("/")[0] + f"/{name}" for name in names]
    replicas = [spawn.Process(target=open_all, args=(addresses, both, ends)) for _ in range(2)]
    for replica in replicas:
        replica.start()
    found = [ends.get() for _ in range(2 * STARTS)]
    for replica in replicas:
        replica.join(60.0)
    assert found == [""] * 2 * STARTS


def test_a_history_opens_while_another_replica_leads(postgres_url: str) -> None:
    leader = Store.open(postgres_url)
    assert leader.try_lead()
    opened = threading.Event()

    def open_history() -> None:
        history_database.open_engine(postgres_url).dispose()
        opened.set()

    threading.Thread(target=open_history, daemon=True).start()
    in_time = opened.wait(30.0)
    leader.close()
    assert in_time
