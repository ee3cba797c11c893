"""A log over its limit keeps its beginning and its end, and says how much lies between."""

from pathlib import Path

import pytest

from laxity.api.log_text import BEGUN_ANEW, read_log, text_after
from laxity_k8s.local.shim import Output

LIMIT = 200_000
HEAD = 65_536


def write_log(path: Path, lines: list[str]) -> None:
    output = Output(str(path), LIMIT)
    for first in range(0, len(lines), 100):
        output.write("".join(lines[first : first + 100]).encode())


def numbered(count: int) -> list[str]:
    return [f"line {number} \u00e9\n" for number in range(count)]


@pytest.mark.parametrize("count", [10, 10_000, 20_000], ids=["one file", "a full one", "two"])
def test_a_log_that_fits_is_kept_whole(tmp_path: Path, count: int) -> None:
    lines = numbered(count)
    write_log(tmp_path / "a.log", lines)

    assert read_log(tmp_path / "a.log") == "".join(lines)


def test_a_longer_log_keeps_its_first_64_kib_and_its_end_and_says_the_gap(tmp_path: Path) -> None:
    lines = numbered(100_000)
    write_log(tmp_path / "a.log", lines)

    kept = read_log(tmp_path / "a.log").splitlines(keepends=True)

    (gap,) = [number for number, line in enumerate(kept) if line.startswith("...")]
    head, rest = kept[:gap], kept[gap + 1 :]
    assert head == lines[: len(head)]
    assert rest == lines[-len(rest) :]
    assert HEAD - 20 < len("".join(head).encode()) <= HEAD
    assert len("".join(rest).encode()) >= LIMIT - 20
    lost = len("".join(lines).encode()) - len("".join([*head, *rest]).encode())
    assert kept[gap].startswith(f"... {lost:,} bytes left out")


@pytest.mark.parametrize("step", [700, 9_000, 40_000])
def test_following_prints_every_line_once_or_says_what_it_lost(tmp_path: Path, step: int) -> None:
    path, lines = tmp_path / "a.log", numbered(80_000)
    printed, texts = 0, []
    output = Output(str(path), LIMIT)
    for first in range(0, len(lines), step):
        output.write("".join(lines[first : first + step]).encode())
        text, printed = text_after(read_log(path), printed)
        texts.append(text)

    shown = "".join(texts).splitlines(keepends=True)
    gaps = [int(line.split()[1].replace(",", "")) for line in shown if line.startswith("...")]
    own = [line for line in shown if not line.startswith("...")]
    assert len(set(own)) == len(own)
    assert sum(gaps) + len("".join(own).encode()) == len("".join(lines).encode())
    assert bool(gaps) == (step > 9_000)


def test_a_log_that_is_shorter_than_before_was_begun_anew() -> None:
    assert text_after("new\n", 100) == (f"{BEGUN_ANEW}new\n", 4)


def test_bytes_that_are_no_text_count_as_one_each(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"\xff\xfe one\n")
    text, printed = text_after(read_log(path), 0)
    path.write_bytes(b"\xff\xfe one\ntwo\n")

    assert (text.endswith("one\n"), printed) == (True, 7)
    assert text_after(read_log(path), printed)[0] == "two\n"
