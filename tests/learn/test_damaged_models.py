"""A damaged model file is refused in words; its teacher decides, and the service runs."""

import json
import logging
import os
import subprocess
import sys
import tempfile
import tokenize
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from sqlmodel import Session, select

from laxity_profiler.registry.registered_files import ModelFile, digest_of, register_file
from laxity_scheduler.array_file import read_bytes
from laxity_scheduler.chains.model_file import read_provisioner
from laxity_scheduler.learned.weights_file import MOST_BYTES, TrainedPolicy, read_policy
from laxity_scheduler.policies.registry import find
from laxity_scheduler.process.open_policies import open_policy, read_alias
from laxity_scheduler.process.serve import as_store_error
from laxity_scheduler.service.learned_models import LearnedModels, read_file
from laxity_scheduler.service.policy_in_force import PolicyInForce
from laxity_scheduler.service.settings import Settings
from laxity_scheduler.store.store import Store
from laxity_scheduler.store.tables import PolicyModelRow
from tests.learn.test_policy_in_force import save
from tests.support.builders import MINUTE_EPOCHS, cluster, job
from tests.support.damaged_models import KINDS, WHOLE, damaged, raising
from tests.support.mlflow_store import copy_store

CHAMPION = "models:/widths@champion"
QUICK = range(150)


def refusal_of(body: bytes) -> str:
    """Why the bytes are refused; "" where they can be used all the same."""
    try:
        assert isinstance(read_policy(body, "it"), TrainedPolicy)
    except ValueError as error:
        return str(error)
    return ""


def unguarded(body: bytes) -> object:
    with np.load(BytesIO(body), allow_pickle=False) as file:
        return [file[name] for name in file.files]


def fuzz(seeds: range) -> int:
    """How many of the damaged files are refused; anything but a refusal in words escapes."""
    refused = [refusal_of(damaged(seed)) for seed in seeds]
    assert all(text.startswith("it is no policy of version 1: ") for text in refused if text)
    return sum(map(bool, refused))


def test_a_few_damaged_bytes_never_escape_the_door() -> None:
    assert fuzz(QUICK) > 0.8 * len(QUICK)


@pytest.mark.soak
def test_three_thousand_damaged_files_never_escape_the_door() -> None:
    assert fuzz(range(3_000)) > 2_400


@pytest.mark.parametrize("kind", [zlib.error, tokenize.TokenError, NotImplementedError])
def test_what_the_libraries_raise_about_damage_is_refused_in_words(
    kind: type[BaseException],
) -> None:
    assert refusal_of(raising(kind, unguarded)).startswith("it is no policy of version 1: ")


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_damage_is_refused_in_one_line(kind: str) -> None:
    refusal = refusal_of(KINDS[kind]())

    assert refusal.startswith("it is no policy of version 1: ")
    assert "\n" not in refusal
    assert len(refusal) < 400


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_provisioner_is_refused_by_the_same_door(kind: str) -> None:
    with pytest.raises(ValueError, match="no provisioner of version 1"):
        read_provisioner(KINDS[kind](), "it")


def test_what_is_no_file_is_refused_without_being_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")  # opened, it would wait for ever
    (tmp_path / "huge").touch()
    os.truncate(tmp_path / "huge", 1 << 40)

    for name, why in ((".", "no file"), ("pipe", "no file"), ("huge", f"at most {MOST_BYTES}")):
        assert why in read_file("it", tmp_path / name).refusal
        with pytest.raises(ValueError, match=why):
            read_bytes(tmp_path / name, most_bytes=MOST_BYTES)


def test_a_policy_by_a_damaged_file_decides_as_its_teacher(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "deep.npz"
    path.write_bytes(KINDS["a header as deep as a stack"]())
    state = cluster(gpus=[4], jobs=[job("a", workers=(1, 2, 4))])

    plan = find(f"learned:{path}").policy()(state, MINUTE_EPOCHS)

    assert plan.decisions
    assert "optimus decides in place of learned" in caplog.text


# --- what is registered in MLflow ---


class Registry:
    """An MLflow store in a folder of its own, and a service's store beside it."""

    def __init__(self, folder: Path, blank: Path) -> None:
        self.folder = folder
        (folder / "registry").mkdir(parents=True)
        self.uri = copy_store(blank, folder / "registry")
        self.settings = Settings(home=folder / "home", policy=CHAMPION, tracking_uri=self.uri)
        self.settings.home.mkdir()
        self.store = Store.open(self.settings.store_url)

    def add(self, body: bytes, name: str = "widths") -> str:
        path = self.folder / "weights.npz"
        path.write_bytes(body)
        return register_file(self.uri, ModelFile(name, path, "A policy.")).version

    def start(self) -> PolicyInForce:
        """What a service opens at its start, and its first cycle."""
        with as_store_error(self.settings):
            policies = open_policy(self.settings, self.store)
        policies.begin_cycle()
        return policies

    def kept(self) -> list[bytes]:
        return self.store.load_policy_models("models:/widths/1")

    def artifact(self) -> Path:
        return next((self.folder / "registry").rglob("weights.npz"))


@pytest.fixture
def registry(tmp_path: Path, blank_mlflow: Path) -> Iterator[Registry]:
    made = Registry(tmp_path, blank_mlflow)
    yield made
    made.store.close()


@contextmanager
def no_folders_left() -> Iterator[None]:
    before = set(Path(tempfile.gettempdir()).glob("laxity-model-*"))
    yield
    assert set(Path(tempfile.gettempdir()).glob("laxity-model-*")) <= before


@pytest.mark.slow
def test_a_service_starts_with_each_kind_of_damaged_champion(
    tmp_path: Path, blank_mlflow: Path
) -> None:
    registry = Registry(tmp_path, blank_mlflow)
    for number, kind in enumerate(KINDS, 1):
        version = registry.add(KINDS[kind]())
        with no_folders_left():
            policies = registry.start()
        assert version == str(number), kind
        assert policies.name == "optimus_with_promises", kind
        assert policies.fallback, kind
        assert registry.kept() == [], kind
    registry.store.close()


@pytest.mark.slow
def test_a_running_service_hands_over_to_the_teacher_and_takes_the_next_good_one(
    registry: Registry, caplog: pytest.LogCaptureFixture
) -> None:
    registry.add(WHOLE)
    policies = registry.start()
    names = [policies.name]
    for body in (KINDS["an encrypted flag"](), KINDS["trained on a list"](), WHOLE[:-1] + b"!"):
        registry.add(body)
        with caplog.at_level(logging.WARNING), no_folders_left():
            read_alias(registry.settings, policies, registry.store)
        policies.begin_cycle()
        names.append(policies.name)
    registry.add(save(registry.folder / "good.npz", lazy=False).read_bytes())
    read_alias(registry.settings, policies, registry.store)
    policies.begin_cycle()
    names.append(policies.name)

    assert names[0] == "models:/widths/1"
    assert names[1:3] == ["optimus_with_promises"] * 2
    assert names[-1] == "models:/widths/5"
    assert "is encrypted" in caplog.text


@pytest.mark.slow
def test_a_file_that_is_not_what_was_registered_is_refused_by_its_digest(
    registry: Registry,
) -> None:
    registry.add(WHOLE)
    other = save(registry.folder / "other.npz", lazy=True)
    registry.artifact().write_bytes(other.read_bytes())

    policies = registry.start()

    assert policies.name == "optimus_with_promises"
    assert "models:/widths/1 is damaged: its digest is" in policies.fallback
    assert registry.kept() == []


@pytest.mark.slow
def test_a_version_with_no_or_several_files_is_refused(registry: Registry) -> None:
    registry.add(WHOLE)
    registry.artifact().with_name("second.npz").write_bytes(WHOLE)

    policies = registry.start()

    assert "holds 2 files; expected 1" in policies.fallback


@pytest.mark.slow
def test_a_kept_file_that_the_disk_damages_is_fetched_anew(registry: Registry) -> None:
    registry.add(WHOLE)
    registry.start()
    with registry.store.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE policy_models SET body = ?", (damaged(1),))

    policies = registry.start()

    assert policies.name == "models:/widths/1"
    assert registry.kept() == [WHOLE]


@pytest.mark.slow
def test_two_mlflows_with_one_name_and_number_are_kept_apart(
    tmp_path: Path, blank_mlflow: Path
) -> None:
    first, second = (Registry(tmp_path / name, blank_mlflow) for name in ("one", "two"))
    bodies = [save(tmp_path / f"{n}.npz", lazy=bool(n)).read_bytes() for n in (0, 1)]
    for each, body in zip((first, second), bodies, strict=True):
        each.add(body)
    models = [LearnedModels(each.uri, first.store) for each in (first, second)]

    for _ in range(2):  # fetched, then kept
        digests = [model.digest for each in models if (model := each.read(CHAMPION)) is not None]
        assert digests == [digest_of(body) for body in bodies]
    with pytest.raises(ValueError, match="from several MLflows, and the files differ"):
        LearnedModels("", first.store, any_origin=True).find_policy("models:/widths/1")
    for each in (first, second):
        each.store.close()


@pytest.mark.slow
def test_an_mlflow_that_began_anew_at_its_address_is_not_taken_for_the_one_before(
    registry: Registry, tmp_path: Path
) -> None:
    registry.add(WHOLE)
    registry.start()
    earlier = save(tmp_path / "earlier.npz", lazy=True).read_bytes()
    with registry.store.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE policy_models SET body = ?", (earlier,))

    policies = registry.start()

    assert policies.model is not None
    assert (policies.name, policies.model.digest) == ("models:/widths/1", digest_of(WHOLE))
    assert registry.kept() == [WHOLE]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_laxity_up_serves_with_a_damaged_champion(registry: Registry) -> None:
    registry.add(raising(tokenize.TokenError, unguarded))
    registry.store.close()
    home = registry.folder / "real"
    options = ["--policy", CHAMPION, "--slots", "1"]
    environ = os.environ | {"LAXITY_HOME": str(home), "MLFLOW_TRACKING_URI": registry.uri}
    run = partial(subprocess.run, env=environ, capture_output=True, text=True, check=False)
    command = [sys.executable, "-P", "-m", "laxity.cli.main"]
    try:
        up = run([*command, "up", "--port", "0", *options])
        told = json.loads(run([*command, "cluster", "--json"]).stdout)
    finally:
        run([*command, "down"])

    assert up.returncode == 0, up.stdout + up.stderr
    assert told["policy"] == "optimus_with_promises"
    assert "models:/widths/1 is no policy of version 1" in told["learned"]["fallback"]
    log = (home / "service.log").read_text()
    assert "Traceback" not in log
    assert "move it aside" not in log
    with Session(Store.open(f"sqlite:///{home}/laxity.db").engine) as session:
        assert not session.exec(select(PolicyModelRow)).all()
