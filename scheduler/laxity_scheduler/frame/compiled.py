"""Loops that numba compiles where it is installed; elsewhere the same loops run in CPython.

Modules that use `jit` are imported on first use, since importing numba takes most of a second. A loop
without `jit` is a plain function, which `run` compiles with all that it calls where there is much to do.

Machine code is kept on disk. numba looks at the page of a loop only to see whether it has changed,
but a loop holds the code of the loops that it calls, from other pages. So all pages count, and a
loop's own page wherever it is. They
count as numba's own version does, which is read first: what follows names types of these pages, and
cannot be read where one of them is gone.

At each call numba counts the references of each array of each tuple, atomically; where a dozen arrays
are passed on from loop to loop that took ten times as long as what the loops do. A loop that only
works on the arrays that it is given (`borrows`) is compiled without that: its caller holds them.
"""

import builtins
import dis
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import FunctionType
from typing import Any, Final, TypeVar, cast, get_args, get_origin

import numpy as np

Loop = TypeVar("Loop", bound=Callable[..., object])
Found = TypeVar("Found")
MANY_ROWS: Final = 200  # from so many on machine code is worth its call
BITS: Final = 60  # of a mask
NUMBERS: Final = (bool, int, float, None)
COMPILES: Final = find_spec("numba") is not None
PAGES: Final = (
    "shares/rows.py",
    "shares/plans.py",
    "shares/epoch_end_plans.py",
    "capacity/placement.py",
    "capacity/growing.py",
    "frame/kernels.py",
    "frame/loops.py",
    "promising/claimants.py",
    "promising/planning.py",
    "promising/reserve.py",
    "frame/fields.py",
    "shares/share_loop.py",
    "chains/queue_plan.py",
    "chains/snapshot_loop.py",
)


def jit(loop: Loop) -> Loop:
    """The loop as machine code, kept on disk between processes."""
    if not COMPILES:  # the same answer, slower
        return loop
    import numba

    options: dict[str, Any] = {"cache": True}
    if hasattr(numba.core.options.DefaultOptions, "_nrt"):
        options["_nrt"] = not borrows(loop)  # where it is not said a loop is as those that call it
    compiled = numba.njit(**options)(loop)
    index = getattr(getattr(compiled, "_cache", None), "_cache_file", None)
    if index is not None:
        own = _time_and_size(Path(loop.__code__.co_filename))
        index._version = f"{numba.__version__} {stamp()} {own}"  # noqa: SLF001 - there is no other way
    return cast("Loop", compiled)


def borrows(loop: Callable[..., object]) -> bool:
    """Whether a loop makes no array and answers numbers, as do all loops that it calls by name.

    All that it names are then numbers, tuples of numbers, such loops, and functions of Python's own;
    and it works on no slices.
    """
    code: Any = getattr(loop, "py_func", loop)
    steps, known = list(dis.get_instructions(code)), {**vars(builtins), **code.__globals__}
    names = [step.argval for step in steps if step.opname == "LOAD_GLOBAL"]
    slices = any("SLICE" in step.opname for step in steps)
    plain = all(_is_plain(known.get(name, Any)) for name in names)
    return _answers_numbers(code) and plain and not slices


def _is_plain(named: Any) -> bool:
    return (
        _are_numbers(named)
        or _are_numbers(type(named))
        or getattr(named, "__module__", "") in {"builtins", "math"}
        or (isinstance(named, type) and issubclass(named, tuple))
        or _answers_numbers(getattr(named, "py_func", named))
    )


def _answers_numbers(loop: Any) -> bool:
    return _are_numbers(getattr(loop, "__annotations__", {}).get("return", Any))


def _are_numbers(kind: Any) -> bool:
    """Whether values of this type hold nothing but numbers."""
    if any(kind is number for number in NUMBERS):
        return True
    parts = get_args(kind) if get_origin(kind) is tuple else ()
    if isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields"):
        parts = tuple(kind.__annotations__.values())
    return bool(parts) and all(map(_are_numbers, parts))


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
    pages = [Path(__file__), *(Path(__file__).parents[1] / page for page in PAGES)]
    return tuple(map(_time_and_size, pages))


def _time_and_size(page: Path) -> tuple[float, int]:
    stat = page.stat()
    return stat.st_mtime, stat.st_size
