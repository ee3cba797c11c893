"""A service that answers what a test says, and a manifest to submit to it."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from laxity import names
from tests.support.http_service import Service, service


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    with service() as running:
        monkeypatch.setenv(names.ENV_URL, running.url)
        monkeypatch.delenv(names.ENV_TOKEN, raising=False)
        yield running


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "job.json"
    manifest = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}}
    path.write_text(json.dumps(manifest))
    return str(path)
