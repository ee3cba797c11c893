"""What workers wrote can be read while their Job is there, and after it where it is kept."""

from pathlib import Path

import pytest

from tests.support.memory_world import MemoryWorld
from tests.support.services import staged


def test_logs_can_be_asked_for_from_their_end(tmp_path: Path) -> None:
    with staged(tmp_path, MemoryWorld(1)) as stage:
        stage.submit("a")
        all_of_it = stage.http.get("/v1/jobs/default/a/logs").json()
        last = stage.http.get("/v1/jobs/default/a/logs", params={"tail": 1}).json()
    assert all_of_it == {"text": "worker 0 of default/a\nwrote this\n"}
    assert last == {"text": "wrote this\n"}


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_cancelled_jobs_output_is_read_where_it_is_kept_and_else_said_to_be_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_kept: bool
) -> None:
    log = tmp_path / "a.log"
    monkeypatch.setattr(MemoryWorld, "log_path", lambda *_: str(log))
    with staged(tmp_path, MemoryWorld(1)) as stage:
        stage.submit("a")
        if is_kept:
            log.write_text("what it wrote\n")
        stage.until("default/a", lambda view: view["workers"] > 0, "running")
        stage.http.delete("/v1/jobs/default/a")
        stage.until("default/a", lambda view: view["state"] == "cancelled", "cancelled")
        answer = stage.http.get("/v1/jobs/default/a/logs")
    if is_kept:
        assert answer.json() == {"text": "what it wrote\n"}
    else:
        assert answer.status_code == 404
        assert "default/a was cancelled: its Job is gone" in answer.json()["error"]["message"]
