"""Garbage collection of a service whose cycles make many objects."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

GC_THRESHOLD: Final = 200_000  # objects made and not let go, while a cycle runs


@contextmanager
def rare_garbage_collection() -> Iterator[None]:
    """Collect garbage rarely: a cycle over thousands of jobs makes many objects and few reference circles.

    Rarely, not never: requests that wait for an API server that hangs must not pile up without bound.
    """
    before = gc.get_threshold()
    gc.set_threshold(max(GC_THRESHOLD, before[0]), *before[1:])
    try:
        yield
    finally:
        if before[0] < GC_THRESHOLD:  # else another service of this process set it, and ends it
            gc.set_threshold(*before)
