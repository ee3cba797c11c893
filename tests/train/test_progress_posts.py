"""What a post says, what of it is believed, and when units of work ended between two posts."""

import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from laxity.worker.progress.progress_posts import (
    Post,
    PostError,
    UnitTimes,
    begins_at_zero,
    read_post,
)
from laxity.worker.progress.progress_server import ProgressServer


def body(**status: Any) -> bytes:
    return json.dumps({"trainerStatus": status}).encode()


def steps(at: float, done: int, total: int) -> Post:
    return Post(at, done / total, by_steps=True)


def test_post_says_share_and_metrics() -> None:
    rows = [{"name": "loss", "value": "0.5"}, {"name": "note", "value": "warm"}]

    post = read_post(body(progressPercentage=40, metrics=rows), 7.0)

    assert post == Post(7.0, 0.4, metrics={"loss": 0.5})


def test_steps_are_finer_than_the_percentage() -> None:
    rows = [{"name": "current_step", "value": "3"}, {"name": "total_steps", "value": "8"}]

    post = read_post(body(progressPercentage=37, metrics=rows), 7.0)

    assert post == Post(7.0, 0.375, by_steps=True)


@pytest.mark.parametrize(
    "nonsense",
    [
        b"", b"{", b"[]", b"null", b"[" * 100_000, b'{"trainerStatus": 3}', b"\xff\xfe",
        body(progressPercentage=101), body(progressPercentage=-1), body(progressPercentage="40"),
        body(progressPercentage=True), body(progressPercentage=float("nan")),
        body(metrics={"loss": 1}), body(metrics=["loss"]), body(metrics=[{"value": 1}]),
        body(metrics=[{"name": ""}]), body(metrics=[{"name": "a\nb", "value": 1}]),
        body(metrics=[{"name": "a" * 251, "value": 1}]), body(metrics=[{"name": "a"}] * 201),
    ],
)  # fmt: skip
def test_nonsense_is_a_post_error(nonsense: bytes) -> None:
    with pytest.raises(PostError):
        read_post(nonsense, 0.0)


@pytest.mark.parametrize("value", ["nan", "inf", "9" * 5_000, None, [], {}, True])
def test_metric_that_is_no_finite_number_is_left_out(value: Any) -> None:
    assert read_post(body(metrics=[{"name": "loss", "value": value}]), 0.0).metrics == {}


@pytest.mark.parametrize(("done", "total"), [("9", "8"), ("-1", "8"), ("0", "0"), ("nan", "8")])
def test_impossible_steps_leave_the_percentage(done: str, total: str) -> None:
    rows = [{"name": "current_step", "value": done}, {"name": "total_steps", "value": total}]

    assert read_post(body(progressPercentage=40, metrics=rows), 0.0) == Post(0.0, 0.4)


def test_ends_of_units_are_interpolated() -> None:
    times = UnitTimes(10, at=100.0)

    ends = times.take(Post(110.0, 0.25)) + times.take(Post(120.0, 0.5))

    assert ends == pytest.approx([104.0, 108.0, 112.0, 116.0, 120.0])


def test_all_units_of_any_number_end_with_100_per_cent() -> None:
    for units in range(1, 300):
        times = UnitTimes(units, at=0.0)
        ends = [end for share in (1 / 3, 0.7, 1.0) for end in times.take(Post(share, share))]
        assert len(ends) == units
        assert ends == sorted(ends)
        assert ends[-1] <= 1.0 + 1e-12


def test_progress_that_goes_back_counts_nothing() -> None:
    times = UnitTimes(10, at=0.0)
    times.take(Post(1.0, 0.5))

    assert times.take(Post(2.0, 0.1)) == []
    assert times.take(Post(3.0, 0.6)) == pytest.approx([3.0])


def test_100_per_cent_far_from_the_last_step_is_an_early_end() -> None:
    times = UnitTimes(10, at=0.0)
    for at in (1, 2, 3):
        times.take(steps(at, at, 20))

    assert times.take(Post(4.0, 1.0)) == []
    assert times.share == 0.15


def test_100_per_cent_near_the_last_step_is_the_end() -> None:
    times = UnitTimes(10, at=0.0)
    for at in (5, 10, 15):
        times.take(steps(at, at, 20))

    assert len(times.take(Post(20.0, 1.0))) == 3


def test_only_steps_count_once_it_is_told_to_stop() -> None:
    times = UnitTimes(10, at=0.0, by_steps_only=True)

    assert times.take(Post(1.0, 1.0)) == []
    assert len(times.take(steps(2.0, 8, 8))) == 10


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ([], None), ([0.0], None), ([0.0, 0.02], None), ([0.0, 0.02, 0.04], True),
        ([0.1, 0.2], True), ([0.42], False), ([0.0, 0.41, 0.42], False), ([0.3, 0.31], False),
    ],
)  # fmt: skip
def test_first_posts_tell_whether_a_script_began_at_zero(
    shares: list[float], expected: bool | None
) -> None:
    assert begins_at_zero(shares, 0.4) is expected


@pytest.fixture
def posts() -> list[Post]:
    return []


@pytest.fixture
def server(tmp_path: Path, posts: list[Post]) -> Iterator[ProgressServer]:
    with ProgressServer(tmp_path, posts.append) as running:
        yield running


def ask(server: ProgressServer, method: str, content: bytes, **headers: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    given = {"Authorization": f"Bearer {server.token}"} | headers
    connection.request(method, "/", body=content, headers=given)
    return connection.getresponse().status


@pytest.mark.slow
def test_server_answers_nonsense_with_4xx_and_goes_on(
    server: ProgressServer, posts: list[Post], tmp_path: Path
) -> None:
    good = body(progressPercentage=40)

    answers = [
        ask(server, "POST", b"{"),
        ask(server, "POST", good, Authorization="Bearer wrong"),
        ask(server, "POST", good, Authorization="\xe9"),
        ask(server, "POST", good, **{"Content-Length": "-1"}),
        ask(server, "POST", b" " * 70_000),
        ask(server, "GET", b""),
    ]

    assert answers == [400, 401, 401, 411, 413, 405]
    assert ask(server, "POST", good) == 200
    assert [post.share for post in posts] == [0.4]
    assert (tmp_path / "token").stat().st_mode & 0o077 == 0
