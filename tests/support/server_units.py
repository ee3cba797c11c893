"""Which files of tests one worker of pytest-xdist takes, and in which order.

`--dist loadfile` hands whole files to whichever worker is free, so that each worker starts each
server anew: the cluster of real pods takes 50 s of CPU time, and Prefect's API 15 s and then some while it
idles. Files that share such a server are one unit each, and come first: they are the longest. After
them files that mostly wait for a simulated cluster and files that compute take turns, so that both
kinds run side by side.

Marks of `--dist loadgroup` would say the same without a class of our own; with pytest 9.2, xdist 3.8
ignores them (https://github.com/pytest-dev/pytest-xdist/issues/1386). The process that hands out
knows of a test no more than its name, hence a word in its file; those who collect check the word.
"""

from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
from xdist.scheduler import LoadFileScheduling

# A word that a file which needs the server has, and the unit.
SHARED: Final = {
    "PodCluster": "real pods",
    "prefect_api: str": "Prefect",
    "trainings: ModuleType": "Prefect",
}
# The fixture that starts the server.
STARTED_BY: Final = {"real_pod_cluster": "real pods", "prefect_api": "Prefect"}


@cache
def unit_of(file: Path) -> str:
    text = file.read_text(encoding="utf-8")
    return next((unit for word, unit in SHARED.items() if word in text), str(file))


def order_files(has_cluster: Mapping[Path, bool]) -> list[Path]:
    """Unit by unit; then turn by turn, each kind in its own order and spread evenly."""
    units = list(dict.fromkeys(SHARED.values()))
    shared = [file for unit in units for file in has_cluster if unit_of(file) == unit]
    turns: dict[Path, float] = {}
    for kind in (True, False):
        those = [file for file, its in has_cluster.items() if its == kind and file not in shared]
        turns |= {file: (place + 0.5) / len(those) for place, file in enumerate(those)}
    return [*shared, *sorted(turns, key=turns.__getitem__)]


class UnitScheduling(LoadFileScheduling):  # type: ignore[misc]
    """As `loadfile`, by units."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(self.config.rootpath / super()._split_scope(nodeid))


def check_unit(file: Path, fixtures: Collection[str]) -> None:
    """Raises UsageError where a file's tests start a server and its text does not say so."""
    needed = next((unit for name, unit in STARTED_BY.items() if name in fixtures), None)
    if needed and unit_of(file) not in {needed, "real pods"}:  # those start Prefect, too
        words = [word for word, unit in SHARED.items() if unit == needed]
        raise pytest.UsageError(f"{file} shares {needed} but has none of these words: {words}")


@pytest.hookimpl(trylast=True)  # of what has been selected
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    has_cluster: dict[Path, bool] = {}
    fixtures: dict[Path, set[str]] = {}
    for item in items:
        fixtures.setdefault(item.path, set()).update(getattr(item, "fixturenames", ()))
        has_cluster[item.path] = has_cluster.get(item.path, False) or bool(
            item.get_closest_marker("cluster")
        )
    for file, names in fixtures.items():
        check_unit(file, names)
    places = {file: place for place, file in enumerate(order_files(has_cluster))}
    items.sort(key=lambda item: places[item.path])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    return UnitScheduling(config, log) if config.getvalue("dist") == "loadfile" else None
