"""The ground that real pods train on, started once, by the first test that needs it."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.builders import TOKEN
from tests.support.kubernetes.fixtures import WHY_NOT
from tests.support.kubernetes.place import service, there
from tests.support.kubernetes.podground import PodGround
from tests.support.kubernetes.realnode import why_not

__all__ = ["service", "there"]  # fixtures of tests in this folder


@pytest.fixture(scope="session")
def real_ground(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[PodGround]:
    """A cluster whose node is this machine. Skips and says why where that cannot be."""
    assets = Path(os.environ.get("KUBEBUILDER_ASSETS", ""))
    if not (assets / "kube-apiserver").exists():
        pytest.skip(WHY_NOT)
    if reason := why_not(assets):
        pytest.skip(reason)
    blank: Path = request.getfixturevalue("blank_mlflow")  # only where there is a ground
    made = PodGround(assets, tmp_path_factory.mktemp("ground"), blank)
    try:
        made.up()
        yield made
    finally:
        made.down()


@pytest.fixture
def ground(real_ground: PodGround, prefect_api: str, monkeypatch: pytest.MonkeyPatch) -> PodGround:
    """The ground, as flows called in this process find it."""
    monkeypatch.setenv("LAXITY_URL", real_ground.url)
    monkeypatch.setenv("LAXITY_TOKEN", TOKEN)
    for name in ("LAXITY_JOB", "LAXITY_ALONE", "LAXITY_IDEMPOTENCY_KEY"):
        monkeypatch.delenv(name, raising=False)
    return real_ground


@pytest.fixture
def place(real_ground: PodGround) -> Iterator[str]:
    """A fresh namespace; deleted afterwards, and waited for: the GPUs must be free again."""
    yield from real_ground.namespace()
