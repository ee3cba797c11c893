"""Workers of a machine with GPUs: how many it counts, and which of them each worker sees."""

from pathlib import Path

import pytest

from laxity_k8s.local.gpus import VISIBLE, choose_gpus, find_gpus, gpus_of_nodes
from laxity_k8s.local.local_cluster import open_world
from laxity_scheduler.live import Report
from tests.support.machine import Machine
from tests.support.waiting import until

SEES = f"import os; print(os.environ.get('{VISIBLE}', 'all of them'), flush=True)"
SEES_AND_STAYS = f"{SEES}; import signal; signal.pause()"


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ({}, ("0", "1", "2")),
        ({VISIBLE: "1,2"}, ("1", "2")),
        ({VISIBLE: " GPU-8f3a , MIG-11"}, ("GPU-8f3a", "MIG-11")),
        ({VISIBLE: "0,-1,1"}, ("0",)),
        ({VISIBLE: ""}, ()),
        ({VISIBLE: "-1"}, ()),
    ],
)
def test_gpus_are_those_of_the_machine_or_those_that_the_service_may_see(
    said: dict[str, str], found: tuple[str, ...], tmp_path: Path
) -> None:
    for name in ("nvidia0", "nvidia1", "nvidia2", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / name).touch()
    assert find_gpus(said, devices=tmp_path) == found


def test_a_machine_without_gpus_has_none(tmp_path: Path) -> None:
    assert find_gpus({}, devices=tmp_path) == ()


def test_slots_of_all_nodes_stand_for_gpus_in_turn() -> None:
    assert gpus_of_nodes({"local": 2, "lent": 1}, "abc") == {"local": ("a", "b"), "lent": ("c",)}
    assert gpus_of_nodes({"local": 3}, "ab") == {"local": ("a", "b", "a")}
    assert gpus_of_nodes({"local": 3}, ()) == {}


def test_a_worker_gets_the_gpus_that_fewest_others_have() -> None:
    assert choose_gpus("abc", "a", 1) == "b"
    assert choose_gpus("abc", "ab", 2) == "c,a"
    assert choose_gpus("abab", "aab", 1) == "b"
    assert choose_gpus("aa", "a", 1) == "a"
    assert choose_gpus("ab", "", 0) == ""


@pytest.mark.parametrize(
    ("slots", "inference_slots", "counted"), [(None, 0, 3), (None, 1, 2), (None, 3, 1), (5, 0, 5)]
)
def test_slots_of_a_machine_with_gpus_are_those_that_inference_leaves(
    slots: int | None,
    inference_slots: int,
    counted: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(VISIBLE, "0,1,2")
    world = open_world(tmp_path, lambda _: Report(), slots=slots, inference_slots=inference_slots)
    sizes = {node.id: node.gpus for node in world.observe().nodes}
    world.close()
    assert sizes.pop("local") == counted
    assert len(sizes) == inference_slots


@pytest.mark.slow
def test_each_worker_sees_a_gpu_of_its_own_also_after_the_service_was_away(
    machine: Machine,
) -> None:
    def sees(job_id: str, index: int) -> str:
        return machine.log(job_id, index).strip()

    machine.api.close()
    machine.open({"local": 3}, gpus=("0", "2", "5"))
    own = {"env": [{"name": VISIBLE, "value": "0,2,5"}]}
    machine.run("two", SEES_AND_STAYS, width=2, container=own)
    until(lambda: all(sees("default/two", index) for index in (0, 1)), what="two that look")
    first = {sees("default/two", index) for index in (0, 1)}
    machine.api.close()
    machine.open({"local": 3}, gpus=("0", "2", "5"))
    for name in ("third", "fourth"):
        machine.complete(machine.run(name, SEES))
    third, fourth = sees("default/third", 0), sees("default/fourth", 0)
    assert len(first) == 2
    assert {*first, third} == {"0", "2", "5"}
    assert fourth == third


@pytest.mark.slow
def test_where_there_are_no_gpus_a_worker_sees_what_its_container_says(machine: Machine) -> None:
    machine.complete(machine.run("plain", SEES))
    said = {"env": [{"name": VISIBLE, "value": "7"}]}
    machine.complete(machine.run("said", SEES, container=said))
    assert machine.log("default/plain").strip() == "all of them"
    assert machine.log("default/said").strip() == "7"
