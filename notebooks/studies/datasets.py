"""The traces that studies take: all of them where LAXITY_TRACES has them, or the shipped samples.

Cluster sizes are those that the traces were published with (ElasticFlow's scripts).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from laxity_lab.traces.cases import Source
from laxity_lab.traces.trace_lookup import SAMPLES, TRACES, traces_folder
from laxity_lab.traces.traces import Format, TraceError


@dataclass(frozen=True, slots=True)
class TraceFile:
    """One trace: its file under the folder of traces, and the cluster that it belongs to."""

    file: str
    format: Format
    gpus: int
    gpus_per_node: int = 8

    def source(self, folder: Path) -> Source:
        return Source(folder / self.file, self.format)


TRACE_FILES: Final = {
    "195job": TraceFile("itp/195job.csv", "itp", 128),
    "10": TraceFile("itp/cluster10.csv", "itp", 256),
    "01": TraceFile("itp/cluster01.csv", "itp", 512),
    "03": TraceFile("itp/cluster03.csv", "itp", 512),
    "05": TraceFile("itp/cluster05.csv", "itp", 512),
    "02": TraceFile("itp/cluster02.csv", "itp", 512),
    "04": TraceFile("itp/cluster04.csv", "itp", 1024),
    "elasticVpollux_e": TraceFile("elasticflow/elasticVpollux_e.csv", "elasticflow", 64, 4),
    "philly": TraceFile("philly/philly.csv", "philly", 512),
}


@dataclass(frozen=True, slots=True)
class Datasets:
    """Where the traces stand. `samples`: only those that ship, and studies in small."""

    folder: Path
    samples: bool = False

    def source(self, name: str) -> Source:
        """TraceError if it is not there."""
        source = TRACE_FILES[name].source(self.folder)
        if not source.path.is_file():
            message = f"no trace {name} at {source.path}: set {TRACES}, or take the --samples"
            raise TraceError(message)
        return source

    def having(self, names: Sequence[str]) -> list[str]:
        """Those of these names that are here."""
        return [name for name in names if TRACE_FILES[name].source(self.folder).path.is_file()]


def open_datasets(*, samples: bool = False) -> Datasets:
    """The samples, or the folder that LAXITY_TRACES names. TraceError if it names none."""
    if samples:
        return Datasets(SAMPLES, samples=True)
    folder = traces_folder()
    if folder is None:
        raise TraceError(f"{TRACES} names no folder of traces; --samples takes those that ship")
    if not folder.is_dir():
        message = f"{TRACES} is {folder}, which is no folder; --samples takes those that ship"
        raise TraceError(message)
    return Datasets(folder)
