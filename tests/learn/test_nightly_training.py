"""The CronJob that trains the learned policy on: its own command, in the environment that it declares."""

import json
import os
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest
import yaml

from laxity_profiler.registry.registered_files import list_versions
from laxity_scheduler.learned.weights_file import SHIPPED
from tests.learn.test_journal_training import decided_by
from tests.predict.test_own_epochs import learned
from tests.support.policy_registry import add, make_registry, store_of
from tests.support.processes import run_command

pytestmark = [pytest.mark.slow]
CRONJOB = Path(__file__).parents[2] / "k8s" / "manifests" / "learning" / "cronjob.yaml"
EPOCHS_S = {1: [[10.0] * 8], 2: [[5.2] * 8], 4: [[2.8] * 8], 8: [[1.6] * 8]}
FEW = ("--rounds=1", "--updates=5")


def container() -> dict[str, Any]:
    """Of the Pod that the CronJob makes."""
    cronjob = yaml.safe_load(CRONJOB.read_text())
    (only,) = cronjob["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    return dict(only)


def run_container(folder: Path, secret: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """As the kubelet does: variables of the manifest and its secret only, `$(NAME)` filled in."""
    spec = container()
    given = {
        each["name"]: secret[each["valueFrom"]["secretKeyRef"]["key"]]
        if "valueFrom" in each
        else each["value"].replace("/tmp", str(folder))
        for each in spec["env"]
    }
    words = [word.replace("/tmp", str(folder)) for word in spec["args"]]
    for name, value in given.items():
        words = [word.replace(f"$({name})", value) for word in words]
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    return run_command(
        Path(sys.executable).with_name("laxity"),
        *words,
        *FEW,
        env={**kept, **given, "TMPDIR": str(folder)},
        cwd="/",
        timeout=300,
    )


def test_the_cronjob_makes_a_challenger_from_the_services_journal_and_leaves_the_champion(
    tmp_path: Path, blank_mlflow: Path
) -> None:
    pytest.importorskip("torch")
    make_registry(tmp_path, blank_mlflow)
    service = decided_by("optimus", tmp_path / "service")
    body = zlib.compress(json.dumps(learned(EPOCHS_S).to_json()).encode())
    with service.store.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE predictors SET body = ?", (body,))
    service.store.close()
    add(tmp_path, SHIPPED, slowdown=0.9)
    pod = tmp_path / "pod"
    pod.mkdir()
    secret = {
        "LAXITY_STORE": f"sqlite:///{tmp_path}/service/laxity.db",
        "MLFLOW_TRACKING_URI": store_of(tmp_path),
    }
    done = run_container(pod, secret)
    assert done.returncode == 0, done.stderr
    assert "registered as widths version 2, the challenger" in done.stderr
    versions = list_versions(store_of(tmp_path), "widths")
    assert [(each.version, list(each.aliases)) for each in versions] == [
        ("1", ["champion"]),
        ("2", ["challenger"]),
    ]
    assert "held_out_right" in versions[1].metrics
