"""Checkpoints: the newest whole one counts, two are kept, a failing write changes nothing."""

import errno
import os
from pathlib import Path

import pytest

from laxity import Training
from laxity.worker.checkpoints import saving
from laxity.worker.checkpoints.checkpoint import CheckpointError, Checkpoints


def save(checkpoints: Checkpoints, epoch: int) -> int:
    return checkpoints.write(epoch, fill=lambda folder: put(folder, epoch), note={"epoch": epoch})


def put(folder: Path, epoch: int) -> None:
    (folder / "state").write_text(f"state of {epoch}")
    (folder / "more").mkdir()
    (folder / "more" / "part").write_text("x" * epoch)


def newest_epoch(folder: Path) -> int:
    found = Checkpoints(folder).newest()
    return found.epoch if found else -1


@pytest.mark.parametrize(("share", "saved"), [("1", [-1, 1, 2, 3]), ("0.000001", [-1, 1, 1, 1])])
def test_a_training_alone_saves_as_often_as_its_saving_share_allows(
    share: str, saved: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saving, "FREE_SAVE_S", -1.0)  # however quick a save is, it counts
    monkeypatch.setenv("LAXITY_SAVING_SHARE", share)

    training = Training(4, folder=tmp_path)
    training.restore([0.0])

    assert [newest_epoch(tmp_path) for _ in training.epochs()] == saved


def test_the_newest_is_found_with_its_note(tmp_path: Path) -> None:
    for epoch in (1, 2, 10):
        written = save(Checkpoints(tmp_path), epoch)

    newest = Checkpoints(tmp_path).newest()

    assert newest is not None
    assert (newest.epoch, newest.note) == (10, {"epoch": 10})
    assert written == len("state of 10") + 10
    assert sorted(path.name for path in tmp_path.iterdir()) == ["epoch-00000002", "epoch-00000010"]


def test_an_empty_folder_has_none(tmp_path: Path) -> None:
    assert newest_epoch(tmp_path) == -1
    assert newest_epoch(tmp_path / "nowhere") == -1


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda path: (path / "finished").unlink(), id="no finished mark"),
        pytest.param(lambda path: (path / "finished").write_text("{"), id="half a mark"),
        pytest.param(lambda path: (path / "state").write_text("state of 3"), id="another content"),
        pytest.param(lambda path: (path / "state").write_text(""), id="an empty file"),
        pytest.param(lambda path: (path / "more" / "part").unlink(), id="a lost file"),
    ],
)
def test_what_is_not_whole_is_passed_over(tmp_path: Path, damage: object) -> None:
    for epoch in (1, 2):
        save(Checkpoints(tmp_path), epoch)

    damage(tmp_path / "epoch-00000002")  # type: ignore[operator]

    assert newest_epoch(tmp_path) == 1
    save(Checkpoints(tmp_path), 2)
    assert newest_epoch(tmp_path) == 2


def test_a_full_disk_is_a_clear_error_and_the_one_before_stays(tmp_path: Path) -> None:
    save(Checkpoints(tmp_path), 1)

    def no_space(folder: Path) -> None:
        put(folder, 2)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(CheckpointError, match=r"epoch 2 could not be written .*No space left"):
        Checkpoints(tmp_path).write(2, fill=no_space)

    assert newest_epoch(tmp_path) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["epoch-00000001"]


def test_what_a_killed_process_left_is_swept_away(tmp_path: Path) -> None:
    save(Checkpoints(tmp_path), 1)
    (tmp_path / ".writing-00000002-99").mkdir()

    Checkpoints(tmp_path).sweep()

    assert [path.name for path in tmp_path.iterdir()] == ["epoch-00000001"]
