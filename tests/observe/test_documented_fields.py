"""The fields of a job's JSON that docs/ci.md promises to scripts are there."""

import re
from pathlib import Path

from tests.support.memory_world import MemoryWorld
from tests.support.services import staged

PAGE = Path(__file__).parents[2] / "docs" / "ci.md"


def test_each_documented_field_is_in_the_jobs_json(tmp_path: Path) -> None:
    section = PAGE.read_text().partition("## JSON for scripts")[2].partition("\n## ")[0]
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    fields = {field for cell in cells for field in re.findall(r"`(\w+)`", cell)}

    with staged(tmp_path, MemoryWorld(1)) as stage:
        stage.submit("a", deadline="1h", widths="1")
        view = stage.until("default/a", lambda view: view["verdict"] == "promised", "promised")

    assert {"state", "verdict", "first_run_s", "run_url"} <= fields
    assert fields <= set(view)
