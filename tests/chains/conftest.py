"""A real Slurm, and chains on it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.slurm import SlurmCluster
from tests.support.slurm_chain import Chain


@pytest.fixture
def slurm(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[SlurmCluster]:
    cluster = SlurmCluster(tmp_path / "slurm", nodes=getattr(request, "param", 1))
    try:
        cluster.up()
        yield cluster
    finally:
        cluster.down()


@pytest.fixture
def begin(slurm: SlurmCluster) -> Iterator[Callable[[str], Chain]]:
    """Chains whose processes are killed at the end."""
    chains: list[Chain] = []

    def make(script: str) -> Chain:
        chains.append(Chain(slurm, script))
        return chains[-1]

    yield make
    for chain in chains:
        chain.kill()
