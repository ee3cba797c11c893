"""Deadlines by the clock at a running service: resolved once, shown with their zone."""

import time
from pathlib import Path

from tests.support.builders import Curve
from tests.support.memory_world import MemoryWorld
from tests.support.services import staged

DAY_S = 86_400.0


def test_a_clock_deadline_is_its_next_instant_and_is_shown_with_its_zone(tmp_path: Path) -> None:
    far_from_now = time.strftime("%H:%M", time.gmtime(time.time() + DAY_S / 2))
    with staged(tmp_path, MemoryWorld(4), predictor=Curve(epoch_s=1.0)) as stage:
        stage.submit("a", deadline=f"{far_from_now} UTC")
        view = stage.until("default/a", lambda view: view["verdict"] == "promised", "promised")
    assert 0.0 < view["deadline_at"] - view["submitted_at"] <= DAY_S
    assert time.strftime("%H:%M:%S", time.gmtime(view["deadline_at"])) == f"{far_from_now}:00"
    assert view["deadline_clock"] == f"{far_from_now} UTC"


def test_amending_to_a_clock_time_names_its_zone(tmp_path: Path) -> None:
    far_from_now = time.strftime("%H:%M", time.gmtime(time.time() + DAY_S / 2))
    with staged(tmp_path, MemoryWorld(4), predictor=Curve(epoch_s=1.0)) as stage:
        stage.run("a", deadline="2h")
        bare = stage.http.post("/v1/jobs/default/a/amend", json={"deadline": "12:34"})
        granted = stage.http.post(
            "/v1/jobs/default/a/amend", json={"deadline": f"{far_from_now}Z"}
        ).json()
    assert bare.status_code == 422
    assert "write 12:34 Europe/Berlin, or 12:34Z for UTC" in bare.json()["error"]["message"]
    assert time.strftime("%H:%M:%S", time.gmtime(granted["deadline_at"])) == f"{far_from_now}:00"
