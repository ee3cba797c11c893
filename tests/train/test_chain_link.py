"""A training as one link of a chain: it ends in time, the next goes on, and the last one says so."""

import os
import sys
import time
from pathlib import Path

import pytest

from laxity import Training, names
from laxity.cli.exit_codes import UNFINISHED
from laxity.worker import chain_link
from laxity.worker.chain_link import EXIT_UNFINISHED, LEAVING_S, TRAINED, ChainError, LinkEnded
from tests.support.processes import run_command

BEGAN_AT = 1_700_000_000.0
EPOCH_S = 10.0


class Clock:
    def __init__(self) -> None:
        self.now = BEGAN_AT

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(chain_link, "time", made)
    return made


@pytest.fixture
def chain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(names.ENV_CHAIN_FOLDER, str(tmp_path))
    return tmp_path


def train_link(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, number: int, *, limit_s: float
) -> list[int]:
    """The epochs that a link trains, of six of ten seconds each."""
    monkeypatch.setenv(names.ENV_CHAIN_LINK, str(number))
    monkeypatch.setenv(names.ENV_ENDS_AT, str(clock.now + limit_s))
    trained: list[int] = []
    training = Training(6)
    training.restore([0.0])
    for epoch in training.epochs():
        trained.append(epoch)
        clock.now += EPOCH_S
    return trained


def test_each_link_ends_in_time_and_the_next_goes_on_until_all_is_trained(
    chain: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Time passes while an epoch is trained, but epochs take none: only what must be left counts."""
    for number in (1, 2):
        with pytest.raises(LinkEnded) as ended:
            train_link(clock, monkeypatch, number, limit_s=2.0 * EPOCH_S)
        assert ended.value.code == EXIT_UNFINISHED == UNFINISHED
        assert not (chain / TRAINED).exists()
    assert train_link(clock, monkeypatch, 3, limit_s=60.0) == [5, 6]
    assert (chain / TRAINED).exists()


def test_an_epoch_that_might_take_longer_than_what_is_left_is_not_begun(clock: Clock) -> None:
    link = chain_link.ChainLink(Path("chain"), ends_at=clock.now + 60.0)
    assert link.has_time_for(40.0, save_s=0.0)
    assert not link.has_time_for(50.0, save_s=0.0), "20 % longer, and time to leave"
    assert not link.has_time_for(40.0, save_s=5.0), "it has to be saved as well"


def test_a_chain_in_which_no_epoch_is_ever_saved_fails_with_what_to_do(
    chain: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ChainError, match=r"2 links have ended and no epoch was saved.*unit=STEPS"):
        train_link(clock, monkeypatch, 3, limit_s=60.0)
    assert not (chain / TRAINED).exists()


def test_nonsense_in_the_environment_of_a_link_is_told(
    chain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(names.ENV_ENDS_AT, "noon")
    with pytest.raises(ChainError, match="LAXITY_ENDS_AT='noon': expected a number"):
        Training(6)


@pytest.mark.slow
def test_a_script_ends_without_a_traceback_and_with_the_code_that_means_go_on(
    tmp_path: Path,
) -> None:
    script = (
        "from laxity import Training\n"
        "for epoch in Training(10**6, resumes=True).epochs():\n"
        "    print(epoch, flush=True)\n"
    )
    env = os.environ | {
        names.ENV_CHAIN_FOLDER: str(tmp_path),
        names.ENV_ENDS_AT: str(time.time() + LEAVING_S + 3.0),
    }
    ran = run_command(sys.executable, "-c", script, env=env, timeout=60)
    assert ran.returncode == EXIT_UNFINISHED, ran.stderr
    last = int(ran.stdout.split()[-1])
    assert ran.stderr.splitlines() == [
        f"laxity: link 1 ends in time after epoch {last}; the next one goes on"
    ]
