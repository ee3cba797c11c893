"""Loops that numba compiles where it is installed; elsewhere the same loops run in CPython.

Modules that use `jit` are imported on first use, since importing numba takes most of a second.

Machine code is kept on disk. numba looks at the page of a loop only to see whether it has changed,
but a loop holds the code of the loops that it calls, from other pages. So all pages count. They
count as numba's own version does, which is read first: what follows names types of these pages, and
cannot be read where one of them is gone.
"""

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, TypeVar, cast

Loop = TypeVar("Loop", bound=Callable[..., object])
COMPILES: Final = find_spec("numba") is not None
PAGES: Final = (
    "shares/arrays.py",
    "shares/plans.py",
    "shares/surplus.py",
    "columns/placing.py",
    "columns/tied_placing.py",
    "columns/growing.py",
    "frame/loops.py",
    "promising/planning.py",
    "frame/lanes.py",
    "shares/loop.py",
    "simulate/elastic_loop.py",
)


def jit(loop: Loop) -> Loop:
    """The loop as machine code, kept on disk between processes."""
    if not COMPILES:  # the same answer, slower
        return loop
    import numba

    compiled = numba.njit(cache=True)(loop)
    index = getattr(getattr(compiled, "_cache", None), "_cache_file", None)
    if index is not None:
        index._version = f"{numba.__version__} {stamp()}"  # noqa: SLF001 - there is no other way
    return cast("Loop", compiled)


@cache
def stamp() -> tuple[Any, ...]:
    """Changes when one of the pages does."""
    found = [(Path(__file__).parents[1] / page).stat() for page in PAGES]
    return tuple([(page.st_mtime, page.st_size) for page in found])
