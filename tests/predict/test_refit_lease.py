"""Two refits at once are one, and a dead one holds nobody up."""

import os
import socket
import subprocess
import sys
import time

import pytest

from laxity.cli.exit_codes import FAILED, CommandError
from laxity_profiler.history import history_database
from laxity_profiler.history.store_lease import LeaseHeldError, hold_lease
from tests.support.refitting import Place, command

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_two_refits_at_once_are_one(place: Place) -> None:
    with (
        hold_lease(place.history.engine, "refit"),
        pytest.raises(LeaseHeldError, match=rf"process {os.getpid()} on {socket.gethostname()}"),
    ):
        place.refit()
    answer = command(place, "--json")
    assert answer.exception is None


def test_the_lease_of_a_dead_process_is_taken_over(place: Place) -> None:
    dead = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    write_lease(place, f"{socket.gethostname()} {dead} {time.time() + 600:.3f}")

    with hold_lease(place.history.engine, "refit"):
        pass


@pytest.mark.parametrize(
    "left_s", [pytest.param(600.0, id="goes on"), pytest.param(-1.0, id="ended")]
)
def test_a_lease_of_another_machine_is_waited_for(left_s: float, place: Place) -> None:
    write_lease(place, f"elsewhere 1 {time.time() + left_s:.3f}")

    if left_s < 0.0:
        with hold_lease(place.history.engine, "refit") as lease:
            lease.renew()
    else:
        with (
            pytest.raises(LeaseHeldError, match="on elsewhere"),
            hold_lease(place.history.engine, "refit"),
        ):
            pass
        answer = command(place)
        assert isinstance(answer.exception, CommandError)
        assert answer.exception.code == FAILED
    write_lease(place, "")


def test_a_lease_that_was_lost_is_not_renewed(place: Place) -> None:
    with hold_lease(place.history.engine, "refit") as lease:
        write_lease(place, f"elsewhere 1 {time.time() + 600:.3f}")
        with pytest.raises(LeaseHeldError, match="taken over"):
            lease.renew()
    write_lease(place, "")


def write_lease(place: Place, position: str) -> None:
    with history_database.open_transaction(place.history.engine) as connection:
        history_database.write_setting(connection, "lease:refit", position)
