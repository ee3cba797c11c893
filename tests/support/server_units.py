"""Which files of tests one worker of pytest-xdist takes: those that share a server that starts slowly.

`--dist loadfile` hands whole files to whichever worker is free, so that each worker starts each
server anew: real pods' ground takes 50 s of CPU time, and Prefect's API 15 s and then some while it
idles. These files are one unit each, and come first: they are the longest.
"""

from functools import cache
from pathlib import Path
from typing import Final

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


def rank(file: Path) -> int:
    """Files in units come before all others, unit by unit."""
    units = list(dict.fromkeys(SHARED.values()))
    unit = unit_of(file)
    return units.index(unit) if unit in units else len(units)


class UnitScheduling(LoadFileScheduling):  # type: ignore[misc]
    """As `loadfile`, by units."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(self.config.rootpath / super()._split_scope(nodeid))
