"""One service to a home, found again after a crash, and never confused with a stranger's process."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from laxity_scheduler.process.instance_dir import (
    InstanceDir,
    InstanceDirBusyError,
    InstanceDirError,
    name_lock_holder,
)
from tests.support.command_line import CommandLine

HOLDER = """
import sys, time
from pathlib import Path
from laxity_scheduler.process.instance_dir import InstanceDir
home = InstanceDir(Path(sys.argv[1])).lock_for_process()
home.publish_address("http://127.0.0.1:1", "")
print("locked", flush=True)
time.sleep(600)
"""


@pytest.fixture
def holder(tmp_path: Path) -> subprocess.Popen[str]:
    """Another process that holds the home."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "locked\n"
    return process


def ended(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def test_a_home_that_is_served_cannot_be_served_twice(
    tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    with pytest.raises(InstanceDirBusyError, match=f"process {holder.pid} at http://127.0.0.1:1"):
        InstanceDir(tmp_path).lock_for_process()
    ended(holder)


def test_each_locked_home_gives_its_process_a_name_and_a_copy_gives_another(tmp_path: Path) -> None:
    homes = [tmp_path / name for name in ("one", "other", "copy")]
    for home in homes[:2]:
        InstanceDir(home).lock_for_process().release_lock()
    shutil.copytree(homes[0], homes[2])
    found = [name_lock_holder(home) for home in homes]
    assert len(set(found)) == 3
    InstanceDir(homes[0]).lock_for_process().release_lock()
    assert name_lock_holder(homes[0]) == found[0]


def test_a_killed_service_leaves_its_home_free(
    tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    ended(holder)
    home = InstanceDir(tmp_path)
    assert home.running_service() is None
    assert home.pid_file.exists()
    home.lock_for_process().release_lock()
    assert not home.pid_file.exists()


def test_a_pid_that_belongs_to_somebody_else_by_now_is_no_service(tmp_path: Path) -> None:
    home = InstanceDir(tmp_path)
    home.pid_file.write_text(json.dumps({"pid": os.getpid(), "started": "1"}))
    assert home.running_service() is None


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param("{", id="half of it"),
        pytest.param("[1]", id="something else"),
        pytest.param('{"pid": "x", "started": 1}', id="no number"),
    ],
)
def test_a_garbled_pid_file_counts_as_none(tmp_path: Path, text: str) -> None:
    home = InstanceDir(tmp_path)
    home.pid_file.write_text(text)
    assert home.running_service() is None


def test_what_a_home_holds_is_for_its_owner_alone(tmp_path: Path) -> None:
    home = InstanceDir(tmp_path / "new").lock_for_process()
    home.publish_address("http://127.0.0.1:1", "a secret token")
    modes = [path.stat().st_mode & 0o077 for path in (home.path, home.service_file, home.pid_file)]
    home.release_lock()
    assert modes == [0, 0, 0]


def test_a_home_that_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    path = tmp_path / "home"
    (path / "pods").mkdir(parents=True)
    secret, outside = path / "cluster.db", tmp_path / "outside"
    for file in (secret, outside):
        file.write_text("environment of a Job")
        file.chmod(0o644)
    (path / "link").symlink_to(outside)
    path.chmod(0o755)
    InstanceDir(path).make_private()
    modes = {place.name: place.stat().st_mode & 0o777 for place in (path, secret, outside)}
    assert modes == {"home": 0o700, "cluster.db": 0o600, "outside": 0o644}


@pytest.mark.parametrize(
    ("owner", "mode", "words"),
    [
        pytest.param(os.geteuid() + 7, 0o700, f"belongs to user {os.geteuid() + 7}", id="another"),
        pytest.param(0, 0o1777, "is shared by all users", id="the folder for everybody's files"),
    ],
)
def test_a_folder_that_is_not_ones_own_is_refused_as_a_home(
    owner: int, mode: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, real = InstanceDir(tmp_path), Path.stat
    found = os.stat_result((0o040000 | mode, 0, 0, 0, owner, owner, 0, 0, 0, 0))
    monkeypatch.setattr(Path, "stat", lambda path: found if path == tmp_path else real(path))
    with pytest.raises(InstanceDirError, match=f"{tmp_path} {words}: set LAXITY_HOME"):
        home.make_private()


def test_a_service_that_does_not_listen_yet_is_said_to_start_or_stop(tmp_path: Path) -> None:
    home = InstanceDir(tmp_path).lock_for_process()
    with pytest.raises(
        InstanceDirBusyError, match=rf"process {os.getpid()} \(it is starting or stopping\) already"
    ):
        InstanceDir(tmp_path).lock_for_process()
    home.release_lock()


def test_the_port_of_the_last_time_is_remembered(tmp_path: Path) -> None:
    home = InstanceDir(tmp_path)
    assert home.last_port() == 0
    home.keep_port(4711)
    assert InstanceDir(tmp_path).last_port() == 4711


def test_elsewhere_than_on_linux_up_says_what_it_needs(
    monkeypatch: pytest.MonkeyPatch, laxity: CommandLine
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert laxity("up") == 1
    assert "laxity up needs Linux, this is darwin" in laxity.read_errors()


@pytest.mark.slow
def test_up_tells_a_wrong_option_in_the_services_own_line(
    tmp_path: Path, laxity: CommandLine
) -> None:
    home = str(tmp_path / "home")
    assert laxity("up", "--home", home, "--port", "0", "--budget", "foo") == 2
    assert laxity.read_errors() == "error: budget 'foo': write NAMESPACE=GPU_HOURS\n"
