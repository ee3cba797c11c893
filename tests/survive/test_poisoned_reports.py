"""A thousand poisoned reports, step by step: every cycle goes well, and no honest job waits longer."""

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from laxity.api.report_lines import REPORT_KINDS
from laxity_profiler.history.history import History
from laxity_profiler.history.history_database import open_engine
from laxity_profiler.history.report_values import LONGEST_S, SHORTEST_S
from laxity_profiler.learning.learner import Learner
from laxity_scheduler.http.job_service import JobService
from laxity_scheduler.model.reasons import Reason, reason
from laxity_scheduler.notifications.dispatcher import Dispatcher
from laxity_scheduler.policies import qos
from laxity_scheduler.service.feedback import Feedback
from laxity_scheduler.service.loop import Service
from laxity_scheduler.service.settings import Settings
from laxity_scheduler.store.store import Store
from tests.support.memory_world import MemoryWorld
from tests.support.services import manifest

Json = dict[str, Any]
CYCLES = 14
HONEST = [f"honest-{number}" for number in range(10)]
POISONED = [f"poisoned-{number}" for number in range(8)]
REPORTS = 1_000


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


VALUES: list[Any] = [
    None, True, 0, -1, 1, 2, 8, 4096, 4097, 2**31, 2**53, 2**53 + 1, 2**63, 2**64, 10**400, -(2**70),
    0.5, SHORTEST_S, LONGEST_S, 1e8, 1e300, -1e300, float("nan"), float("inf"), float("-inf"), -0.0,
    "", "7", "²", "9" * 5_000, "half \ud800 of one", "nul \0", "x" * 20_000, "\x1b[2J",
    [], [1, 2, 3], [2.0, 1.0], ["²"], deep(300), {}, {"a": 2**64}, {"b": "\udfff"}, {"c": deep(260)},
]  # fmt: skip
FIELDS = (
    "at", "epoch", "epoch_s", "width", "bytes", "warmup", "metrics", "nodes", "load_s", "save_s",
    "read_s", "read_bytes", "by", "file_bytes", "storage_bytes", "error", "result",
)  # fmt: skip


def poison(chance: random.Random, seq: int, now: float) -> Any:
    """A line of which some fields are sound and the others are not."""
    if chance.random() < 0.05:
        return chance.choice(VALUES)
    sound = {
        "at": now, "epoch": seq, "epoch_s": 1.0, "width": 1, "bytes": 10, "warmup": False,
        "metrics": {"loss": 0.5}, "load_s": 0.1, "save_s": 0.1, "read_s": [1.0, 2.0],
        "read_bytes": [10, 20], "file_bytes": 100, "result": {"loss": 0.5}, "error": "it broke",
    }  # fmt: skip
    line: Json = {"seq": seq, "kind": chance.choice(sorted(REPORT_KINDS)), **sound}
    for name in chance.sample(FIELDS, chance.randint(1, 4)):
        line[name] = chance.choice(VALUES)
    if chance.random() < 0.1:
        line["kind"] = chance.choice(VALUES)
    if chance.random() < 0.05:
        line["seq"] = chance.choice(VALUES)
    return line


@contextmanager
def stepped(home: Path, world: MemoryWorld) -> Iterator[tuple[Service, JobService]]:
    """A service whose cycles a test makes one by one, which learns and tells as a real one."""
    given = Settings(home=home, least_interval_s=0.0)
    store, engine = Store.open(given.store_url), open_engine(given.store_url)
    history = History(engine)
    learner = Learner(history)
    service = Service(
        settings=given,
        world=world,
        store=store,
        learning=learner,
        report_of=history.report,
        policy=qos.decide,
        feedback=Feedback(history, learner),
    )
    service.notifications = Dispatcher(service.view_cache, service.metrics, (), service.store)
    yield service, JobService(service, history)
    engine.dispose()
    store.close()


def ask(desk: JobService, name: str, *, epochs: int = 10, deadline: str | None = None) -> None:
    asked = manifest(
        name, widths="1", epoch_estimate="1s", epochs=epochs, deadline=deadline, model=name
    )
    desk.submit_job(asked)


def hand_in(desk: JobService, job_id: str, lines: Sequence[object]) -> int:
    return desk.workers.ingest_reports(job_id, desk.views.view_of(job_id)["uid"], lines)


def report_poison(desk: JobService, chance: random.Random, cycle: int, now: float) -> None:
    """This cycle's share of the reports: each job's in one call."""
    share = -(-REPORTS // CYCLES // len(POISONED)) + 1
    for name in POISONED:
        first = cycle * share + 1
        lines = [poison(chance, seq, now) for seq in range(first, first + share)]
        hand_in(desk, f"default/{name}", lines)


def started_in(home: Path, *, is_poisoned: bool) -> dict[str, int]:
    """The cycle in which each honest job started, one being submitted before each of the first."""
    chance, world = random.Random(7), MemoryWorld(8, 8, 8)
    started: dict[str, int] = {}
    with stepped(home, world) as (service, desk):
        for name in POISONED:
            ask(desk, name, epochs=1_000_000)
        assert service.try_cycle()
        for cycle in range(CYCLES):
            if cycle < len(HONEST):
                ask(desk, HONEST[cycle], deadline="1h")
            if is_poisoned:
                report_poison(desk, chance, cycle, service.last_snapshot[0].now)
            if cycle == CYCLES - 2:
                for name in POISONED[:4]:
                    world.finished(f"default/{name}", failed=name == POISONED[0])
            assert service.try_cycle(), service.failure
            listed = {view["id"]: view for view in desk.views.list_views(lambda _namespace: True)}
            orjson.dumps(listed)
            running = [name for name in HONEST if listed.get(f"default/{name}", {}).get("workers")]
            started |= {name: cycle for name in running if name not in started}
        assert not service.view_cache.rows_to_save()
        ends = [listed[f"default/{name}"]["state"] for name in POISONED[:4]]
        assert ends == ["failed", "finished", "finished", "finished"]
        assert {listed[f"default/{name}"]["verdict"] for name in HONEST} == {"promised"}
    return started


def test_a_thousand_poisoned_reports_delay_no_honest_job(tmp_path: Path) -> None:
    without = started_in(tmp_path / "without", is_poisoned=False)
    beside = started_in(tmp_path / "beside", is_poisoned=True)
    assert set(without) == set(HONEST)
    assert {name: beside[name] - without[name] for name in HONEST} == dict.fromkeys(HONEST, 0)


def test_no_json_value_anywhere_in_a_line_raises(tmp_path: Path) -> None:
    world = MemoryWorld(1)
    with stepped(tmp_path, world) as (service, desk):
        desk.submit_job(manifest("a", widths="1", epoch_estimate="1s"))
        assert service.try_cycle()
        now, seq = service.last_snapshot[0].now, 0
        for kind in sorted(REPORT_KINDS):
            for field in ("seq", "kind", *FIELDS):
                lines = []
                for value in VALUES:
                    seq += 1
                    lines.append({"seq": seq, "kind": kind, "at": now, field: value})
                hand_in(desk, "default/a", lines)
        assert service.try_cycle(), service.failure
        orjson.dumps(desk.views.list_views(lambda _namespace: True))


@pytest.mark.parametrize(
    ("estimate", "lines"),
    [
        pytest.param("300s", False, id="by an estimate of ten years"),
        pytest.param("1s", True, id="by what its worker reports"),
    ],
)
def test_a_finish_beyond_the_calendar_reads_never_and_harms_nobody(
    tmp_path: Path, estimate: str, *, lines: bool
) -> None:
    world = MemoryWorld(2)
    with stepped(tmp_path, world) as (service, desk):
        asked = manifest("endless", widths="1", epochs=1_000_000, epoch_estimate=estimate)
        desk.submit_job(asked)
        assert service.try_cycle()
        now = service.last_snapshot[0].now
        if lines:
            told = [
                {
                    "seq": seq, "kind": "epoch", "at": now, "epoch": seq, "epoch_s": LONGEST_S,
                    "width": 1, "bytes": 0, "warmup": False,
                }
                for seq in (1, 2, 3)
            ]  # fmt: skip
            hand_in(desk, "default/endless", told)
            world.send_epochs("default/endless", 3, epoch_s=LONGEST_S)
        assert service.try_cycle(), service.failure
        ask(desk, "a", deadline="1h")
        assert service.try_cycle(), service.failure
        assert service.try_cycle(), service.failure
        views = {view["id"]: view for view in desk.views.list_views(lambda _namespace: True)}
        chain = desk.views.explain_job("default/endless")
    assert views["default/a"]["workers"] == 1
    assert views["default/endless"]["workers"] == 1
    assert chain["job"]["id"] == "default/endless"
    if lines:
        assert views["default/endless"]["p90_at"] > 253_402_300_799.0


def test_a_result_that_no_writer_takes_is_set_aside_in_words(tmp_path: Path) -> None:
    world = MemoryWorld(1)
    with stepped(tmp_path, world) as (service, desk):
        desk.submit_job(manifest("a", widths="1", epoch_estimate="1s"))
        assert service.try_cycle()
        line = {"seq": 1, "kind": "finished", "at": 1.0, "result": {"seed": 2**64}}
        assert hand_in(desk, "default/a", [line]) == 1
        world.finished("default/a")
        assert service.try_cycle()
        view = desk.views.view_of("default/a")
    assert (view["state"], view["outcome"], view["result"]) == ("finished", "finished", None)
    assert view["error"] == "its result is no JSON that can be kept: Integer exceeds 64-bit range"


def test_an_error_text_is_kept_without_what_no_writer_takes(tmp_path: Path) -> None:
    world = MemoryWorld(1)
    with stepped(tmp_path, world) as (service, desk):
        desk.submit_job(manifest("a", widths="1", epoch_estimate="1s"))
        assert service.try_cycle()
        line = {"seq": 1, "kind": "failed", "at": 1.0, "error": "half \ud800 of one \0"}
        hand_in(desk, "default/a", [line])
        assert service.try_cycle()
        view = desk.views.view_of("default/a")
    assert view["error"] == "half ? of one \ufffd"


class Typo(MemoryWorld):
    """A world whose only Job goes on by what it declared before, while its user has made a slip."""

    wrong: Reason | None = None

    def find_left_out(self) -> Mapping[str, Reason]:
        return {} if self.wrong is None else {"default/a": self.wrong}


def test_what_was_wrong_with_a_job_is_no_reason_once_it_is_mended(tmp_path: Path) -> None:
    world = Typo(1)
    with stepped(tmp_path, world) as (service, desk):
        desk.submit_job(manifest("a", widths="1", epoch_estimate="1s", deadline="1h"))
        assert service.try_cycle()
        for wrong in (reason("invalid", problem="widths: 'abc'"), None):
            world.wrong = wrong
            world.annotate("default/a", {"example.com/touched": str(wrong)})
            assert service.try_cycle()
            view = desk.views.view_of("default/a")
            assert (view["reason"] == "widths: 'abc'") is (wrong is not None)
    assert view["reason_code"] != "invalid"
    assert view["reason"]
