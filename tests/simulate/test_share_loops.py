"""Loops that numba compiles give what they give in CPython."""

import pickle
import sys
from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import FunctionType, ModuleType

import numpy as np
import pytest

from laxity_lab.batch_queue import cluster_loop
from laxity_lab.simulate.run import Setting, simulate
from laxity_lab.traces.throughput_tables import ThroughputTable
from laxity_lab.traces.traces import Trace
from laxity_scheduler.capacity import growing, placement
from laxity_scheduler.frame import compiled, loops
from laxity_scheduler.frame.arrays import Ints
from laxity_scheduler.promising import planning
from laxity_scheduler.shares.plans import slot_lengths
from tests.support.simulated import job, trace

PAGES = [
    import_module("laxity_scheduler." + page.removesuffix(".py").replace("/", "."))
    for page in compiled.PAGES
] + [cluster_loop]
RULES = ("elasticflow", "edf_elastic")


def small(seed: int, jobs: int) -> Trace:
    """A few concave jobs of minutes to hours, four of five with a deadline."""
    draw, at, found = np.random.default_rng(seed), 0.0, []
    for number in range(jobs):
        at += float(draw.integers(0, 900))
        gains = np.sort(draw.uniform(0.3, 1.0, size=2))[::-1]
        speeds = (1.0, 1.0 + float(gains[0]), 1.0 + float(gains[0]) + 2.0 * float(gains[1]))
        runs_s = float(draw.integers(300, 6_000))
        due_at = at + runs_s * float(draw.uniform(0.4, 3.0))
        found.append(
            job(
                f"job-{number}",
                at=at,
                runs_s=runs_s,
                due_at=due_at if draw.random() < 0.8 else float("inf"),
                table=ThroughputTable((1, 2, 4), speeds),
            )
        )
    return trace(*found)


def outcome(jobs: Trace, setting: Setting) -> bytes:
    run = simulate(jobs, setting)
    columns = b"".join(run.columns[name].tobytes() for name in sorted(run.columns))
    return columns + repr((run.busy, run.events, sorted(run.refused.items()))).encode()


def functions(page: ModuleType) -> Iterator[str]:
    return (name for name, value in vars(page).items() if hasattr(value, "py_func"))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("admission", ["none", "greedy"])
def test_compiled_loops_give_the_bytes_of_the_same_loops_in_cpython(
    rule: str, admission: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not compiled.COMPILES:
        pytest.skip("numba is not installed: there is only one way")
    first = Setting(rule, 1, 4, pooled=True, admission=admission)
    settings = [first, replace(first, cost_model="elasticflow", error=0.2)]
    cases = [(small(seed, 8), setting) for seed in range(4) for setting in settings]
    fast = [outcome(*case) for case in cases]
    for page in PAGES:
        for name in list(functions(page)):
            monkeypatch.setattr(page, name, getattr(page, name).py_func)
    assert [outcome(*case) for case in cases] == fast


def test_machine_code_is_made_anew_when_any_page_has_changed() -> None:
    if not compiled.COMPILES:
        pytest.skip("numba is not installed: nothing is compiled")
    for page in PAGES:
        for name in functions(page):
            index = getattr(page, name)._cache._cache_file
            own = Path(getattr(page, name).py_func.__code__.co_filename).stat()
            assert str(compiled.stamp()) in index._version, name
            assert index._version.endswith(str((own.st_mtime, own.st_size))), name


def test_machine_code_of_other_pages_is_passed_over_though_it_cannot_be_read(
    tmp_path: Path,
) -> None:
    """It names types: one that is gone by now must not end the first decision."""
    if not compiled.COMPILES:
        pytest.skip("numba is not installed: nothing is compiled")
    loop = next(getattr(page, name) for page in PAGES for name in functions(page))
    index = copy(loop._cache._cache_file)
    index._index_path = str(tmp_path / "of_before.nbi")
    before = pickle.dumps(index._version.replace("(", "(0, ")) + b"cnowhere\nGone\n."
    Path(index._index_path).write_bytes(before)
    assert index._load_index() == {}


def test_every_page_with_a_compiled_loop_is_counted() -> None:
    root = Path(compiled.__file__).parents[1]
    found = {
        page.relative_to(root).as_posix()
        for page in root.rglob("*.py")
        if "\n@jit\n" in page.read_text()
    }
    assert found <= set(compiled.PAGES)


def test_only_loops_that_make_and_answer_no_array_leave_references_uncounted() -> None:
    """What a loop answers belongs to its caller: an array that was not counted would be freed twice."""
    borrowing = {
        name
        for page in (growing, loops, planning, placement)
        for name, loop in vars(page).items()
        if isinstance(loop, FunctionType) and compiled.borrows(loop)
    }
    assert {"place_all", "take_offers", "site_on", "end_s", "find_steps"} <= borrowing
    makes, answers = (
        {"grow", "times_s", "keep_width", "find_room"},
        {"hold_nothing", "nothing_known"},
    )
    assert borrowing.isdisjoint(makes | answers)


def test_a_loop_that_slices_an_array_makes_one() -> None:
    def reads(values: Ints) -> int:
        return int(values[0])

    def slices(values: Ints) -> int:
        return int(values[1:][0])

    assert compiled.borrows(reads)
    assert not compiled.borrows(slices)


def test_arrays_are_nobody_elses_after_a_loop_that_only_borrows_them() -> None:
    nodes = placement.count_nodes([8, 4, 8], [0, 0, 0])
    lists = (nodes, placement.without_claims([0] * 3, [1]), [[4, 2], [8, 4], [9, 1]], [1, 1, 1])
    arrays = [compiled._array(part) for part in (*lists, [0] * 20, [0] * 3)]
    counts = [sys.getrefcount(array) for array in arrays[0][:6]]
    loop = compiled.compile_loop(placement.place_all)
    tries, sizes, taken, ends = arrays[2:]
    assert loop(arrays[0], arrays[1], tries, sizes, False, taken, ends) == 3
    assert ends.tolist() == [4, 12, 13]
    assert [sys.getrefcount(array) for array in arrays[0][:6]] == counts


def test_slots_of_shares_reach_to_the_horizon() -> None:
    assert slot_lengths(1e6).sum() == pytest.approx(1e6, rel=1e-6)
