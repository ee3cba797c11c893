"""Who gets into a group: workers that know the token in the job's folder, and nobody else."""

import json
import socket
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from laxity.worker.group import messages
from laxity.worker.group.membership import GroupClient, GroupServer
from laxity.worker.group.rendezvous import Rendezvous
from tests.support.waiting import until


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[GroupServer]:
    found = GroupServer(tmp_path, uid="u1")
    yield found
    found.end()


def knocking(folder: Path) -> tuple[socket.socket, str]:
    place = Rendezvous.read(folder)
    assert place is not None
    return socket.create_connection((place.host, place.port), timeout=30), place.token


def test_the_token_lets_a_worker_in(leader: GroupServer, tmp_path: Path) -> None:
    worker, token = knocking(tmp_path)

    messages.send_message(worker, {"index": 1, "token": token})

    leader.wait_for(lambda: 2, at_most_s=30)
    assert leader.reachable() == 2
    messages.hang_up(worker)


@pytest.mark.parametrize(
    "hello",
    [
        pytest.param(json.dumps({"index": 1, "token": "guessed"}).encode(), id="a guessed token"),
        pytest.param(json.dumps({"index": 0, "token": ""}).encode(), id="another leader"),
        pytest.param(b"[]", id="no object"),
        pytest.param(b"\xff\xfe", id="no text"),
        pytest.param(b" " * 5000, id="more than a hello"),
    ],
)
def test_a_stranger_is_shown_out(leader: GroupServer, tmp_path: Path, hello: bytes) -> None:
    stranger, _ = knocking(tmp_path)

    stranger.sendall(struct.pack("!I", len(hello)) + hello)

    with stranger:
        try:
            said = stranger.recv(1)
        except ConnectionResetError:
            said = b""
        assert said == b""
    assert leader.reachable() == 1


def test_only_this_user_can_read_the_token(leader: GroupServer, tmp_path: Path) -> None:
    assert (tmp_path / "rendezvous.json").stat().st_mode & 0o077 == 0


def test_a_worker_that_dies_while_it_waits_is_not_counted(
    leader: GroupServer, tmp_path: Path
) -> None:
    worker, token = knocking(tmp_path)
    messages.send_message(worker, {"index": 1, "token": token})
    leader.wait_for(lambda: 2, at_most_s=30)

    messages.hang_up(worker)

    until(lambda: leader.reachable() == 1, "it is no more counted")


def test_who_comes_after_the_end_is_told_so(leader: GroupServer, tmp_path: Path) -> None:
    leader.end()

    assert GroupClient(tmp_path, index=1, uid="u1").join() == {"do": "end"}


def test_a_leader_gives_way_to_a_later_one_of_its_job(leader: GroupServer, tmp_path: Path) -> None:
    assert not leader.is_superseded()
    later = GroupServer(tmp_path, uid="u1")
    assert (leader.is_superseded(), later.is_superseded()) == (True, False)
    later.end()
    assert leader.is_superseded(), "also when the later one has finished"


def test_of_two_that_begin_at_once_one_gives_way(leader: GroupServer, tmp_path: Path) -> None:
    """Both have read the same generation."""
    mine = Rendezvous.read(tmp_path)
    assert mine is not None
    replace(mine, token="other").write(tmp_path)
    assert leader.is_superseded()
    mine.write(tmp_path)
    assert not leader.is_superseded()


@pytest.mark.parametrize("place", ["another job", "an earlier one, seen late", "nothing"])
def test_a_leader_gives_way_to_nobody_else(leader: GroupServer, tmp_path: Path, place: str) -> None:
    mine = Rendezvous.read(tmp_path)
    assert mine is not None
    if place == "nothing":
        (tmp_path / "rendezvous.json").unlink()
    elif place == "another job":
        replace(mine, token="other", uid="u2", generation=9).write(tmp_path)
    else:
        replace(mine, token="other", generation=mine.generation - 1).write(tmp_path)
    assert not leader.is_superseded()
