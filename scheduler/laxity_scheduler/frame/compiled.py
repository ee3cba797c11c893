"""Loops that numba compiles where it is installed; elsewhere the same loops run in CPython.

Modules that use `jit` are imported on first use, since importing numba takes most of a second. A loop
without `jit` is a plain function, which `run` compiles with all that it calls where there is much to do.

Machine code is kept on disk. numba looks at the page of a loop only to see whether it has changed,
but a loop holds the code of the loops that it calls, from other pages. So all pages count. They
count as numba's own version does, which is read first: what follows names types of these pages, and
cannot be read where one of them is gone.
"""

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import FunctionType
from typing import Any, Final, TypeVar, cast

import numpy as np

Loop = TypeVar("Loop", bound=Callable[..., object])
Found = TypeVar("Found")
MANY_ROWS: Final = 200  # from so many on machine code is worth its call
BITS: Final = 60  # of a mask
COMPILES: Final = find_spec("numba") is not None
PAGES: Final = (
    "shares/arrays.py",
    "shares/plans.py",
    "shares/surplus.py",
    "capacity/placement.py",
    "capacity/growing.py",
    "frame/kernels.py",
    "frame/loops.py",
    "promising/planning.py",
    "promising/reserve.py",
    "frame/fields.py",
    "shares/loop.py",
    "simulate/elastic_loop.py",
    "chains/cluster_loop.py",
    "chains/snapshot_loop.py",
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


def run(loop: Callable[..., Found], rows: int, *args: Any, most_bits: int = 0) -> Found:
    """What the loop says; as machine code where it works on so many rows that this pays.

    Whole numbers that it changes are lists, also within named tuples; arrays are only read. Plainly
    it works on lists, compiled on arrays, and what has changed is put back into the lists.
    """
    if not COMPILES or rows < MANY_ROWS or most_bits > BITS:
        return loop(*map(_plain, args))
    arrays = [_array(arg) for arg in args]
    answer: Found = compile_loop(loop)(*arrays)
    for arg, array in zip(args, arrays, strict=True):
        _put_back(arg, array)
    return answer


def _plain(arg: Any) -> Any:
    return arg.tolist() if isinstance(arg, np.ndarray) else arg


def _array(arg: Any) -> Any:
    if isinstance(arg, list):
        return np.array(arg, dtype=np.int64)
    return type(arg)(*map(_array, arg)) if isinstance(arg, tuple) else arg


def _put_back(arg: Any, array: Any) -> None:
    if isinstance(arg, list):
        arg[:] = array.tolist()
    elif isinstance(arg, tuple):
        for item, other in zip(arg, array, strict=True):
            _put_back(item, other)


@cache
def compile_loop(loop: Loop) -> Loop:
    """The loop as machine code, with all loops that it calls by name; itself without numba."""
    if not isinstance(loop, FunctionType):
        return loop  # has been compiled
    namespace = loop.__globals__
    called = {name: namespace[name] for name in loop.__code__.co_names if name in namespace}
    own = {
        name: compile_loop(other)
        for name, other in called.items()
        if isinstance(other, FunctionType)
    }
    twin = FunctionType(loop.__code__, {**namespace, **own}, loop.__name__, loop.__defaults__)
    twin.__qualname__, twin.__annotations__ = loop.__qualname__, loop.__annotations__
    return cast("Loop", jit(twin))


@cache
def stamp() -> tuple[Any, ...]:
    """Changes when one of the pages does."""
    stats = [(Path(__file__).parents[1] / page).stat() for page in PAGES]
    return tuple([(page.st_mtime, page.st_size) for page in stats])
