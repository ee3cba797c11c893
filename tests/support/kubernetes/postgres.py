"""A throwaway PostgreSQL on loopback, where the programs are installed."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.support.processes import free_ports

WHY_NOT: Final = "no PostgreSQL on this machine (Debian's package postgresql)"
NOBODY: Final = "postgres"  # its programs refuse to run as root


def programs() -> Path | None:
    """The folder of the newest version that is there."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return found[-1].parent if found else None


@contextmanager
def postgresql() -> Iterator[str]:
    """Its URL; it ends with the block, and nothing of it stays."""
    bin_dir = programs()
    assert bin_dir is not None, WHY_NOT
    user = ["runuser", "-u", NOBODY, "--"] if os.geteuid() == 0 else []
    home = Path(tempfile.mkdtemp(prefix="laxity-postgres-"))
    if user:
        shutil.chown(home, NOBODY)
    port = free_ports(1)[0]
    data = home / "data"

    def run(program: str, *arguments: str) -> None:
        command = [*user, str(bin_dir / program), *arguments]
        subprocess.run(command, check=True, cwd=home, capture_output=True)

    run("initdb", "-D", str(data), "-U", "laxity", "-A", "trust", "-E", "UTF8", "--no-sync")
    options = f"-p {port} -k {home} -h 127.0.0.1 -F"
    run("pg_ctl", "-D", str(data), "-l", str(home / "log"), "-w", "-o", options, "start")
    try:
        yield f"postgresql://laxity@127.0.0.1:{port}/postgres"
    finally:
        run("pg_ctl", "-D", str(data), "-w", "-m", "immediate", "stop")
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture(scope="module")
def postgres_url() -> Iterator[str]:
    """The URL of one that the tests of a module share; they are skipped where it is not installed."""
    if programs() is None:
        pytest.skip(WHY_NOT)
    with postgresql() as url:
        yield url
