"""Which files of tests one worker of pytest-xdist takes, and in which order.

`--dist loadfile` hands whole files to whichever worker is free, so that each worker starts each
server anew: real pods' ground takes 50 s of CPU time, and Prefect's API 15 s and then some while it
idles. Files that share such a server are one unit each, and come first: they are the longest. After
them files that mostly wait for a simulated cluster and files that compute take turns, so that both
kinds run side by side.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
from xdist.scheduler import LoadFileScheduling

# A word that a file which needs the server has, and the unit.
SHARED: Final = {
    "PodGround": "real pods",
    "prefect_api": "Prefect",
    "trainings: ModuleType": "Prefect",
}


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


@pytest.hookimpl(trylast=True)  # of what has been selected
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    has_cluster: dict[Path, bool] = {}
    for item in items:
        has_cluster[item.path] = has_cluster.get(item.path, False) or bool(
            item.get_closest_marker("cluster")
        )
    places = {file: place for place, file in enumerate(order_files(has_cluster))}
    items.sort(key=lambda item: places[item.path])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    return UnitScheduling(config, log) if config.getvalue("dist") == "loadfile" else None
