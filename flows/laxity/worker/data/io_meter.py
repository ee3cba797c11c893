"""What a training reads while its first epoch lasts: told before that ends, so that it can be known.

An epoch of hours is known after minutes by how fast its data come in. Two counters are looked at
twice a second: the bytes that the training counts itself (`Training.open`, `reading`,
`count_bytes`), and those that the kernel says came from storage for this process and its children.
Where the training counts nothing the kernel's count stands in. Where both are there, bytes of files
that the kernel did not fetch came out of a cache: whoever reads the line can tell.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

Clock = Callable[[], float]
Tell = Callable[[dict[str, Any]], None]
LOOK_S: Final = 0.5
FIRST_TOLD_S: Final = 6.0  # a shorter epoch tells of itself soon enough
TOLD_AGAIN: Final = 1.25  # after so many times the time of the last line
MOST_LOOKS: Final = 240  # in one line; then every other one is dropped and half as many are made
PROC: Final = Path("/proc")
CGROUP: Final = Path("/sys/fs/cgroup/io.stat")


class Meter:
    """Watches one epoch at a time. `look` is what its thread does, twice a second."""

    def __init__(
        self,
        *,
        clock: Clock = time.monotonic,
        storage: Callable[[], int | None] | None = None,
    ) -> None:
        self._clock = clock
        self._storage = storage or storage_bytes
        self._lock = threading.Lock()
        self._counted = self._from_files = 0
        self._looks: list[tuple[float, int, int]] = []  # instant, counted, by the kernel
        self._began = (0.0, 0, 0, 0)  # instant, counted, of files, by the kernel
        self._knows_storage = False
        self._step_s = LOOK_S
        self._tell_at = 0.0
        self._over = threading.Event()

    def count(self, count: int, *, of_file: bool = False) -> None:
        """So many bytes were read; `of_file`: with a call that the kernel counts too."""
        with self._lock:
            self._counted += count
            self._from_files += count * of_file

    def begin(self) -> None:
        """An epoch begins now."""
        stored = self._storage()
        with self._lock:
            self._knows_storage = stored is not None
            began_s = self._clock()
            self._began = (began_s, self._counted, self._from_files, stored or 0)
            self._looks = [(began_s, self._counted, stored or 0)]
            self._step_s, self._tell_at = LOOK_S, FIRST_TOLD_S

    def watch(self, tell: Tell) -> None:
        """Look from a thread of its own until `end`."""
        self.begin()
        over = self._over = threading.Event()
        threading.Thread(
            target=self._watch_reads, args=(tell, over), name="laxity-meter", daemon=True
        ).start()

    def end(self) -> None:
        """The epoch is over: it tells of itself."""
        self._over.set()

    def look(self) -> dict[str, Any] | None:
        """Look once; the fields of a line when one is due."""
        stored = self._storage()
        with self._lock:
            self._looks.append((self._clock(), self._counted, stored or 0))
            if len(self._looks) > MOST_LOOKS:
                self._looks = self._looks[::2]
                self._step_s *= 2.0
            took_s = self._looks[-1][0] - self._began[0]
            if took_s < self._tell_at:
                return None
            self._tell_at = TOLD_AGAIN * took_s
            return self._epoch_fields()

    def _epoch_fields(self) -> dict[str, Any] | None:
        """Seconds and bytes since the epoch began; None if nothing at all was read."""
        began_s, counted, of_files, stored = self._began
        by_itself = self._counted > counted
        base, column = (counted, 1) if by_itself else (stored, 2)
        read = [reading[column] - base for reading in self._looks]
        if max(read) <= 0:
            return None
        return {
            "read_s": [round(reading[0] - began_s, 3) for reading in self._looks],
            "read_bytes": read,
            "by": "training" if by_itself else "kernel",
            "file_bytes": self._from_files - of_files,
            "storage_bytes": self._looks[-1][2] - stored if self._knows_storage else None,
        }

    def _watch_reads(self, tell: Tell, over: threading.Event) -> None:
        while not over.wait(self._step_s):
            line = self.look()
            if line is not None and not over.is_set():
                tell(line)


def storage_bytes() -> int | None:
    """What this process and its children have read from storage, by the kernel; None if not told.

    In a container whose /proc tells nothing, what the container's control group has read.
    """
    own = process_read_bytes("self")
    if own is None:
        return cgroup_read_bytes()
    return own + sum(process_read_bytes(child) or 0 for child in _descendant_pids("self"))


def process_read_bytes(pid: int | str) -> int | None:
    """What one process has caused to be fetched from storage (proc_pid_io(5): read_bytes)."""
    try:
        text = (PROC / str(pid) / "io").read_text()
    except OSError:
        return None
    fields = dict(row.split(": ", 1) for row in text.splitlines() if ": " in row)
    return int(fields["read_bytes"]) if "read_bytes" in fields else None


def cgroup_read_bytes(path: Path = CGROUP) -> int | None:
    """What a control group has read from all its devices (`rbytes` of io.stat)."""
    try:
        fields = path.read_text().split()
    except OSError:
        return None
    sizes = [int(word[7:]) for word in fields if word.startswith("rbytes=")]
    return sum(sizes) if sizes else None


def _descendant_pids(pid: int | str) -> list[str]:
    """All descendants; those of loaders that read for the training."""
    pids: list[str] = []
    with suppress(OSError):
        for task in (PROC / str(pid) / "task").iterdir():
            with suppress(OSError):
                pids += (task / "children").read_text().split()
    return pids + [further for child in pids for further in _descendant_pids(child)]
