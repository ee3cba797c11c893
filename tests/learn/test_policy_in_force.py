"""A learned policy in a running service: put in force, caught when it is bad, and remembered as such."""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from laxity_scheduler.learned.job_features import FEATURES
from laxity_scheduler.learned.scoring_net import ScoringNet
from laxity_scheduler.learned.weights_file import TrainedPolicy, save_policy
from laxity_scheduler.process.open_policies import open_policy
from laxity_scheduler.service import reward_guard
from laxity_scheduler.service.settings import Settings
from laxity_scheduler.store.store import Store
from tests.support.builders import Curve
from tests.support.memory_world import MemoryWorld
from tests.support.services import Stage, staged, wait_until

STOP = np.array([[9.0 if name == "stop" else 0.0] for name in FEATURES])
SHORT_EPOCHS = Curve(epoch_s=0.05)


def save(path: Path, *, lazy: bool, teacher: str = "optimus") -> Path:
    """Weights that never widen a job, or always."""
    net = ScoringNet((STOP if lazy else -STOP,), (np.zeros(1),))
    save_policy(TrainedPolicy(net, {"teacher": teacher}), path)
    return path


@contextmanager
def served(home: Path, weights: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """A service that decides by these weights; its slots last as long as its epochs."""
    monkeypatch.setattr(reward_guard, "SHORTEST_SLOT_S", 0.01)
    settings = Settings(home=home, policy=f"learned:{weights}")
    store = Store.open(settings.store_url)
    in_force = open_policy(settings, store)
    try:
        with staged(
            home, MemoryWorld(4, 4), policy=in_force, predictor=SHORT_EPOCHS,
            longest_sleep_s=0.01,
        ) as stage:  # fmt: skip
            yield stage
    finally:
        store.close()


def test_a_bad_model_that_was_put_in_force_is_caught_told_and_stays_out_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    weights = save(tmp_path / "bad.npz", lazy=True)
    with served(tmp_path, weights, monkeypatch) as stage, caplog.at_level(logging.WARNING):
        stage.submit("a", epochs=100_000)
        stage.submit("b", epochs=100_000)
        wait_until(lambda: stage.service.policies.fallback != "", "the fallback")
        wait_until(lambda: stage.world.row("default/b").workers == 4, "the teacher to widen it")
        began_as = stage.http.get("/v1/jobs/default/a").json()["width_history"][0][1]
        first_cycle = next(iter(stage.service.store.iter_cycles(0)))
        assert (began_as, first_cycle.policy) == (1, f"learned:{weights}")
        cluster = stage.http.get("/v1/cluster").json()
        assert cluster["policy"] == "optimus_with_promises"
        assert cluster["learned"]["learned"] == f"learned:{weights}"
        assert "its measured reward was" in cluster["learned"]["fallback"]
        metrics = stage.http.get("/metrics").text
        assert "laxity_policy_fallback 1.0" in metrics
        wait_until(
            lambda: (
                "optimus_with_promises"
                in json.dumps(stage.http.get("/v1/jobs/default/b/explain").json()["chain"])
            ),
            "its decision in the explanation",
        )
    told = [text for text in caplog.messages if "optimus_with_promises decides in place" in text]
    assert len(told) == 1
    with served(tmp_path, weights, monkeypatch) as stage:
        assert stage.service.policies.name == "optimus_with_promises"
        assert "its measured reward was" in stage.service.policies.fallback
    better = save(tmp_path / "better.npz", lazy=False)
    with served(tmp_path, better, monkeypatch) as stage:
        assert stage.service.policies.name == f"learned:{better}"
        assert stage.service.policies.fallback == ""


def test_where_its_file_is_refused_the_teacher_decides_by_its_own_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged = save(tmp_path / "damaged.npz", lazy=False)
    damaged.write_bytes(damaged.read_bytes()[:300])
    with served(tmp_path, damaged, monkeypatch) as stage:
        cluster = stage.http.get("/v1/cluster").json()
        assert cluster["policy"] == "optimus_with_promises"
        assert "is no policy of version 1" in cluster["learned"]["fallback"]


def test_a_comparison_that_raises_harms_no_decision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> object:
        raise ArithmeticError("a fault of the guard")

    monkeypatch.setattr(reward_guard, "read_paces", broken)
    with served(tmp_path, save(tmp_path / "w.npz", lazy=False), monkeypatch) as stage:
        stage.submit("a", epochs=100_000)
        wait_until(lambda: stage.world.row("default/a").workers == 4, "it is widened all the same")
        failed = 'laxity_cycles_failed_total{cause="part"}'
        wait_until(lambda: failed in stage.http.get("/metrics").text, "the fault counted")
        assert stage.service.failure == ""
