"""The power fails at any step of a write: what was told as written is there, what was not is whole."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from laxity.worker.checkpoints.checkpoint import Checkpoints
from laxity.worker.reports import ReportChannel
from laxity_k8s.local.shim import write_note
from laxity_scheduler.following.chain_state import ChainState, load_chain, save_chain
from tests.support.recording_disk import RecordingDisk


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RecordingDisk]:
    folder = tmp_path / "folder"
    folder.mkdir()
    made = RecordingDisk(folder, tmp_path / "images", monkeypatch)
    yield made
    made.close()


def write_checkpoint(folder: Path, epoch: int) -> None:
    def fill(aside: Path) -> None:
        (aside / "state").write_text(f"state of {epoch}")
        (aside / "more").mkdir()
        (aside / "more" / "part").write_text("x" * epoch)

    Checkpoints(folder).write(epoch, fill=fill)


def newest_epoch(folder: Path) -> int:
    newest = Checkpoints(folder).newest()
    return newest.epoch if newest else 0


def test_a_written_checkpoint_outlives_a_loss_of_power(disk: RecordingDisk) -> None:
    written = 0

    def look(image: Path) -> None:
        Checkpoints(image).sweep()
        assert newest_epoch(image) in (written, written + 1)
        write_checkpoint(image, written + 1)
        assert newest_epoch(image) == written + 1

    disk.at_each_step(look)
    for epoch in (1, 2, 3, 4):
        write_checkpoint(disk.folder, epoch)
        written = epoch
        disk.step()

    assert disk.looks > 4 * 2 * 7


def test_a_written_report_outlives_a_loss_of_power(disk: RecordingDisk) -> None:
    reported = 0

    def look(image: Path) -> None:
        left = ReportChannel(image)
        epochs = [line["epoch"] for line in left.lines("epoch")]
        assert epochs in ([*range(1, reported + 1)], [*range(1, reported + 2)])

    disk.at_each_step(look)
    channel = ReportChannel(disk.folder)
    for epoch in (1, 2, 3):
        channel.append("epoch", epoch=epoch)
        reported = epoch
        disk.step()

    assert disk.looks > 3 * 2


def test_a_replaced_file_is_the_old_or_the_new_after_a_loss_of_power(disk: RecordingDisk) -> None:
    written = 0

    def look(image: Path) -> None:
        chain = load_chain(image)
        assert (int(chain.reason) if chain else 0) in (written, written + 1)

    disk.at_each_step(look)
    for number in (1, 2, 3):
        save_chain(ChainState("chain", reason=str(number)), disk.folder)
        written = number
        disk.step()

    assert disk.looks > 3 * 2 * 2


def test_a_note_about_a_process_is_never_half_after_a_loss_of_power(disk: RecordingDisk) -> None:
    note = disk.folder / "note.json"

    def look(image: Path) -> None:
        left = image / note.name
        assert not left.exists() or json.loads(left.read_text())["exit_code"] in (1, 2)

    disk.at_each_step(look)
    for code in (1, 2):
        write_note(str(note), {"exit_code": code})

    assert disk.looks == 2 * 2 * 2
