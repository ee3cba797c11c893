"""A journal that was damaged, or written by another laxity, is told in words and never believed."""

import json
import random
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from laxity_k8s.objects import jobs
from laxity_scheduler.process.serve import as_store_error
from laxity_scheduler.process.start import open_service
from laxity_scheduler.service.settings import Settings
from laxity_scheduler.store.store import Store, StoreError
from tests.support.breaking import breaking
from tests.support.command_line import CommandLine
from tests.support.journal import lived, load
from tests.support.manifests import job
from tests.support.runs import epoch_line, history_in, workload

SEEDS = range(30)
GARBAGE = (None, "", "x", -1, 10**18, 0.5, b"", b"{", b"[]", b"7", b"\xff", b'{"now":"x"}')
COLUMNS = (
    ("cycles", "cycle"), ("cycles", "at"), ("cycles", "policy"), ("cycles", "predictor"),
    ("cycles", "full"), ("cycles", "state"), ("cycles", "plan"), ("cycles", "version"),
    ("predictors", "version"), ("predictors", "body"), ("laxity_schema", "version_num"),
)  # fmt: skip


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("journal") / "laxity.db"
    store = Store.open(f"sqlite:///{path}")
    lived(store)
    store.close()
    return path


@pytest.fixture
def copy(journal: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("laxity_scheduler.process.replay_report.load_predictor", load)
    return Path(shutil.copy(journal, tmp_path / "laxity.db"))


def change(path: Path, statement: str, *values: object) -> None:
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(statement, values)
    connection.close()


def damage_a_value(path: Path, rng: random.Random) -> None:
    table, column = rng.choice(COLUMNS)
    connection = sqlite3.connect(path)
    rows = connection.execute(f"SELECT rowid, {column} FROM {table}").fetchall()  # noqa: S608
    connection.close()
    row, was = rng.choice(rows)
    half = was[: len(was) // 2] if isinstance(was, str | bytes) else None
    value = half if rng.random() < 0.3 else rng.choice(GARBAGE)
    change(path, f"UPDATE OR IGNORE {table} SET {column} = ? WHERE rowid = ?", value, row)  # noqa: S608


def damage_bytes(path: Path, rng: random.Random) -> None:
    content = bytearray(path.read_bytes())
    for _ in range(rng.choice((1, 10, 200))):
        content[rng.randrange(len(content))] = rng.randrange(256)
    path.write_bytes(content[: rng.choice((len(content), len(content) // 2))])


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("damage", [damage_a_value, damage_bytes])
def test_replay_of_a_damaged_journal_ends_in_words(
    damage: Any, seed: int, copy: Path, laxity: CommandLine
) -> None:
    damage(copy, random.Random(seed))

    code = laxity("replay", "--store", f"sqlite:///{copy}")

    out, err = laxity.read_output()
    assert code in (0, 1)
    assert ("cycle" in out) if not err else err.startswith("error: ")


def test_a_damaged_cycle_is_named(copy: Path, laxity: CommandLine) -> None:
    change(copy, "UPDATE cycles SET state = ? WHERE cycle = 9", b"{")

    assert laxity("replay", "--store", f"sqlite:///{copy}") == 1
    assert "error: cycle 9 is damaged in the journal: JSONDecodeError" in laxity.read_errors()


def forge_plans(path: Path, version: str) -> None:
    """All plans from the ninth on are empty, and another laxity made them."""
    statement = "UPDATE cycles SET plan = ?, version = ? WHERE cycle > 8 AND length(plan) > 90"
    change(path, statement, b"{}", version)


@pytest.mark.parametrize(
    ("version", "words"),
    [
        pytest.param("0.0.9", "was decided by laxity 0.0.9", id="another version"),
        pytest.param("", "was decided by an older laxity", id="none written down"),
    ],
)
def test_a_plan_of_another_laxity_that_comes_out_otherwise_is_no_failure(
    version: str, words: str, copy: Path, laxity: CommandLine
) -> None:
    forge_plans(copy, version)

    assert laxity("replay", "--store", f"sqlite:///{copy}") == 0
    out = laxity.read()
    assert words in out
    assert "differs" not in out


def test_json_says_which_laxity_decided_what_comes_out_otherwise(
    copy: Path, laxity: CommandLine
) -> None:
    forge_plans(copy, "0.0.9")

    assert laxity("replay", "--store", f"sqlite:///{copy}", "--json") == 0
    assert {one["version"] for one in json.loads(laxity.read())["different"]} == {"0.0.9"}


@pytest.mark.parametrize(
    ("statement", "values", "words"),
    [
        pytest.param(
            "UPDATE laxity_schema SET version_num = ?", ("9999",), "a newer one", id="newer"
        ),
        pytest.param("DROP TABLE cycles", (), "no such table: cycles", id="no journal"),
    ],
)
def test_a_service_on_a_store_that_it_cannot_read_says_so(
    statement: str, values: tuple[object, ...], words: str, copy: Path
) -> None:
    change(copy, statement, *values)
    settings = Settings(home=copy.parent, tracking_uri="none", slots=1)

    with (
        pytest.raises(StoreError, match=words),
        as_store_error(settings),
        open_service(settings, url="http://127.0.0.1:9", worker_token=str),
    ):
        pass


@pytest.mark.parametrize("view", [b"{", b"[]"], ids=["half a view", "a list"])
def test_a_stored_view_that_cannot_be_read_is_left_out(view: bytes, copy: Path) -> None:
    change(copy, "INSERT INTO jobs VALUES (?, 'a', 'd', 'queued', '', 1.0, NULL, ?)", "u", view)
    settings = Settings(home=copy.parent, tracking_uri="none", slots=1)
    with (
        as_store_error(settings),
        open_service(settings, url="http://127.0.0.1:9", worker_token=str) as parts,
    ):
        assert "u" not in {shown["uid"] for shown in parts.service.view_cache.all()}


def test_what_world_and_history_keep_from_other_jobs_is_counted_by_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = history_in(tmp_path)
    history.ingest("u", "default/a", workload(), [epoch_line(1, 1)])
    history.engine.dispose()
    change(tmp_path / "laxity.db", "UPDATE observed_runs SET said = '{'")
    settings = Settings(home=tmp_path, tracking_uri="none", slots=1)
    with open_service(settings, url="http://127.0.0.1:9", worker_token=str) as parts:
        assert parts.service.report_of("u").progress.epochs_done == 0
        breaking(monkeypatch)(jobs, "job_row")
        parts.service.world.submit(job("bad"))
        parts.service.world.observe()
        metrics = parts.service.metrics.exposition().decode()
    for stage in ("stored report", "observation"):
        assert f'laxity_job_errors_total{{stage="{stage}"}} 1.0' in metrics


def test_a_service_on_a_file_that_is_no_database_says_so(tmp_path: Path) -> None:
    (tmp_path / "laxity.db").write_bytes(b"not SQLite" * 1000)
    settings = Settings(home=tmp_path, tracking_uri="none", slots=1)

    with (
        pytest.raises(StoreError, match="cannot be opened: file is not a database"),
        as_store_error(settings),
        open_service(settings, url="http://127.0.0.1:9", worker_token=str),
    ):
        pass
