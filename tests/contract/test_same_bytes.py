"""The same seed gives the same bytes, in another process with another hash seed as well."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from laxity_scheduler.policies.registry import REGISTRY

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def digests() -> list[dict[str, str]]:
    """What two processes print, side by side."""
    running = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "tests.oracle.digests"],
            cwd=ROOT,
            env=os.environ | {"PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in ("1", "2")
    ]
    told = [process.communicate()[0] for process in running]
    assert [process.returncode for process in running] == [0, 0]
    return [json.loads(text) for text in told]


@pytest.mark.parametrize("policy", sorted(REGISTRY))
def test_plans_and_simulations_do_not_depend_on_the_hash_seed(
    policy: str, digests: list[dict[str, str]]
) -> None:
    first, second = digests
    assert first[policy] == second[policy]


def test_policies_differ_in_what_they_give(digests: list[dict[str, str]]) -> None:
    """Else the digests would hold nothing."""
    assert len(set(digests[0].values())) == len(REGISTRY)
