"""Loops that numba compiles where it is installed; elsewhere the same loops run in CPython.

Modules that use `jit` are imported on first use, since importing numba takes most of a second.
"""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Final, TypeVar, cast

Loop = TypeVar("Loop", bound=Callable[..., object])
COMPILES: Final = find_spec("numba") is not None


def jit(loop: Loop) -> Loop:
    """The loop as machine code, kept on disk between processes."""
    if not COMPILES:  # the same answer, slower
        return loop
    import numba

    return cast("Loop", numba.njit(cache=True)(loop))
