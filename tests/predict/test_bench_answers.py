import json

import pytest

from benchmarks.__main__ import benches
from tests.support.command_line import invoke


def test_the_bench_asks_for_every_job_at_eight_widths_and_compares_with_row_by_row() -> None:
    said = json.loads(invoke(["answers", "--jobs", "60", "--json"], benches).output)

    assert said["rows"]["value"] == 480
    for name in ("cold_ms", "cached_ms"):
        assert said[name]["value"] > 0.0
        assert said[name]["ratio"] == pytest.approx(said[name]["value"] / said[name]["baseline"])
