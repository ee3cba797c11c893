"""What a training reads: its share of the data, and how many bytes that are."""

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeVar

from laxity.worker.checkpoints.training_state import TrainingError, TrainingState
from laxity.worker.data.counted_io import count_items, open_counted
from laxity.worker.data.shards import take_shard

Item = TypeVar("Item")


class DataAccess:
    """The part of `Training` that gives its code data."""

    _course: TrainingState
    _inside: bool

    def shard(self, data: Any, *, seed: int | None = None) -> Any:
        """This worker's part of arrays, sequences, or tuples and dicts of them, in this epoch."""
        if not self._inside:
            raise TrainingError(
                "shard() belongs inside the loop over epochs(): "
                "the parts change when the number of workers does"
            )
        course = self._course
        return take_shard(
            data, rank=course.rank, width=course.width, seed=seed, epoch=course.done + 1
        )

    def count_bytes(self, count: int) -> None:
        """So many bytes were read: for loaders that `open` and `reading` do not see."""
        self._course.count(int(count))

    def open(self, path: Path | str, mode: str = "rb") -> IO[Any]:
        """A file for reading, counted."""
        return open_counted(Path(path), mode, partial(self._course.count, of_file=True))

    def reading(self, items: Iterable[Item]) -> Iterator[Item]:
        """The same items, with the bytes of their arrays counted."""
        return count_items(items, self.count_bytes)
